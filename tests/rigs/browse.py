"""A lake to browse: judgments that came in every way, with prompts, texts and raw lines; beside it another study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchpond.lake.schemas import ITEMS, REQUESTS
from tests.rigs.lakes import LakeBuilder

STUDY = "planned"
OTHER_STUDY = "imported-beside"
ITEM_IDS = ("alpha", "beta", "gamma", "delta")
MODELS = ("m1", "m2")
FATES: tuple[dict[str, Any], ...] = (
    {"outcome": "decided", "verdict": "first", "text": "The first is clearer.", "explanation": "It is short."},
    {"outcome": "decided", "verdict": "second", "text": "Second, by a hair: a NEEDLE in it.", "thoughts": "Hm, hm."},
    {"outcome": "tie", "verdict": "tie", "text": "They are equal."},
    {"outcome": "refused", "text": "", "refusal": "I would rather not."},
    {"outcome": "unparsed", "text": "Both are fine."},
    {"outcome": "error", "status": "errored", "error_class": "transient", "error_code": "500", "error_message": "Boom"},
)


def build(path: Path) -> Path:
    """Write it: all ordered pairs of four items by two models; the last four slots are still out or not sent."""
    lake = LakeBuilder(path)
    lake.rows(
        ITEMS,
        [{"item_hash": f"h{name}", "item_id": name, "text": f"The text of {name}.",
          "metadata": '{"kind":"an open question"}' if name == "delta" else None}
         for name in ITEM_IDS],
    )  # fmt: skip
    pairs = [(first, second) for first in ITEM_IDS for second in ITEM_IDS if first != second]
    planned = [
        {"slot": slot, "request_id": f"request{slot:013d}", "request_model": model, "template_id": f"t{slot % 2}",
         "item_first": first, "item_second": second, "item_first_hash": f"h{first}", "item_second_hash": f"h{second}",
         "is_lo_first": first < second, "direction": "forward" if first < second else "reverse"}
        for slot, (model, (first, second)) in enumerate((model, pair) for model in MODELS for pair in pairs)
    ]  # fmt: skip
    lake.plan(planned, study=STUDY)
    names = [row["request_id"] for row in planned]
    lake.rows(REQUESTS, [
        {"request_id": name, "provider": "openai", "endpoint": "/v1", "request_model": "m", "repeat_no": 1,
         "body": '{"model":"m","messages":[{"role":"user","content":"Compare <b>them</b>."}]}', "size_bytes": 60}
        for name in names
    ], "p_provider=openai/")  # fmt: skip
    lake.sent("A1", "S1", names[:18], study=STUDY)
    lines = [
        {"request_id": name, "cost_usd": 0.001 * (number % 5), "output_tokens": 7 + number % 3} | FATES[number % 6]
        for number, name in enumerate(names[:18])
    ]
    lake.lines("A1", lines)
    lake.ended("A1")
    lake.sent("A2", "S2", names[18:20], study=STUDY)
    lake.imported(
        [{"study": "another", "item_first": "x", "item_second": "y", "outcome": "decided", "verdict": "first"}]
    )
    lake.build()
    return path
