"""Reading the lake's views: one by its name, as a stream or as a few plain rows, or by a user's own SELECT.

A stream of Arrow batches is for what no size of study may fill the memory with. Around a user's SELECT stand three
fences, each enough for what it guards, so that nothing else is in reach. The statement must be one SELECT, as DuckDB's
parser sees it. Its syntax tree must hold only query nodes, names of views, and table functions that make rows from
nothing: this is what stops a COPY or INSERT inside a WITH. And the engine runs read-only, without external access
except to the listed Parquet files, with its settings locked, so that a hole in the first two still reaches no other
file and no network.
"""

from __future__ import annotations

import base64
import io
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import duckdb
import orjson

from batchpond.errors import BatchpondError, LakeError, UsageError, needed
from batchpond.lake.tables import literal, query, quoted, reading
from batchpond.text import did_you_mean
from batchpond.views import database, refresh
from batchpond.views.database import Connect, is_view
from batchpond.views.draft import MEMORY_LIMIT, narrow

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")

Values = Mapping[str, object] | None
Reader = Callable[[duckdb.DuckDBPyConnection, str, Values], _T]

BATCH_ROWS = 10_000
ROWS_MAX = 100_000
INTERRUPT_EVERY_S: Final = 0.1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What DuckDB alone makes no value of without further packages, or of another type than Arrow does.
_TIME: Final = "TIMESTAMP WITH TIME ZONE"
_PLAIN: Final = {_TIME: "epoch_us({column})", "HUGEINT": "CAST({column} AS DECIMAL(38, 0))"}
# What DuckDB alone makes the same values of as Arrow does.
_NATIVE: Final = frozenset({"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR"})


@dataclass(frozen=True, slots=True)
class Rows:
    """A query's rows as they come, in batches of plain Python values."""

    names: list[str]
    batches: Iterator[list[tuple[Any, ...]]]


def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Values = None, batch_rows: int = BATCH_ROWS
) -> Rows | pa.RecordBatchReader:
    """Run a query and return its rows: where it can without Arrow, which takes as long to load as most queries run."""
    ran = connection.execute(sql, values)
    if {str(column[1]) for column in ran.description} <= _NATIVE:
        return Rows([column[0] for column in ran.description], iter(lambda: ran.fetchmany(batch_rows), []))
    # From DuckDB 2.0 on a result that nobody ended keeps its connection; earlier ones drop it with the next query.
    getattr(connection, "abort", lambda: None)()
    return arrow(connection, sql, values, batch_rows)


def arrow(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Values = None, batch_rows: int = BATCH_ROWS
) -> pa.RecordBatchReader:
    """Run a query and return its rows as Arrow makes them."""
    return connection.sql(sql, params=values).to_arrow_reader(batch_rows)


_STUDIES_SHOWN_MAX = 20
_STUDIES = "SELECT study FROM studies_current UNION SELECT study FROM imported_judgments ORDER BY study"


