"""The lake's tables: columns, types, and how each is laid out on disk, as `schemas.json` has them.

Every file of a table has exactly its schema; `publish` refuses any other. Timestamps are UTC with microseconds, ids and
JSON texts are strings, and no column is a JSON or VARIANT type, so that any engine that reads Parquet reads the lake.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION: Final = 7
ROW_GROUP_TEXT: Final = 16_384
ROW_GROUP_NARROW: Final = 122_880


_SQL_TYPES: Final = {
    "string": "VARCHAR", "int64": "BIGINT", "int32": "INTEGER", "float64": "DOUBLE", "bool": "BOOLEAN",
    "binary": "BLOB", "timestamp": "TIMESTAMPTZ",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table's name, columns with their types, what a row of it is and answers, and whether it carries long text.

    Files that were written before a column of `later` was added lack it; its values read as NULL there. `group_rows` is
    how many rows one Parquet row group holds, where it is not the usual number.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    grain: str
    question: str
    has_text: bool = False
    is_derived: bool = False
    later: frozenset[str] = frozenset()
    group_rows: int | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as Arrow has them; an idle pass needs none of them, and Arrow takes half as long to load."""
        import pyarrow as pa

        times = {"timestamp": pa.timestamp("us", tz="UTC")}
        return pa.schema([(name, times.get(kind) or pa.type_for_alias(kind)) for name, kind in self.columns])

    def select(self, what: str, *, is_empty: bool = False) -> str:
        """Return a SELECT in SQL of its columns, each with its type; of NULLs where nothing is there to read."""
        named = [("NULL" if is_empty else f'"{name}"', name, _SQL_TYPES[kind]) for name, kind in self.columns]
        columns = ",\n".join(f'  CAST({value} AS {kind}) AS "{name}"' for value, name, kind in named)
        return f"SELECT\n{columns}{what}"

    def completed(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns of the table, those that their file lacks as NULL."""
        import pyarrow as pa

        if rows.schema.equals(self.schema):
            return rows.replace_schema_metadata(None)
        columns = [
            rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    @property
    def row_group_rows(self) -> int:
        """Return how many rows one Parquet row group holds."""
        return self.group_rows or (ROW_GROUP_TEXT if self.has_text else ROW_GROUP_NARROW)


def _table(name: str, columns: dict[str, str], later: tuple[str, ...] = (), **more: Any) -> Table:
    return Table(name, tuple(columns.items()), later=frozenset(later), **more)


_KNOWN: Final = orjson.loads(Path(__file__).with_name("schemas.json").read_bytes())
TABLES: Final = {name: _table(name, **about) for name, about in _KNOWN.items()}
STUDIES: Final = TABLES["studies"]
ITEMS: Final = TABLES["items"]
BLOBS: Final = TABLES["blobs"]
RUBRICS: Final = TABLES["rubrics"]
TEMPLATES: Final = TABLES["templates"]
REQUESTS: Final = TABLES["requests"]
PLAN: Final = TABLES["plan"]
SHARD_REQUESTS: Final = TABLES["shard_requests"]
"""Its custom_id is NULL but in an adopted batch, whose ids another tool made."""
EVENTS: Final = TABLES["events"]
RAW: Final = TABLES["raw"]
RESPONSES: Final = TABLES["responses"]
JUDGMENTS: Final = TABLES["judgments"]
DOUBTS: Final = TABLES["doubts"]
LARGE: Final = frozenset({RAW.name, REQUESTS.name})
"""With all texts, of which no figure is made: a mirror has none of them until somebody asks for them."""
IMPORTED_JUDGMENTS: Final = TABLES["imported_judgments"]
