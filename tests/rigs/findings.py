"""The sentences at the top of a report on imported judgments, and judgments to find something in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from batchpond_report import build, markdown
from batchpond_report.declared import exhibits
from batchpond_report.parts import Exhibit, Report, Section
from batchpond_report.sections import SECTIONS, facts
from batchpond_report.source import opened
from tests.rigs.lakes import LakeBuilder

Row = dict[str, Any]
# Sections by what they show; one whose exhibits are made by code alone has its own name.
OWNERS = {name: name for name in SECTIONS} | {key: name for name in ("facts", *SECTIONS) for key in exhibits(name)}
BASE = {"study": "s", "template_id": "t1", "provider": "p", "request_model": "m1", "thinking": "none",
        "outcome": "decided"}  # fmt: skip


class Told(Mapping[str, list[str]]):
    """The sentences of a report on a study by the exhibit that shows them, and the exhibits.

    Each section is the report's own, and is made when one of its is asked for: a whole report is twenty of them.
    """

    def __init__(self, lake: Path, study: str = "s") -> None:
        self._opened = opened(lake, study)  # until nobody asks any more
        self._source = self._opened.__enter__()
        self._made: dict[str, Section | None] = {}

    @cached_property
    def about(self) -> facts.Study:
        """What is said of the study at the top."""
        return facts.study(self._source)

    def section(self, key: str) -> Section | None:
        """Return the section that owns an exhibit, None where there is nothing to show; AssertionError for no such."""
        assert key in OWNERS, key
        name = OWNERS[key]
        if name not in self._made:
            self._made[name] = self.about.section if name == "facts" else build._section(name, self._source)
        return self._made[name]

    def exhibit(self, key: str) -> Exhibit:
        """Return an exhibit, which is shown."""
        section = self.section(key)
        assert section is not None, key
        (found,) = [part for part in section.parts if isinstance(part, Exhibit) and part.key == key]
        return found

    def text(self, key: str) -> str:
        """Return the section of an exhibit as Markdown, with what it finds."""
        section = self.section(key)
        return markdown.render(Report("s", "", (), () if section is None else (section,), ""))

    def __getitem__(self, key: str) -> list[str]:
        section = self.section(key)
        if texts := [one.text for one in (section.findings if section else ()) if one.key == key]:
            return texts
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (key for key in OWNERS if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def findings(path: Path, rows: list[Row]) -> Told:
    """Return what a report says on imported judgments."""
    lake = LakeBuilder(path / "lake")
    lake.imported([{"import_key": f"k{n}"} | BASE | row for n, row in enumerate(rows)])
    lake.build()
    return Told(path / "lake")


def complying(kind: dict[str, int], **columns: Any) -> list[Row]:
    """Return verdicts on 12 statements by which a candidate complies with the first so many of them."""
    return [
        {"task": "compliance", "rubric_id": f"s{n:02}", "unit_id": f"u{n}", "item_first": f"u{n}-{candidate}",
         "candidate_first": candidate, "verdict": "true" if n < n_true else "false"} | columns
        for candidate, n_true in kind.items() for n in range(12)
    ]  # fmt: skip


def compared(n_rubrics: int, n_units: int = 30) -> list[Row]:
    """Return comparisons of two candidates' outputs in both orders, of which a wins two thirds."""
    return [
        {"task": "ranking", "rubric_id": f"r{rubric}", "unit_id": f"u{rubric}-{unit}", "candidate_first": names[0],
         "candidate_second": names[1], "item_first": f"{rubric}-{unit}-{names[0]}",
         "item_second": f"{rubric}-{unit}-{names[1]}",
         "verdict": "first" if (names[0] == "a") == (unit % 3 > 0) else "second"}
        for rubric in range(n_rubrics) for unit in range(n_units) for names in (("a", "b"), ("b", "a"))
    ]  # fmt: skip


def against(baseline: str, wins: dict[str, int], n_prompts: int = 12) -> list[Row]:
    """Return comparisons by one criterion of candidates with a baseline, each of which wins so many in both orders."""
    return [
        {"task": "ranking", "rubric_id": "r", "unit_id": f"u{unit}", "candidate_first": names[0],
         "candidate_second": names[1], "item_first": f"{unit}-{names[0]}", "item_second": f"{unit}-{names[1]}",
         "verdict": "first" if (names[0] != baseline) == (unit < n_wins) else "second"}
        for name, n_wins in wins.items() for unit in range(n_prompts) for names in ((name, baseline), (baseline, name))
    ]  # fmt: skip