def studies(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the studies that the lake planned or imported, by their names."""
    return [str(name) for (name,) in connection.execute(_STUDIES).fetchall()]


def check_study(connection: duckdb.DuckDBPyConnection, study: str | None) -> None:
    """Raise UsageError for a study, where one is named, that is none of the lake's, with the nearest that there is."""
    if study is not None and study not in (known := studies(connection)):
        listed = f"studies: {', '.join(known[:_STUDIES_SHOWN_MAX]) or 'none'}"
        hint = f"a study is named as its file calls it: {listed}" if study.endswith(".toml") else listed
        raise UsageError(f"the lake holds no study {study!r}", hint=did_you_mean(study, known, hint))


@contextmanager
def asked(
    lake_path: Path,
    ask: Callable[[duckdb.DuckDBPyConnection], _T],
    *,
    memory_limit: str = MEMORY_LIMIT,
    connect: Connect = database.connect,
) -> Iterator[_T]:
    """Open the lens and what `ask` asks of it; again where a file was merged, or a table that was aside has come."""
    for is_last in (False, False, True):
        with closing(connect(lake_path, memory_limit=memory_limit)) as connection:
            try:
                answer = ask(connection)
            except (duckdb.IOException, duckdb.CatalogException) as error:
                if is_last or not database.has_come(lake_path, error):
                    raise
                continue
            yield answer
            return


@contextmanager
def stream(
    lake_path: Path,
    view: str,
    read: Reader[_T],
    *,
    columns: Sequence[str] | str | None = None,
    study: str | None = None,
    order: Sequence[str] = (),
    limit: int | None = None,
    connect: Connect = database.connect,
) -> Iterator[_T]:
    """Open a view's rows, of one study or of all, as `arrow` or `answer`; LakeError when a file cannot be read.

    `columns` are names, or the SQL of a SELECT's list.
    """
    sql = _select(view, columns, study, "", order, limit)
    near = _first_places(study, limit) if (view, *order) == _RESULTS and connect is database.connect else ""

    def ask(lens: duckdb.DuckDBPyConnection) -> _T:
        if near:
            narrow(lens, sql, near, _values(study) or {})
        return read(lens, sql, _values(study))

    with _opened(lake_path, view, study, ask, connect) as found:
        yield found


_RESULTS: Final = ("results", "study", "slot")


def carried() -> str:
    """Return the SQL of the columns of `results` that a file of them has, for another lake."""
    return query(__package__, "carried")


_PLACES_MAX: Final = 10_000


def _first_places(study: str | None, limit: int | None) -> str:
    """Return the condition that the first results of a study, or of all, fulfil in the plan; "" of many."""
    if limit is None or limit > _PLACES_MAX:
        return ""
    of = "" if study is None else " WHERE study = $study"
    places = f"FROM (SELECT study, slot FROM plan_current{of} ORDER BY study, slot LIMIT {limit:d})"
    return f"slot IN (SELECT slot {places}) AND study IN (SELECT study {places})"


@contextmanager
def _opened(
    lake_path: Path,
    view: str,
    study: str | None,
    ask: Callable[[duckdb.DuckDBPyConnection], _T],
    connect: Connect = database.connect,
) -> Iterator[_T]:
    def checked(connection: duckdb.DuckDBPyConnection) -> _T:
        check_study(connection, study)
        return ask(connection)

    with reading(f"view {view}"), asked(lake_path, checked, connect=connect) as found:
        yield found


def smaller(content: bytes, max_px: int, form: str = "") -> bytes:
    """Return a picture upright and with a longer side of so many pixels, a GIF as a PNG unless in another `form`.

    Raises UsageError without Pillow, OSError or ValueError for what Pillow cannot read.
    """
    with needed("media_max_px", "images"):
        from PIL import Image, ImageOps
    made = io.BytesIO()
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(io.BytesIO(content)) as found,
        ):
            form = form or (found.format if found.format in {"JPEG", "WEBP"} else "PNG")
            picture: Image.Image = found
            if found.mode == "P":  # colours by number have nothing between them
                picture = found.convert("RGBA" if "transparency" in found.info else "RGB")
            picture.thumbnail((max_px, max_px), Image.Resampling.LANCZOS)
            colours = {"icc_profile": found.info.get("icc_profile")}  # what its numbers mean, which JPEG would drop
            of_form = colours if form == "PNG" else {**colours, "quality": 90}
            ImageOps.exif_transpose(picture).save(made, form, **of_form)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    return made.getvalue()


def fitted(kind: str, content: bytes, px: int, whole: int) -> tuple[str, bytes]:
    """Return a picture's kind and bytes; of more than `whole` bytes made smaller, to `px` pixels, where Pillow can."""
    if len(content) > whole:
        with suppress(OSError, ValueError, UsageError):  # without Pillow it stays as it is
            return "image/webp", smaller(content, px, "WEBP")
    return kind, content


def media(items: str) -> str:
    """Return the SQL of what is `shown` with items, by item_hash; `items` names rows with item_hash and metadata."""
    return query(__package__, "media", items=items)


Shown = Sequence[Mapping[str, Any]] | None  # what `media` says of one item


def drawn(lens: duckdb.DuckDBPyConnection, shown: Iterable[Shown], px: int, whole: int, most: int) -> dict[str, str]:
    """Return pictures among what is shown as `data:` addresses, by digest, `fitted`; none of more than `most` bytes."""
    names = {one["sha256"] for some in shown for one in some or () if one["is_picture"]}
    ran = lens.execute("SELECT sha256, media_type, content FROM blobs WHERE list_contains($1, sha256)", [sorted(names)])
    found = {}
    for name, kind, content in iter(ran.fetchone, None):
        form, made = fitted(kind, content, px, whole)
        if len(made) <= most:
            found[name] = f"data:{form};base64,{base64.b64encode(made).decode()}"
    return found


