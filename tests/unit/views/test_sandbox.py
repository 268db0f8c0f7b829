"""The query sandbox: every way out that we know is shut, and ordinary SELECTs work."""

from __future__ import annotations

import http.server
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from batchpond.errors import LakeWarning, UsageError
from batchpond.views import database, read
from batchpond.views.read import Limits, run_query
from tests.rigs.lakes import LakeBuilder


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> LakeBuilder:
    """A lake with one answered request."""
    lake = LakeBuilder(tmp_path_factory.mktemp("sandbox") / "lake")
    lake.plan([{"slot": n, "request_id": f"r{n}"} for n in range(3)])
    lake.sent("A1", "S1", ["r1"])
    lake.lines("A1", [{"request_id": "r1", "text": "yes", "outcome": "decided", "verdict": "first"}])
    lake.ended("A1")
    (lake.path / "config.toml").write_text("secret = 1\n")
    lake.build()
    return lake


def test_values_are_bound_and_are_never_sql(lake: LakeBuilder) -> None:
    """A text with quotes is a text, a list is a list, and `$name` within a text stays what it says."""
    sql = "select $text as said, '$text' as kept, list_contains($names, request_id) as is_named from results order by 2"
    values = {"text": "'; drop table x --", "names": ["r1", "r'2"]}
    found = [row for batch in read.stream_query(lake.path, sql, values=values) for row in batch.to_pylist()]
    assert {row["said"] for row in found} == {"'; drop table x --"}
    assert {row["kept"] for row in found} == {"$text"}
    assert sorted(row["is_named"] for row in found) == [False, False, True]


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """A loopback web server that fails the test when anything calls it."""

    class Never(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            calls.append(self.path)
            self.send_error(404)

        do_HEAD = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    calls: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Never)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    assert calls == []


def _tree(path: Path) -> dict[str, tuple[int, int]]:
    found = [p for p in path.rglob("*") if "spill" not in p.parts]
    return {str(p.relative_to(path)): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}


ALLOWED = {
    "SELECT count(*) AS n FROM results": 1,
    "select request_id from results order by slot;": 3,
    "WITH a AS (SELECT slot FROM plan), b AS (FROM a) SELECT * FROM b UNION ALL VALUES (7)": 4,
    "FROM results SELECT slot LIMIT 2": 2,
    "DESCRIBE results": None,
    "DESCRIBE SELECT 1 AS a": 1,
    "SUMMARIZE plan": None,
    "SHOW TABLES": None,
    "SELECT * FROM range(5), generate_series(1, 2), unnest([1, 2])": 20,
    "SELECT wilson_lo(1, 2) AS lo": 1,
    "SELECT table_name FROM information_schema.tables WHERE table_name = 'results'": 1,
    "SELECT * FROM (PIVOT plan ON direction IN ('forward', 'reverse') USING count(*) GROUP BY study)": 1,
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t": 5,
    "-- a comment; with a semicolon\nSELECT 1 AS a": 1,
    "SELECT '; DROP TABLE x' AS a": 1,
    "SELECT slot, row_number() OVER (ORDER BY slot) FROM results QUALIFY slot > 0": 2,
    "SELECT * FROM results AS a JOIN results AS b USING (slot) WHERE a.slot IN (SELECT slot FROM plan)": 3,
    "SELECT json_extract('{\"a\": 1}', '$.a') AS a": 1,
    "SELECT list_transform([1, 2], lambda x: x + 1) AS a": 1,
    "SELECT * FROM lens_files LIMIT 1": 1,
}


@pytest.mark.parametrize("sql", ALLOWED)
def test_ordinary_selects_work(lake: LakeBuilder, sql: str) -> None:
    """CTEs, windows, pivots, DESCRIBE and the macros are all there."""
    rows = run_query(lake.path, sql)
    assert isinstance(rows, pa.Table)
    assert rows.num_rows == ALLOWED[sql] or (ALLOWED[sql] is None and rows.num_rows > 3)


