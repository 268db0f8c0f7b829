"""Studies of stages against in-process simulators: files to plan from, and a rig that plans them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from batchpond.plan.report import PlanReport
from batchpond.plan.verb import plan_study
from batchpond.study import file as study
from batchpond.views.read import Limits, run_query
from tests.rigs.sim_study import Rig

STATEMENTS = ("be_honest", "be_brief", "no_insults", "cite_sources")
CANDIDATES = ("gpt-4.1-mini", "gpt-4o", "gpt-4o-mini")
MODEL = '[[stages.models]]\nprovider = "{}"\nmodel = "{}"\nmax_output_tokens = 300\n{}'


def models(*names: str, more: str = "") -> str:
    """Return OpenAI models of a stage."""
    return "".join(MODEL.format("openai", name, more) for name in names)


def stage(name: str, task: str, items: str, tail: str) -> str:
    """Return a stage; `tail` is what follows its items."""
    return (
        f'\n[[stages]]\nname = "{name}"\ntask = "{task}"\n{tail.partition("---")[0]}[stages.items]\n{items}\n'
        + (tail.partition("---")[2])
    )


def use(*templates: str) -> str:
    """Return built-in templates of a stage."""
    return "".join(f'[[stages.templates]]\nuse = "{name}"\n' for name in templates)


RUBRICS = '[stages.rubrics]\npath = "statements.jsonl"\n'


def spec_study() -> str:
    """Return generation, ranking and compliance of three candidates by four statements."""
    inputs = 'path = "inputs.csv"\nrubric = "statement"'
    return (
        'study = "demo"\n[shards]\nmax_requests = 40\n'
        + stage("answers", "generation", inputs, f"---{RUBRICS}{use('question')}{models(*CANDIDATES)}")
        + stage(
            "ranking", "ranking", 'stage = "answers"', f"---{RUBRICS}{use('ranking_lines')}{models('gpt-5.4-mini')}"
        )
        + stage(
            "compliance", "compliance", 'stage = "answers"',
            f"---{RUBRICS}{use('compliance_json')}{models('gpt-5.4-mini')}",
        )
    )  # fmt: skip


def write_files(folder: Path, *, n_inputs: int = 12) -> None:
    """Write statements, inputs of them in turn, and questions."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [orjson.dumps({"id": name, "text": f"The assistant should {name}."}).decode() for name in STATEMENTS]
    (folder / "statements.jsonl").write_text("\n".join(lines) + "\n")
    rows = [f"in{n},What about case {n}?,{STATEMENTS[n % len(STATEMENTS)]}" for n in range(n_inputs)]
    (folder / "inputs.csv").write_text("\n".join(["id,text,statement", *rows]) + "\n")
    questions = [f"q{n},Is claim number {n} true?" for n in range(n_inputs)]
    (folder / "questions.csv").write_text("\n".join(["id,text", *questions]) + "\n")


@dataclass
class StageRig(Rig):
    """A lake with a study of stages."""

    toml: str = ""
    n_inputs: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        write_files(self.path / "study", n_inputs=self.n_inputs)
        self.write(self.toml or spec_study())

    def write(self, toml: str) -> None:
        """Write the study file."""
        self.study_path.write_text(toml)

    def plan(self) -> None:
        """Run `plan`."""
        self.planned()

    def planned(self) -> PlanReport:
        """Run `plan` and return its report."""
        loaded = study.load(self.study_path)
        store = self.store()
        with self._points():
            return plan_study(store, loaded)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query over the views."""
        rows: list[dict[str, Any]] = run_query(self.lake, sql, Limits(max_rows=1_000_000)).to_pylist()
        return rows

    def finish(self, n_max: int = 40) -> int:
        """Sync and nothing else until nothing is pending; returns how many passes that took."""
        for n in range(1, n_max + 1):
            self.clock.advance(1_000.0)
            report = self.sync()
            if not report.n_pending and not self._is_any_unsent():
                return n
        raise AssertionError("not settled")
