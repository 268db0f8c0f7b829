"""The sentences at the top of a report on imported judgments, and judgments to find something in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchpond_report import build
from tests.rigs.lakes import LakeBuilder

Row = dict[str, Any]
BASE = {"study": "s", "template_id": "t1", "provider": "p", "request_model": "m1", "thinking": "none",
        "outcome": "decided"}  # fmt: skip


def findings(path: Path, rows: list[Row]) -> dict[str, list[str]]:
    """Return the sentences on imported judgments by the exhibit that shows them."""
    lake = LakeBuilder(path / "lake")
    lake.imported([{"import_key": f"k{n}"} | BASE | row for n, row in enumerate(rows)])
    lake.build()
    found: dict[str, list[str]] = {}
    for finding, _ in build.build(path / "lake", "s").findings():
        found.setdefault(finding.key, []).append(finding.text)
    return found


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