# {lake}: the lake's folder; {file}: one of its Parquet files; {out}: a folder to write to; {web}: a web server.
REFUSED = [
    # reading other files
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_text('{lake}/.secret')",
    "SELECT * FROM read_blob('{lake}/batchpond.json')",
    "SELECT * FROM read_csv('{lake}/config.toml')",
    "SELECT * FROM read_csv_auto('/etc/passwd', sep='\\n')",
    "SELECT * FROM read_json('{lake}/batchpond.json')",
    "SELECT * FROM read_json_objects('/etc/hostname')",
    "SELECT * FROM read_parquet('{lake}/**/*.parquet')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM parquet_metadata('{file}')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM read_duckdb('{lake}/batchpond.duckdb')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM '{lake}/config.toml'",
    "SELECT * FROM '{file}'",
    'SELECT * FROM "{file}"',
    "FROM '{lake}/../x.csv'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM glob('{lake}/*')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x",
    "SELECT * FROM results WHERE slot IN (SELECT size FROM read_blob('/etc/passwd'))",
    "SELECT * FROM results, LATERAL (SELECT * FROM read_text('/etc/passwd'))",
    "DESCRIBE SELECT * FROM read_csv('/etc/passwd')",
    "SUMMARIZE FROM read_csv('{lake}/config.toml')",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
    "SELECT * FROM query_table('results')",
    "SELECT * FROM query_table(['/etc/passwd'])",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    # the network
    "SELECT * FROM read_text('{web}/x')",
    "SELECT * FROM read_csv('{web}/x.csv')",
    "SELECT * FROM '{web}/x.parquet'",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "ATTACH '{web}/x.duckdb' AS x",
    # writing
    "COPY (SELECT 1) TO '{out}/x.csv'",
    "COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)",
    "COPY results TO '{out}/x.parquet'",
    "COPY (SELECT 1) TO '{lake}/_tmp/spill/x.csv'",
    "WITH x AS (COPY (SELECT 1) TO '{out}/x.csv') SELECT 1",
    "WITH x AS (COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)) SELECT 1",
    "SELECT (WITH x AS (COPY (SELECT 1) TO '{out}/x.csv') SELECT 1)",
    "SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '{out}/x.csv') SELECT 1)",
    "DESCRIBE WITH x AS (COPY (SELECT 1) TO '{out}/x.csv') SELECT 1",
    "WITH x AS (INSERT INTO lens_info VALUES ('', 0, '', '') RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM lens_files RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE lens_files SET path = '/etc/passwd' RETURNING *) SELECT * FROM x",
    "EXPORT DATABASE '{out}/db'",
    "INSERT INTO lens_files VALUES ('raw', '/etc/passwd', NULL)",
    "UPDATE lens_files SET path = '/etc/passwd'",
    "DELETE FROM lens_files",
    "MERGE INTO lens_files USING lens_info ON false WHEN NOT MATCHED THEN INSERT VALUES ('a', 'b', 'c')",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE OR REPLACE TEMP VIEW results AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "DROP VIEW results",
    "ALTER VIEW results RENAME TO x",
    "SELECT 1 INTO x",
    "TRUNCATE lens_files",
    "VACUUM",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    # other databases, extensions, settings
    "ATTACH '{out}/x.duckdb' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH batchpond",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{out}/x.duckdb_extension'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET allowed_paths = ['/etc/passwd']",
    "SET GLOBAL threads = 64",
    "RESET memory_limit",
    "SET VARIABLE x = 1",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "PRAGMA table_info('results')",
    "SELECT * FROM enable_profiling('json', '{out}/x.json')",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM checkpoint()",
    "CALL pragma_version()",
    "SELECT * FROM pragma_version()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_settings",
    "SELECT * FROM duckdb_views",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT current_setting('allowed_paths')",
    "SELECT CURRENT_SETTING('allowed_paths')",
    "SELECT getenv('HOME')",
    "SELECT main.getenv('HOME')",
    "SELECT getvariable('x')",
    "SELECT 'HOME'.getenv()",
    "SELECT list_transform(['HOME'], lambda x: getenv(x))",
    "SELECT slot FROM results ORDER BY current_setting('threads')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000)",
    # Python objects of the caller
    "SELECT * FROM python_frame",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    # statements and their number
    "",
    ";",
    "-- nothing",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY (SELECT 1) TO '{out}/x.csv'",
    "PIVOT plan ON direction USING count(*)",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "BEGIN",
    "ROLLBACK",
    "SELECT ?",
    "SELECT $x",
    "SELEC 1",
    "SELECT 1 FROM",
    "\0",
    "SELECT 1 /*",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_everything_but_a_select_over_the_views_is_refused(
    lake: LakeBuilder, web: str, tmp_path: Path, sql: str
) -> None:
    """UsageError with one line and a hint; nothing is written, changed or called."""
    python_frame = pa.table({"secret": [1]})  # a replacement scan would find it by its name
    assert python_frame.num_rows == 1
    before = _tree(lake.path)
    text = sql.format(lake=lake.path, file=lake.store.files("plan")[0], out=tmp_path, web=web) if "{" in sql else sql
    with pytest.raises(UsageError) as error:
        run_query(lake.path, text)
    assert "\n" not in error.value.message
    assert error.value.hint
    assert list(tmp_path.iterdir()) == []
    assert _tree(lake.path) == before


ENGINE_REFUSED = [
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_text('{lake}/.secret')",
    "SELECT * FROM read_csv('{lake}/config.toml')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM '{web}/x.parquet'",
    "SELECT * FROM python_frame",
    "COPY (SELECT 1) TO '{out}/x.csv'",
    "ATTACH '{out}/x.duckdb' AS x",
    "ATTACH '/etc/passwd' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 1",
    "SET lock_configuration = false",
    "SET enable_external_access = true",
    "SET allowed_paths = ['/etc/passwd']",
    "DELETE FROM lens_files",
    "EXPORT DATABASE '{out}/db'",
    "SELECT * FROM duckdb_secrets()",
]


@pytest.mark.parametrize("sql", ENGINE_REFUSED)
def test_the_engine_alone_refuses_what_leaves_the_lake(lake: LakeBuilder, web: str, tmp_path: Path, sql: str) -> None:
    """The last fence holds without the checks of the statement before it."""
    python_frame = pa.table({"secret": [1]})
    assert python_frame.num_rows == 1
    with database.connect(lake.path) as connection:
        read._lock_down(connection)
        assert connection.execute("SELECT count(*) FROM results").fetchall() == [(3,)]
        with pytest.raises(duckdb.Error):
            connection.execute(sql.format(lake=lake.path, out=tmp_path, web=web)).fetchall()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)) SELECT 1",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM enable_profiling()",
        "SELECT * FROM read_parquet('{file}')",
    ],
)
def test_the_syntax_tree_alone_refuses_what_hides_in_a_select(lake: LakeBuilder, sql: str) -> None:
    """The second fence holds on a connection that could do it, before anything runs."""
    with duckdb.connect(":memory:") as connection, pytest.raises((UsageError, duckdb.ParserException)):
        read._check(connection, sql.format(file=lake.store.files("plan")[0]))


