"""The regression gate: whether a number of b is worse than that of a, decided on the interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchpond.errors import UsageError
from batchpond.text import did_you_mean

MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class Gate:
    """What may not get worse by more than `delta`, in the metric's own unit.

    It fails where the whole interval is beyond delta: harm is shown. With `is_margin` it fails unless the whole
    interval is within it: absence of such harm is not shown (non-inferiority).
    """

    metric: str
    delta: float
    is_margin: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """What a gate says of one comparison; `is_worse` is None where there is no interval to decide on."""

    comparison_no: int
    metric: str
    is_worse: bool | None
    says: str


def gate(text: str, *, is_margin: bool) -> Gate:
    """Return what `METRIC[:DELTA]` says; raises UsageError for a delta that is no number from 0 on."""
    metric, _, given = text.partition(":")
    try:
        delta = float(given or 0)
    except ValueError:
        delta = math.nan
    if not 0 <= delta < math.inf:
        raise UsageError(f"{given!r} is no number from 0 on", hint="METRIC:DELTA, such as consistency:0.02")
    if is_margin and not delta:
        raise UsageError(
            f"--margin needs one: {metric} may be worse by how much?", hint=f"--fail-if-worse {metric}:0.02 --margin"
        )
    return Gate(metric or MAIN, delta, is_margin)


def findings(gates: Iterable[Gate], rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield what each gate says of each comparison that has its metric; raises UsageError for one that none has."""
    for one in gates:
        chosen = [row for row in rows if row["metric"] == one.metric or (one.metric == MAIN and row["is_main"])]
        known = sorted({row["metric"] for row in rows if row["better"]})
        if not chosen or not all(row["better"] for row in chosen):
            lacks = f"there is no {one.metric} to compare" if not chosen else f"no side of {one.metric} is better"
            raise UsageError(lacks, hint=did_you_mean(one.metric, known, f"a gate can hold {', '.join(known)}"))
        for row in chosen:
            yield _finding(one, row)


def _finding(one: Gate, row: Mapping[str, Any]) -> Finding:
    is_lower_better = row["better"] == "lower"
    head = f"{row['metric']} of comparison {row['comparison_no']}: {row['value_b']:.4g}, was {row['value_a']:.4g}"
    if row["diff_lo"] is None:
        says = f"{head}; nothing to decide on, {row['n_clusters']} {row['clustered_by']}s are fewer than 5"
        return Finding(row["comparison_no"], row["metric"], None, says)
    sign = 1 if is_lower_better else -1
    least, most = sorted((sign * row["diff_lo"], sign * row["diff_hi"]))
    is_worse = most >= one.delta if one.is_margin else least > one.delta
    rule = "must be" if one.is_margin else "is worse if"
    where = "below" if is_lower_better is one.is_margin else "above"
    says = f"{head}; b - a {row['diff']:+.4g}, 95 % {row['diff_lo']:+.4g} to {row['diff_hi']:+.4g}"
    return Finding(row["comparison_no"], row["metric"], is_worse, f"{says}, {rule} {where} {sign * one.delta:+g}")
