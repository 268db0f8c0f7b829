"""The lake's tables: columns, types, and how each is laid out on disk.

Every file of a table has exactly its schema; `publish` refuses any other. Timestamps are UTC with microseconds, ids and
JSON texts are strings, and no column is a JSON or VARIANT type, so that any engine that reads Parquet reads the lake.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 3
ROW_GROUP_TEXT: Final = 16_384
ROW_GROUP_NARROW: Final = 122_880

_TIME = "timestamp"
_S = "string"
_I = "int64"
_N = "int32"
_F = "float64"
_B = "bool"
_Y = "binary"


@dataclass(frozen=True)
class Table:
    """A table's name, columns with their types, and whether its rows carry long text.

    Files that were written before a column of `later` was added lack it; its values read as NULL there.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    has_text: bool = False
    is_derived: bool = False
    later: frozenset[str] = frozenset()

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them; an idle pass needs none of them, and Arrow takes half as long to load."""
        import pyarrow as pa

        times = {_TIME: pa.timestamp("us", tz="UTC")}
        return pa.schema([(name, times.get(kind) or pa.type_for_alias(kind)) for name, kind in self.columns])

    @property
    def row_group_rows(self) -> int:
        """Return how many rows one Parquet row group holds."""
        return ROW_GROUP_TEXT if self.has_text else ROW_GROUP_NARROW


def _table(name: str, *columns: tuple[str, str], text: bool = False, derived: bool = False, later: str = "") -> Table:
    return Table(name, columns, text, derived, frozenset(later.split()))


STUDIES = _table(
    "studies",
    ("study", _S), ("study_version", _S), ("config", _S), ("parsers", _S),
    ("n_items", _I), ("n_pairs", _I), ("n_cells", _I), ("n_plan_rows", _I), ("n_requests", _I),
)  # fmt: skip
ITEMS = _table("items", ("item_hash", _S), ("item_id", _S), ("text", _S), ("metadata", _S), text=True)
RUBRICS = _table("rubrics", ("rubric_hash", _S), ("rubric_id", _S), ("name", _S), ("description", _S))
TEMPLATES = _table("templates", ("template_hash", _S), ("template_id", _S), ("text", _S))
REQUESTS = _table(
    "requests",
    ("request_id", _S), ("provider", _S), ("endpoint", _S), ("request_model", _S), ("repeat_no", _N),
    ("body", _S), ("size_bytes", _N), ("estimated_input_tokens", _N), ("max_output_tokens", _N),
    text=True,
)  # fmt: skip
PLAN = _table(
    "plan",
    ("study", _S), ("study_version", _S), ("slot", _I), ("request_id", _S), ("parser_id", _S),
    ("task", _S), ("stage", _S), ("round_no", _N), ("mode", _S), ("cell_id", _S),
    ("template_id", _S), ("template_hash", _S), ("rubric_id", _S), ("rubric_hash", _S),
    ("provider", _S), ("endpoint", _S), ("request_model", _S), ("thinking", _S),
    ("unit_id", _S), ("pair_id", _S), ("item_first", _S), ("item_second", _S),
    ("item_first_hash", _S), ("item_second_hash", _S),
    ("candidate_first", _S), ("candidate_second", _S), ("turn_no", _N),
    ("direction", _S), ("is_lo_first", _B), ("repeat_no", _N), ("purpose", _S), ("gain", _F),
    ("tier", _N),
    later="stage candidate_first candidate_second turn_no purpose gain tier",
)  # fmt: skip
# custom_id is NULL but in an adopted batch, whose ids another tool made.
SHARD_REQUESTS = _table(
    "shard_requests",
    ("shard_id", _S), ("line_number", _N), ("request_id", _S), ("request_key", _S),
    ("requests_file", _S), ("custom_id", _S),
)  # fmt: skip
EVENTS = _table(
    "events",
    ("event_id", _S), ("kind", _S), ("ord", _I), ("occurred_at", _TIME),
    ("study", _S), ("study_version", _S), ("approval_id", _S),
    ("shard_id", _S), ("shard_kind", _S), ("attempt_id", _S), ("ordinal", _N), ("token", _S),
    ("provider", _S), ("host", _S), ("scope", _S), ("endpoint", _S), ("request_model", _S),
    ("origin", _S), ("mode", _S),
    ("batch_id", _S), ("file_id", _S), ("file_role", _S),
    ("state", _S), ("provider_status", _S),
    ("provider_created_at", _TIME), ("expires_at", _TIME),
    ("n_requests", _I), ("n_completed", _I), ("n_failed", _I),
    ("size_bytes", _I), ("sha256", _S), ("n_lines", _I),
    ("input_tokens", _I), ("cost_expected_usd", _F), ("cost_max_usd", _F),
    ("n_limit", _I), ("boot_id", _S), ("monotonic_s", _F),
    ("reason", _S), ("detail", _S), ("tier", _N),
    later="mode tier",
)  # fmt: skip
RAW = _table(
    "raw",
    ("provider", _S), ("batch_id", _S), ("attempt_id", _S), ("file_id", _S), ("file_role", _S),
    ("file_sha256", _S), ("line_number", _N), ("line", _S), ("line_bytes", _Y),
    text=True,
)  # fmt: skip
RESPONSES = _table(
    "responses",
    ("provider", _S), ("batch_id", _S), ("attempt_id", _S), ("file_id", _S), ("file_role", _S),
    ("line_number", _N), ("custom_id", _S), ("request_id", _S), ("match", _S),
    ("status", _S), ("status_code", _N), ("response_model", _S), ("finish_reason", _S), ("finish", _S),
    ("text", _S), ("thoughts", _S), ("refusal", _S),
    ("input_tokens", _I), ("output_tokens", _I), ("reasoning_tokens", _I), ("cached_tokens", _I),
    ("cache_write_tokens", _I),
    ("cost_usd", _F), ("error_class", _S), ("error_code", _S), ("error_message", _S),
    ("provider_request_id", _S), ("origin", _S),
    text=True, derived=True,
)  # fmt: skip
JUDGMENTS = _table(
    "judgments",
    ("provider", _S), ("batch_id", _S), ("attempt_id", _S), ("file_id", _S), ("line_number", _N),
    ("request_id", _S), ("parser_id", _S), ("verdict", _S), ("outcome", _S), ("label", _S), ("score", _F),
    ("confidence", _F), ("explanation", _S),
    derived=True, later="confidence explanation",
)  # fmt: skip
DOUBTS = _table(
    "doubts",
    ("provider", _S), ("batch_id", _S), ("attempt_id", _S), ("custom_id", _S), ("request_id", _S),
    ("asked_at", _TIME), ("found_at", _TIME), ("reason", _S),
)  # fmt: skip
IMPORTED_JUDGMENTS = _table(
    "imported_judgments",
    ("import_key", _S), ("study", _S), ("task", _S), ("template_id", _S), ("rubric_id", _S), ("provider", _S),
    ("request_model", _S), ("thinking", _S), ("unit_id", _S), ("item_first", _S), ("item_second", _S),
    ("candidate_first", _S), ("candidate_second", _S), ("turn_no", _N),
    ("repeat_no", _N), ("verdict", _S), ("outcome", _S), ("label", _S), ("score", _F),
    ("confidence", _F), ("explanation", _S),
    ("input_tokens", _I), ("output_tokens", _I), ("cost_usd", _F), ("source", _S), ("direction", _S), ("origin", _S),
    later="task candidate_first candidate_second turn_no label score explanation direction origin",
)  # fmt: skip

TABLES: Final = {
    table.name: table
    for table in (
        STUDIES, ITEMS, RUBRICS, TEMPLATES, REQUESTS, PLAN, SHARD_REQUESTS, EVENTS, RAW, RESPONSES,
        JUDGMENTS, DOUBTS, IMPORTED_JUDGMENTS,
    )
}  # fmt: skip