def beside(text: str, shown: Shown, pictures: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return an item's text, with a line for what is shown with it but none of `pictures`; those that are, by name."""
    lacking = (f"[not shown here: {one['what']}]" for one in shown or () if one["sha256"] not in pictures)
    there = (one for one in shown or () if one["sha256"] in pictures)
    return "\n".join([text, *lacking]), {f"{one['name']}: {one['what']}": pictures[one["sha256"]] for one in there}


@dataclass(frozen=True, slots=True)
class Ask:
    """Which rows of a view are wanted, in which order; `where` is a condition of our own, never a user's."""

    view: str
    order: Sequence[str]
    where: str = ""


def rows(lake_path: Path, view: str, *, order: Sequence[str], study: str | None = None) -> list[dict[str, Any]]:
    """Return a small view's rows in order; raises as `rows_of_all` does."""
    return rows_of_all(lake_path, [Ask(view, order)], study)[0]


def rows_of_all(lake_path: Path, asks: Sequence[Ask], study: str | None = None) -> list[list[dict[str, Any]]]:
    """Return small views' rows, all of one moment; raises UsageError when one has more than a person can read.

    Without Arrow, which takes longer to load than such views to read.
    """

    def all_rows(lens: duckdb.DuckDBPyConnection) -> list[list[dict[str, Any]]]:
        selects = (_select(ask.view, None, study, ask.where, ask.order, ROWS_MAX + 1) for ask in asks)
        return [plain_rows(lens, select, _values(study)) for select in selects]

    with _opened(lake_path, ", ".join(ask.view for ask in asks), study, all_rows) as found:
        pass
    for ask, its_rows in zip(asks, found, strict=True):
        if len(its_rows) > ROWS_MAX:
            raise UsageError(
                f"view {ask.view} has more than {ROWS_MAX:,} rows", hint=f"`batchpond query {ask.view}` prints them"
            )
    return found


def _select(
    view: str,
    columns: Sequence[str] | str | None,
    study: str | None,
    where: str,
    order: Sequence[str],
    limit: int | None,
) -> str:
    if not is_view(view):
        raise UsageError(f"no view {view!r}", hint="`batchpond views` lists them")
    wanted = columns if isinstance(columns, str) else ", ".join(map(quoted, columns or ())) or "*"
    sql = f"SELECT {wanted} FROM {quoted(view)}"
    conditions = [condition for condition in ("study = $study" if study is not None else "", where) if condition]
    if conditions:
        sql += " WHERE " + " AND ".join(f"({condition})" for condition in conditions)
    if order:
        sql += " ORDER BY " + ", ".join(map(quoted, order))
    if limit is not None:
        sql += f" LIMIT {limit:d}"
    return sql


def _values(study: str | None) -> dict[str, str] | None:
    return None if study is None else {"study": study}


def plain_rows(connection: duckdb.DuckDBPyConnection, sql: str, values: Values = None) -> list[dict[str, Any]]:
    """Return all rows of a query as plain Python values, by the names of its columns."""
    shown = connection.sql(sql, params=values)
    names = shown.columns
    kinds = [str(kind) for kind in shown.types]
    columns = ", ".join(
        f"{_PLAIN.get(kind, '{column}').format(column=quoted(name))} AS {quoted(name)}"
        for name, kind in zip(names, kinds, strict=True)
    )
    found = connection.execute(f"SELECT {columns} FROM ({sql})", values).fetchall()
    times = [at for at, kind in enumerate(kinds) if kind == _TIME]
    return [dict(zip(names, _with_times(row, times), strict=True)) for row in found]


def _with_times(row: tuple[Any, ...], times: Sequence[int]) -> list[Any]:
    values = list(row)
    for at in times:
        if values[at] is not None:
            values[at] = _EPOCH + timedelta(microseconds=values[at])
    return values


_Batch = TypeVar("_Batch", bound=Sized)

SQL_CHARACTERS_MAX: Final = 300_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a user's query may take: its time, that of the caller for its rows included, its memory, and its rows."""

    timeout_s: float = 60.0
    memory: str = "1GB"
    max_rows: int = 1_000_000


_USUAL: Final = Limits()

_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
_REFUSED_FUNCTIONS = frozenset(
    {"getenv", "current_setting", "getvariable", "write_log", "sleep_ms", "nextval", "current_query"}
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_REFUSED_TABLES = re.compile(r"(?:duckdb|pragma|pg|sqlite)_\w*", re.IGNORECASE)

_HINT_SELECT = "`query` runs one SELECT over the views; `batchpond views` lists them"
_HINT_VIEWS = "`batchpond views` lists what can be queried, `DESCRIBE name` its columns"


def run_query(lake_path: Path, sql: str, limits: Limits = _USUAL) -> pa.Table:
    """Run one SELECT over the lake's views and return its rows.

    Raises UsageError for anything but one SELECT over views, for what DuckDB cannot make of it, and when it takes more
    than its limits; LakeError when a file of the lake cannot be read.
    """
    import pyarrow as pa

    with _asked(lake_path, sql, limits, None, arrow) as reader:
        return pa.Table.from_batches(_batches(reader, limits), schema=reader.schema)


def stream_query(
    lake_path: Path, sql: str, limits: Limits = _USUAL, *, values: Values = None, near: str = "", is_ours: bool = False
) -> Iterator[pa.RecordBatch]:
    """Run one SELECT as `run_query` does and yield its rows as they come, so that memory holds few of them.

    `values` are bound to the `$name`s in it and in `near`, a condition of our own for `narrow`; `is_ours` says that
    nothing in it is a user's, who is kept from all but the views. Raises as `run_query` does, also between two batches.
    """
    connect = database.connect_at_hand if is_ours else database.connect
    with _asked(lake_path, sql, limits, values, arrow, connect, near=near, is_ours=is_ours) as reader:
        yield from _batches(reader, limits)


@contextmanager
def shown_query(
    lake_path: Path, sql: str, limits: Limits = _USUAL, *, is_arrow: bool, connect: Connect = database.connect
) -> Iterator[Rows | pa.RecordBatchReader]:
    """Run one SELECT as `run_query` does and open its rows, as Arrow or as what is quicker; raises as that does."""
    with _asked(lake_path, sql, limits, None, arrow if is_arrow else answer, connect) as found:
        if isinstance(found, Rows):
            yield Rows(found.names, _batches(found.batches, limits))
        else:
            import pyarrow as pa

            yield pa.RecordBatchReader.from_batches(found.schema, _batches(found, limits))


@contextmanager
def _asked(
    lake_path: Path,
    sql: str,
    limits: Limits,
    values: Values,
    read: Reader[_T],
    connect: Connect = database.connect,
    *,
    near: str = "",
    is_ours: bool = False,
) -> Iterator[_T]:
    if len(sql) > SQL_CHARACTERS_MAX:
        raise UsageError(f"the query is longer than {SQL_CHARACTERS_MAX:,} characters", hint=_HINT_SELECT)

    def ask(connection: duckdb.DuckDBPyConnection) -> tuple[duckdb.DuckDBPyConnection, _T]:
        with _deadline(connection, limits.timeout_s):
            if near:
                narrow(connection, sql, near, values or {})
            if not is_ours:
                _lock_down(connection)
                _check(connection, sql)
            return connection, read(connection, sql, values)

    with (
        _translated(lake_path),
        asked(lake_path, ask, memory_limit=limits.memory, connect=connect) as (connection, found),
        _deadline(connection, limits.timeout_s),
    ):
        yield found


def _lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    read_from = "SELECT getvariable('lake') || '/' || path FROM lens_files WHERE problem IS NULL"
    paths = [path for (path,) in connection.execute(read_from).fetchall()]
    connection.execute(f"SET allowed_paths = [{', '.join(map(literal, paths))}]")
    connection.execute("SET enable_external_access = FALSE")
    connection.execute("SET lock_configuration = TRUE")


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        _refuse(f"{len(statements)} statements" if len(statements) != 1 else "not a SELECT")
    tree = syntax_tree(connection, sql)
    if tree is None:
        _refuse("it is nested too deeply")
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        _refuse(str(tree.get("error_message") or "not a SELECT"))
    for node in nodes(tree["statements"]):
        _check_node(node)


def syntax_tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any] | None:
    """Return what DuckDB's parser makes of a query, or its error; None where that is nested too deeply to be read."""
    text = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0]
    with suppress(orjson.JSONDecodeError):
        return dict(orjson.loads(text))
    return None


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the syntax tree, without recursion: its depth is the user's."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _check_node(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _QUERY_NODES:
        _refuse(f"{kind.removesuffix('_QUERY_NODE').removesuffix('_NODE')} inside a query")
    if "info_type" in node:
        _refuse(f"{node['info_type']} inside a query")
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"]).lower()
        if name not in _TABLE_FUNCTIONS and name not in refresh.macros():
            _refuse(f"the table function {name}")
    if kind == "BASE_TABLE":
        _check_table(node)
    if node.get("class") == "FUNCTION" and str(node.get("function_name")).lower() in _REFUSED_FUNCTIONS:
        _refuse(f"the function {node['function_name']}")


