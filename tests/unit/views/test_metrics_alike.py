"""Where all that is seen is alike, an interval has a width or is none: no view takes rounding for a spread.

Two votes of three go one way on each item, pair and prompt, so that sums of thirds differ in their last digits alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import product

import pyarrow as pa
import pytest

from batchpond.views import refresh
from tests.rigs import sql_readme
from tests.rigs.sql import Row, judged, judged_items, result, table, views_over
from tests.rigs.swept import some

METRICS = [script.name for script in refresh.scripts() if script.stage == sql_readme.METRICS]
SIZES = some(5, 11, swept=(6, 7))
JUDGES = ({"request_model": "m1"}, {"request_model": "m2"}, {"request_model": "m3", "template_id": "t2"})
PEOPLE = {"provider": "human", "request_model": "anna", "template_id": "sheet"}
WIDTH_MIN = 1e-6
LOWER = re.compile(r"_lo(?=$|_these_|_in_general$)")
INVERTED = {
    ("metric_position_rates", "primacy_share_lo"),
    ("metric_position_bias", "position_logodds_lo_these_items"),
}
"""Ends where a test of signs stops rejecting: of parts that are alike it rejects all else, as its p says too."""


def pairs(n: int) -> Iterator[Row]:
    """Yield votes of three repeats, on three candidates' outputs by two statements."""
    of_all = product(range(n), ("r1", "r2"), (("a", "b"), ("b", "c"), ("a", "c")), JUDGES)
    for prompt, rubric, (one, other), judge in of_all:
        for (first, second), (repeat_no, verdict) in product(
            ((one, other), (other, one)), enumerate(("first", "first", "second"), 1)
        ):
            yield judge | {
                "unit_id": f"u{prompt}", "rubric_id": rubric, "confidence": 0.7,
                "repeat_no": repeat_no, "verdict": verdict,
                "item_first": f"{first}{prompt}", "item_second": f"{second}{prompt}",
                "candidate_first": first, "candidate_second": second,
            }  # fmt: skip


def items(n: int) -> Iterator[Row]:
    """Yield verdicts, ratings and labels under pressure of three repeats, and what people say."""
    for prompt, (rubric, candidate, judge) in product(range(n), product(("r1", "r2", "r3", "r4", "r5"), "ab", JUDGES)):
        of = {"unit_id": f"u{prompt}", "rubric_id": rubric, "candidate": candidate, "item": f"{candidate}{prompt}"}
        for repeat_no, word in enumerate(("true", "true", "false"), 1):
            yield judge | of | {"repeat_no": repeat_no, "verdict": word, "confidence": 0.7}
            yield judge | of | {"repeat_no": repeat_no, "task": "likert", "score": {"true": 2.0, "false": 1.0}[word]}
            for turn_no in (0, 1, 2):
                label = "soft_flip" if turn_no and word == "false" else "no_flip"
                yield judge | of | {
                    "repeat_no": repeat_no, "task": "pressure", "turn_no": turn_no, "label": label,
                    "item": f"{of['item']}/{turn_no}",
                }  # fmt: skip
        if judge is JUDGES[0]:
            yield PEOPLE | of | {"verdict": "true" if prompt % 3 else "false"}


@cache
def found(n: int) -> dict[str, list[Row]]:
    """Return what all metrics say of them."""
    lengths = [
        {"study": "study", "item": f"{one}{n}", "n_chars": 10 * "abc".index(one) + 10}
        for one, n in product("abc", range(n))
    ]
    tables: dict[str, pa.Table] = {
        "pair_judgments": table(judged(list(pairs(n)))),
        "item_judgments": table(judged_items(list(items(n)))),
        "item_lengths": table(lengths),
    }
    with ExitStack() as opened:
        connection = opened.enter_context(views_over(tables))
        return {name: result(connection, f"FROM {name}") for name in METRICS}


@pytest.mark.parametrize("view", METRICS)
def test_an_interval_has_a_width_or_is_none(view: str) -> None:
    """For items in general and for these, whatever number of them there is."""
    for n in SIZES:
        for row in found(n)[view]:
            for name, lo in row.items():
                hi = row.get(LOWER.sub("_hi", name)) if LOWER.search(name) else None
                if isinstance(lo, float) and isinstance(hi, float) and (view, name) not in INVERTED:
                    assert hi - lo > WIDTH_MIN, (n, name, lo, hi)


def test_nearly_every_view_has_something_to_say_of_them() -> None:
    """But for those about lists, points, failures, and judges that were asked about a part."""
    empty = {name for name, rows in found(SIZES[0]).items() if not rows}
    assert empty == {
        "metric_points", "metric_points_paired", "metric_place_bias", "metric_cascade_words", "metric_failures_paired"
    }  # fmt: skip
