"""The guide `lake`, made from schemas, kinds of events and `lake_page.toml`: `python -m tests.rigs.lake_page`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from batchpond.lake import records
from batchpond.lake.schemas import FORMAT_VERSION, ROW_GROUP_NARROW, ROW_GROUP_TEXT, TABLES, Table
from batchpond.model import BatchState, ResponseStatus, Verdict
from tests.rigs.pages import GUIDES, ROOT
from tests.rigs.sql_readme import ENUMS, table

TARGET: Final = GUIDES / "lake.md"
SAID: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_TYPES: Final = {"float64": "double", "timestamp": "timestamp, UTC"}
_WORDS: Final[Mapping[str, type[StrEnum]]] = {
    **{name: ENUMS[name] for name in ("outcome", "match", "error_class", "finish")},
    **{name: ENUMS[name] for name in ("origin", "mode", "shard_kind", "file_role", "direction", "purpose")},
    "state": BatchState,
    "status": ResponseStatus,
}
_OF_EVENTS: Final = {field.encode_name for field in msgspec.structs.fields(records.Event)}

_HEAD: Final = f"""\
# The lake format

A contract: each table, column and file, in format {FORMAT_VERSION}.

This page is made from the schemas by `python -m tests.rigs.lake_page`; do not edit it. It says what
may be relied on by who reads a lake without batchpond, or writes a tool for it. What stands in the
folder besides, and the views, are no part of it.

## What may be relied on

- `batchpond.json` says the format: `{{"format": {FORMAT_VERSION}, "lake_id": "..."}}`. Refuse a number that you do
  not know.
- A table is a folder of Parquet files, and its rows are those of `TABLE/**/*.parquet`, each row once.
  Folders and files whose names begin with `_` or `.` are no tables.
- Every file of a table has the same columns in the same order, with the types below. Any may be NULL
  but those that name the row. Ids and JSON are strings, times are UTC with microseconds, and nothing
  is nested.
- A file is whole when it appears and never changes after: a lake only grows. Three things take files
  away: events that were merged into a larger file, *derived* tables, which are made again of `raw` at
  will, and `batchpond forget`, which writes files anew without what was to be forgotten.
- Names of files say what is in them, but only this page's columns are the contract. Folders of the
  form `p_KEY=VALUE` are for whoever wants to read fewer files; no column is in a folder's name alone.
- A file's own metadata have `lake_format`. Compression is zstd; a row group has {ROW_GROUP_NARROW:,} rows,
  {ROW_GROUP_TEXT:,} where texts are, and one where pictures are.
- `_manifests/` has a line of JSON with `name`, `size_bytes` and `sha256` for every file that must be
  there.
- Ids that batchpond makes are digests of 26 letters and digits, lower case, of the content alone: the
  same request has the same id in every lake. Only attempts, and what happens to them, are a lake's
  own.
- Columns are only ever added, and the number is raised with them. Within a number nothing changes but
  words: where a column has a list of [words](#words), or an event its kinds, a later batchpond may
  have further ones.

Try it, without batchpond:

```sh
batchpond init --example pairwise
batchpond run --interval 1
```

```python
import duckdb

lake = duckdb.connect()
((n_rows, n_lines),) = lake.execute(
    "select count(*), count(distinct (batch_id, file_id, line_number)) from 'lake/raw/**/*.parquet'"
).fetchall()
assert n_rows == n_lines == 132
lake.sql(\"\"\"
    select plan.item_first, plan.item_second, judgments.verdict, judgments.outcome
    from 'lake/plan/**/*.parquet' as plan
    join 'lake/judgments/**/*.parquet' as judgments using (request_id)
\"\"\").show()
```
"""


def _sections() -> Iterator[str]:
    yield _HEAD
    yield "## Tables\n"
    rows = [(f"[{one.name}](#{one.name})", one.grain, one.question) for one in TABLES.values()]
    yield table(("table", "a row is named by", "question"), rows)
    yield from map(_table, TABLES.values())
    yield "## Kinds of events\n"
    yield "Each kind has `event_id`, `kind`, `ord` and `occurred_at`, and of the other columns those named here.\n"
    yield table(("kind", "says", "columns"), [_kind(*one) for one in records.KINDS.items()])
    yield "## Words\n"
    words = [(f"`{name}`", ", ".join(kind), _first_line(kind)) for name, kind in sorted(_WORDS.items())]
    verdicts = ("`verdict`", f"{', '.join(Verdict)}, true, false", "What a judge said of two items, or of one.")
    yield table(("column", "words", "what it says"), [*words, verdicts])
    yield "## Versions\n"
    history = (ROOT / "src/batchpond/lake/FORMATS.md").read_text("utf-8").split("\n\n")
    yield "\n\n".join(part for part in history[1:] if not part.startswith("Whoever adds")) + "\n"


def _table(one: Table) -> str:
    marks = " *Derived.*" if one.is_derived else ""
    head = (
        f"### {one.name}\n\n{one.question}{marks} A row is named by {one.grain}.\n\nFiles: {SAID['files'][one.name]}.\n"
    )
    return f"{head}\n" + table(("column", "type", "meaning"), [_column(one, *column) for column in one.columns])


def _column(one: Table, name: str, kind: str) -> tuple[str, str, str]:
    return f"`{name}`", _TYPES.get(kind, kind), meaning(one.name, name)


def meaning(table_name: str, column: str) -> str:
    """Return what a column of a table says, and where its words are; raises KeyError where nobody has said it."""
    own = SAID["tables"].get(table_name, {}).get(column)
    said: str = SAID["columns"][column] if own is None else own
    return f"{said}: [words](#words)" if column in _WORDS else said


def _kind(name: str, record: type[records.Event]) -> tuple[str, str, str]:
    fields = [field for field in msgspec.structs.fields(record) if field.encode_name not in _OF_EVENTS]
    own = [one.encode_name + (f" (its {one.name})" if one.name != one.encode_name else "") for one in fields]
    return f"`{name}`", _first_line(record), ", ".join(own)


def _first_line(kind: type[StrEnum] | type[records.Event]) -> str:
    return (kind.__doc__ or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")


@cache
def render() -> str:
    """Return the page."""
    return "\n".join(_sections())


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