def _check_table(node: dict[str, Any]) -> None:
    name = str(node.get("table_name"))
    if str(node.get("schema_name")).lower() == "information_schema":
        return
    if not _IDENTIFIER.fullmatch(name) or _REFUSED_TABLES.fullmatch(name):
        _refuse(f"the table {name!r}")


def _refuse(what: str) -> NoReturn:
    raise UsageError(f"this query is not allowed: {what}", hint=_HINT_SELECT)


def _batches(reader: Iterable[_Batch], limits: Limits) -> Iterator[_Batch]:
    ends_at = time.monotonic() + limits.timeout_s
    n_rows = 0
    for batch in reader:
        n_rows += len(batch)
        if n_rows > limits.max_rows:
            raise UsageError(
                f"the query returns more than {limits.max_rows:,} rows", hint="add LIMIT, or use `batchpond export`"
            )
        if time.monotonic() > ends_at:
            raise duckdb.InterruptException("timeout")
        yield batch


@contextmanager
def interrupted(connection: duckdb.DuckDBPyConnection, within_s: float) -> Iterator[threading.Event]:
    """Stop what a connection runs once its time is over, which is what is yielded."""
    is_over, is_done = threading.Event(), threading.Event()

    def stop(wait_s: float = within_s) -> None:
        while not is_done.wait(wait_s):
            is_over.set()
            connection.interrupt()  # again and again: where no query runs just then, it is lost
            wait_s = INTERRUPT_EVERY_S

    timer = threading.Thread(target=stop, daemon=True)
    timer.start()
    try:
        yield is_over
    finally:
        is_done.set()
        timer.join()