SLOW = [
    "SELECT count(*) FROM range(10000000) a, range(10000000) b",
    "SELECT sum(sin(a.range) * cos(b.range)) FROM range(10000000) a, range(1000000) b",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    "SELECT * FROM range(100000000000)",
]


@pytest.mark.parametrize("sql", SLOW)
def test_a_query_that_never_ends_is_stopped(lake: LakeBuilder, sql: str) -> None:
    """The deadline interrupts it, and the next query works."""
    with pytest.raises(UsageError, match=r"longer than 0\.3 s"):  # as none of them would end before the test is
        run_query(lake.path, sql, Limits(timeout_s=0.3, max_rows=10**12))
    assert run_query(lake.path, "SELECT 1 AS a").to_pylist() == [{"a": 1}]


GREEDY = [
    "SELECT list(range) FROM range(200000000)",
    "SELECT string_agg(repeat('x', 1000000), '') FROM range(100000)",
    "SELECT md5(range::VARCHAR) AS h, count(*) FROM range(50000000) GROUP BY h ORDER BY h",
]


def test_a_query_that_begins_when_its_time_is_over_is_stopped_too() -> None:
    """An interrupt that comes before it is lost: on a busy machine, between the checks of a query and its run."""
    with duckdb.connect(":memory:") as connection:
        began_s = time.monotonic()
        endless = "SELECT count(*) FROM range(300000) a, range(300000) b WHERE a.range + b.range > 7"
        with read.interrupted(connection, 0.01) as is_over:
            assert is_over.wait(5)
            time.sleep(0.05)
            with pytest.raises(duckdb.InterruptException):
                connection.execute(endless)
        assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("sql", GREEDY)
