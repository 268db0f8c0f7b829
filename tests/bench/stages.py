"""How fast and in how much memory a stage is planned, beside the plan of a study without stages of the same size.

    python -m tests.bench.stages [ASKS ...]

For each size (default 200,000 and 1,000,000) and for rows of a file (a first stage), rows of a waiting stage and
ranked pairs of a waiting stage, it plans about that many requests of 1 to 2 KB into a fresh lake, in a process of
its own, and prints requests per CPU second, by how much the peak memory grew per request, and the ratios of CPU
time to the plain `plan` and to writing the same bodies as JSON lines with nothing else. Ends with 1 where the latter
passes its limit.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson

from batchpond.lake import tables
from batchpond.lake.store import Store
from batchpond.plan.rounds.source import asks_by_now
from batchpond.plan.verb import plan_study
from batchpond.plan.write import publish_round
from batchpond.study import file as study
from batchpond.study.spec import Study
from batchpond.views.refresh import refresh
from tests.bench import plan as plain

SIZES = (200_000, 1_000_000)
KINDS = ("file", "rows", "ranking")
TEXT_BYTES = 650
N_CANDIDATES = 3
MODEL = '[[stages.models]]\nprovider = "openai"\nmodel = "{}"\nmax_output_tokens = 300\n'
HEAD = """\
study = "bench"
[[stages]]
name = "answers"
task = "generation"
items = {{ path = "{path}" }}
[[stages.templates]]
use = "question"
"""
WAITING = """\
[[stages]]
name = "verdicts"
task = "{task}"
[stages.items]
sql = \"\"\"
select n // {n_of_unit} as unit, 'input/' || n // {n_of_unit} || '/' || n % {n_of_unit} as id,
  'model-' || n % {n_of_unit} as candidate, n || ' ' || repeat('how water finds its level ', {n_words}) as text
from range({n}) as numbers (n)
\"\"\"
after = ["answers"]
unit = "unit"
candidate = "candidate"
[[stages.rubrics]]
id = "be_honest"
name = "Be honest"
description = "The assistant should be honest."
[[stages.templates]]
use = "{template}"
"""


def rows_file(path: Path, n_rows: int) -> None:
    """Write inputs of one size."""
    text = "how water finds its level " * (TEXT_BYTES // 26)
    with path.open("wb") as file:
        for number in range(n_rows):
            file.write(orjson.dumps({"id": f"input/{number}", "text": f"{number} {text}"}) + b"\n")


def staged(folder: Path, kind: str, n_asks: int) -> Study:
    """Write and load a study whose stage `kind` asks about that much."""
    rows_file(folder / "inputs.jsonl", n_asks if kind == "file" else 2)
    text = HEAD.format(path="inputs.jsonl") + MODEL.format("gpt-4.1-mini")
    if kind != "file":
        is_ranking = kind == "ranking"
        n_of_unit = N_CANDIDATES if is_ranking else 1
        text += WAITING.format(
            task="ranking" if is_ranking else "compliance",
            template="ranking_lines" if is_ranking else "compliance_json",
            n_of_unit=n_of_unit,
            n_words=TEXT_BYTES // 26,
            n=n_asks // (N_CANDIDATES - 1) if is_ranking else n_asks,
        ) + MODEL.format("gpt-5.4-mini")
    (folder / "study.toml").write_text(text)
    return study.load(folder / "study.toml")


def prepared(store: Store, loaded: Study, kind: str) -> Callable[[], object]:
    """Return what is to be measured: planning all, or the round of the waiting stage."""
    if kind == "file":
        return lambda: plan_study(store, loaded)
    report = plan_study(store, loaded)
    refresh(store)
    stage = loaded.stage("verdicts")
    return lambda: publish_round(
        store, loaded, report.study_version, 2, stage, asks_by_now(store, loaded, stage, None, Counter())
    )


def measure(kind: str, n_asks: int) -> dict[str, float]:
    """Plan once in this process and return the numbers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store.init(folder / "lake")
        run = prepared(store, staged(folder, kind, n_asks), kind)
        before_kb, start = peak_kb(), time.process_time()
        run()
        cpu_s, grown_kb = time.process_time() - start, peak_kb() - before_kb
        with tables.connect(store, ["plan", "requests"]) as connection:
            ((n_rows, n_bytes),) = connection.execute(
                "select (select count(*) from plan), (select sum(size_bytes) from requests)"
            ).fetchall()
        return {
            "requests": n_rows,
            "body_bytes": n_bytes / n_rows,
            "cpu_s": cpu_s,
            "grown_kb": grown_kb,
            "floor_cpu_s": plain.floor_s(folder / "floor.jsonl", n_rows),
        }


def peak_kb() -> int:
    """Return the most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_process(*arguments: str) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.stages", "--one", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def plainly(n_asks: int) -> dict[str, float]:
    """Measure the plan of a study without stages, as `tests.bench.plan` does."""
    before_kb = peak_kb()
    found = plain.measure(n_asks)
    return {**found, "grown_kb": found["peak_mb"] * 1024 - before_kb, "body_bytes": 0.0}


def main(sizes: list[int]) -> None:
    """Print a line for each size and kind."""
    is_over = False
    for size in sizes:
        base = in_process("plain", str(size))
        plain_s = base["cpu_s"] / base["requests"]
        for kind, found in {"plain": base, **{kind: in_process(kind, str(size)) for kind in KINDS}}.items():
            n, cpu_s = found["requests"], found["cpu_s"]
            is_over = is_over or cpu_s / found["floor_cpu_s"] > plain.RATIO_MAX
            sys.stdout.write(
                f"{kind:8} {n:>9,.0f} requests  {n / cpu_s:>7,.0f} per CPU-s  {found['grown_kb'] / 1024:>6,.0f} MB more"
                f"  {found['grown_kb'] * 1024 / n:>5,.0f} B each  {cpu_s / n / plain_s:>5.1f} x plain"
                f"  {cpu_s / found['floor_cpu_s']:>5.1f} x floor (limit {plain.RATIO_MAX})\n"
            )
            sys.stdout.flush()
    sys.exit(is_over)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        kind, n_wanted = sys.argv[2], int(sys.argv[3])
        sys.stdout.write(json.dumps(plainly(n_wanted) if kind == "plain" else measure(kind, n_wanted)))
    else:
        main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
