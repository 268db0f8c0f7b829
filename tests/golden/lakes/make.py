"""Make the lakes of this folder. Run once, on commit cc06c86, from the project's folder:

    python -m tests.golden.lakes.make

Each lake is planned, sent to a simulator and left in the middle; it is packed with the simulator's state. Then a copy
is brought to its end, and what came of it is written down. Do not run it again to make a red test green: lakes like
these lie on people's disks, and every later version must go on with them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.golden import doors
from tests.golden.lakes import desk
from tests.golden.lakes.desk import Desk

ITEMS = "".join(f"s{n},sample number {n} [[quality=0.{n}]]\n" for n in range(1, 6))
QUESTIONS = "".join(f"q{n},Is claim number {n} true?\n" for n in range(1, 4))
OUTPUTS = "".join(f"o{n}{m},Answer {m} to {n}.,p{n},{m}\n" for n in range(1, 5) for m in ("a", "b", "c"))
ESSAYS = "".join(f"i{n:02},essay {n} [[quality={((7 * n) % 12) / 4 - 1.5:.2f}]]\n" for n in range(12))
JUDGES = (
    "*:sharpness=4,position_bias=0.4,compliance_rate=0.6,flip_rate=0.4,tie_rate=0.1,unparsed_rate=0.08,refusal_rate=0.04",
    "gpt-4.1-nano:sharpness=1.5,position_bias=0.3",
    "gpt-4o-mini:flip_rate=0.4",
)
PAIRS = """[items]
path = "{path}"
[pairs]
{pairs}
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
"""
MODEL = '[[{key}]]\nprovider = "{provider}"\nmodel = "{model}"\nmax_output_tokens = 200\n'


def _models(*names: str, key: str = "models") -> str:
    return "".join(
        MODEL.format(key=key, provider=provider, model=model)
        for provider, _, model in (name.partition("/") for name in names)
    )


def _stage(name: str, task: str, items: str, template: str | None, *names: str, more: str = "") -> str:
    use = f'[[stages.templates]]\nuse = "{template}"\n' if template else ""
    return f'[[stages]]\nname = "{name}"\ntask = "{task}"\n{more}[stages.items]\n{items}\n{use}' + _models(
        *names, key="stages.models"
    )


RUBRIC = '[[stages.rubrics]]\nid = "brief"\nname = "Brief"\ndescription = "The answer should be brief."\n'
THREE = ("openai/gpt-4.1-mini", "anthropic/claude-haiku-4-5", "gemini/gemini-2.5-flash-lite")
TWO = ("openai/gpt-4.1-mini", "openai/gpt-4o-mini")
JUDGE = "openai/gpt-5.4-mini"
ADAPTIVE = 'select = "adaptive"\nrounds = 3\nfirst_per_item = 2\nper_item = 2\nstop_stale = false'
OUTPUTS_OF = 'path = "outputs.csv"\nunit = "prompt"\ncandidate = "model"'
ASKED = 'path = "questions.csv"'
STUDIES = {
    "plain_open": (
        'study = "plain"\n[shards]\nmax_requests = 8\n' + PAIRS.format(path="items.csv", pairs="") + _models(*THREE)
    ),
    "staged": (
        'study = "staged"\n'
        + _stage("answers", "generation", ASKED, "question", *TWO) + RUBRIC
        + _stage("ranking", "ranking", 'stage = "answers"', "ranking_lines", JUDGE) + RUBRIC
        + _stage("verdicts", "compliance", 'stage = "answers"', "compliance_json", JUDGE) + RUBRIC
    ),
    "adaptive": (
        'study = "adaptive"\n' + PAIRS.format(path="essays.csv", pairs=ADAPTIVE) + _models("openai/gpt-4.1-nano")
    ),
    "pressure": (
        'study = "pressure"\n'
        + _stage("talk", "conversation", ASKED, None, "openai/gpt-4o-mini", THREE[1], more="turns = 3\n")
        + _stage("labels", "pressure", 'stage = "talk"', "pressure_label", JUDGE)
    ),
    "finished": (
        'study = "finished"\n'
        + _stage("pairs", "pairwise", 'path = "items.csv"', "plain", TWO[0], more="repeats = 2\n") + RUBRIC
        + _stage("ranking", "ranking", OUTPUTS_OF, "ranking_lines", JUDGE, more="repeats = 2\n") + RUBRIC
    ),
}  # fmt: skip


def _open(found: Desk) -> None:
    """One part is answered, the other is on its way."""
    found.lake.submit(found.study, limit=12, confirm=lambda _: True)
    found.sync()
    found.submit()


def _between(found: Desk) -> None:
    """The first round is answered, and nothing follows yet."""
    found.submit()
    found.sync(submit_due=False)


def _at_turn_2(found: Desk) -> None:
    """Turn 1 is answered, turn 2 on its way."""
    found.submit()
    found.sync()
    found.sync()


def _finished(found: Desk) -> None:
    """All is answered."""
    found.submit()
    while found.sync():
        pass


LEFT: dict[str, Callable[[Desk], None]] = {
    "plain_open": _open, "staged": _between, "adaptive": _between, "pressure": _at_turn_2, "finished": _finished,
}  # fmt: skip


def _make(name: str, scratch: Path) -> None:
    folder = scratch / name
    folder.mkdir()
    for file, rows in (("items.csv", ITEMS), ("questions.csv", QUESTIONS), ("essays.csv", ESSAYS)):
        (folder / file).write_text("id,text\n" + rows)
    (folder / "outputs.csv").write_text("id,text,prompt,model\n" + OUTPUTS)
    (folder / "study.toml").write_text(STUDIES[name])
    with desk.desk_at(folder, name) as found:
        for judge in JUDGES:
            doors.steer(found.environment, "judges", {"spec": judge})
        found.lake.plan(folder / "study.toml")
        LEFT[name](found)
    for file in ("batchpond.duckdb", ".lens"):
        (folder / "lake" / file).unlink(missing_ok=True)  # the lens is made anew from the tables, and is large
    desk.pack(folder, desk.HERE / f"{name}.tar.gz")
    shutil.copytree(folder, scratch / "copy" / name)
    with desk.desk_at(scratch / "copy" / name, name) as found:
        before = found.results()
        found.settle()
        document = {"before": len(before), "cells": found.cells(), "results": found.results()}
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (desk.HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    """Make the lakes named, or all."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or STUDIES:
            _make(name, Path(scratch))


if __name__ == "__main__":
    main(sys.argv[1:])