@contextmanager
def _deadline(connection: duckdb.DuckDBPyConnection, timeout_s: float) -> Iterator[None]:
    with interrupted(connection, timeout_s) as is_over:
        try:
            yield
        except (duckdb.Error, OSError) as error:
            # What an interrupted stream raises depends on who was reading; that time is up does not.
            if not is_over.is_set() and not isinstance(error, duckdb.InterruptException):
                raise
            raise UsageError(
                f"the query ran longer than {timeout_s:g} s and was stopped",
                hint="narrow it with WHERE, or allow more with --timeout",
            ) from None


@contextmanager
def _translated(lake_path: Path) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, OSError) as error:  # Arrow's readers raise OSError with DuckDB's text
        message, _, more = str(error).partition("\n")
        raise _translation(message, more, lake_path) from None


_BROKEN: Final = frozenset({"IO Error", "FATAL Error"})


def _translation(message: str, more: str, lake_path: Path) -> BatchpondError:
    kind = message.split(":", 1)[0]
    is_of_lake = f"{os.path.abspath(lake_path)}/" in message  # one that is gone is looked for, which is not allowed
    if kind == "Permission Error" and not is_of_lake:
        return UsageError(f"this query is not allowed: {message}", hint=_HINT_SELECT)
    if is_of_lake or kind in _BROKEN or not kind.endswith(" Error"):  # what its Parquet reader says has no kind
        return LakeError(
            f"a file of the lake cannot be read: {message}", hint="`batchpond doctor` names what is damaged"
        )
    if kind == "Out of Memory Error":
        hint = "narrow it with WHERE, or let an engine make the large half of it: `--engine`, `batchpond guide spark`"
        return UsageError(f"the query needs too much memory: {message}", hint=hint)
    if kind in {"Catalog Error", "Binder Error"}:
        wanted = re.search(r'column (?:named )?"([^"]+)"|table "([^"]+)"|with name (\S+) does', message)
        near = re.findall(r'"([^"]+)"', more.partition("\n")[0])  # DuckDB's own candidates, of which many are far off
        name = next(filter(None, wanted.groups()), "") if wanted else ""
        return UsageError(message, hint=did_you_mean(name, near, _HINT_VIEWS))
    return UsageError(message or "the query could not be run", hint=_HINT_SELECT)