def test_memory_rows_and_time_are_bounded(lake: LakeBuilder, sql: str) -> None:
    """A query that wants more than its share ends with an error, not with the machine."""
    with pytest.raises(UsageError):
        run_query(lake.path, sql, Limits(memory="100MB", timeout_s=2, max_rows=1000))


def test_too_many_rows_are_an_error_and_never_a_silent_cut(lake: LakeBuilder) -> None:
    """A result is whole or not there."""
    assert run_query(lake.path, "SELECT * FROM range(1000)", Limits(max_rows=1000)).num_rows == 1000
    with pytest.raises(UsageError, match="more than 1,000 rows"):
        run_query(lake.path, "SELECT * FROM range(1001)", Limits(max_rows=1000))


def test_a_very_long_or_very_deep_query_is_refused(lake: LakeBuilder) -> None:
    """Neither length nor nesting takes the process down."""
    with pytest.raises(UsageError, match="longer than"):
        run_query(lake.path, "SELECT 1 -- " + "x" * read.SQL_CHARACTERS_MAX)
    with pytest.raises(UsageError):
        run_query(lake.path, "SELECT * FROM " + "(SELECT * FROM " * 3000 + "range(1)" + ")" * 3000)
    with pytest.raises(UsageError):
        run_query(lake.path, "SELECT " + "abs(" * 20_000 + "1" + ")" * 20_000)


def test_an_unknown_column_or_view_says_where_to_look(lake: LakeBuilder) -> None:
    """DuckDB's first line and the next command, or the name that was probably meant."""
    told = {"SELECT vvvv FROM results": "batchpond views", "SELECT outcme FROM results": "did you mean 'outcome'?"}
    for sql, hint in told.items():
        with pytest.raises(UsageError) as error:
            run_query(lake.path, sql)
        assert hint in str(error.value.hint)


def test_a_damaged_file_of_the_lake_is_named_and_is_no_usage_error(tmp_path: Path) -> None:
    """The query was fine: it shows what is left, and the warning is what the command line ends with exit code 5 for."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.plan([{"slot": 1, "request_id": "r1"}])
    lake.plan([{"slot": 2, "request_id": "r2"}])
    lake.build()
    path = lake.store.files("plan")[0]
    os.truncate(path, 100)
    with pytest.warns(LakeWarning, match=f"{path.name}: its bytes are not those that were written"):
        assert run_query(lake.path, "SELECT * FROM plan").num_rows == 1


def test_queries_run_at_the_same_time_from_many_threads(lake: LakeBuilder) -> None:
    """Each query has its own engine: no shared connection, no shared lock."""
    results: list[int] = []

    def work() -> None:
        results.append(run_query(lake.path, "SELECT count(*) AS n FROM results").to_pylist()[0]["n"])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3] * 6
