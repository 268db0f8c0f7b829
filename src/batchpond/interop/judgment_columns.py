"""The columns of a file of judgments made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from batchpond.files import Columns, RowFile

COLUMNS: Final = Columns(
    required=("item_first", "item_second", "verdict"),
    optional=(
        "study", "template_id", "rubric_id", "provider", "model", "thinking", "unit_id", "repeat_no", "confidence",
        "input_tokens", "output_tokens", "cost_usd",
    ),
    aliases={
        "id1": "item_first", "id2": "item_second", "item_a": "item_first", "item_b": "item_second",
        "better_id": "verdict", "winner": "verdict", "outcome": "verdict", "request_model": "model", "judge": "model",
        "template": "template_id", "trait": "rubric_id", "rubric": "rubric_id", "prompt_id": "unit_id",
        "repeat": "repeat_no",
    },
)  # fmt: skip
SCHEMA: Final = COLUMNS.schema


class JudgmentFile(RowFile):
    """A CSV or Parquet file of judgments."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, COLUMNS)
