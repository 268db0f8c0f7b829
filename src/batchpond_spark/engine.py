"""The large half of a query on an engine that speaks Spark's SQL; the statistics stay DuckDB's, over what is small.

What has a row per judgment, pair or cluster (`1_core` of `sql/`) the engine makes, each view that is read from above
written once to Parquet, and the next ones over what is written. What is made of it (`2_metrics`, `3_report`, a person's
SELECT) DuckDB makes over those files. So no statistic is written twice, and the engine is asked for nothing that only
DuckDB can say.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from batchpond.errors import LakeError, UsageError
from batchpond.lake.disk import DIRECTORY_MODE
from batchpond.lake.store import Store
from batchpond.views import database, refresh
from batchpond.views.draft import MEMORY_LIMIT
from batchpond_spark import dialect

SAIL: Final = "sail"
LOCAL: Final = "spark"
REMOTE: Final = "sc://"
REMOTE_PORT: Final = 15_002
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.analyzer.maxIterations": "400",
}
# Of a Spark that this process starts: one query is thousands of expressions, of which its compiler makes no code.
LOCAL_SETTINGS: Final = {
    "spark.driver.memory": "4g",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
STARTS_WITHIN_S: Final = 60.0
_SERVE: Final = """import os, sys
from pysail.spark import SparkConnectServer
server = SparkConnectServer("127.0.0.1", {port})
server.start(background=True)
sys.stdin.read()  # until whoever started it has ended, in whatever way
os._exit(0)
"""


@contextmanager
def levels(
    store: Store, sql: str, engine: str, study: str | None = None, told: Callable[[str], None] = lambda _: None
) -> Iterator[database.Connect]:
    """Have an engine make all that a query is made of, and yield what opens the views over it, as `database.connect`.

    `engine` is `sail`, `spark` (on this machine) or the address of a Spark Connect server that has the lake's folder
    under the same path; `told` hears the name of each view that is begun. The session has ended, and its memory is
    free, before anything is yielded. Raises UsageError for an engine that is not there or refuses a view.
    """
    folder, names = store.scratch(".levels"), dialect.levels(sql)
    folder.mkdir(mode=DIRECTORY_MODE)
    try:
        with session(engine, folder) as spark:
            _make(spark, store, names, folder, study, told)
        files = {name: [os.fspath(path.relative_to(folder)) for path in _parts(folder / name)] for name in names}
        made = {name: paths for name, paths in files.items() if paths}  # a view without rows may have no file
        yield lambda _, *, memory_limit=MEMORY_LIMIT: database.over(folder, made, memory_limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(
    spark: SparkSession,
    store: Store,
    names: Collection[str],
    folder: Path,
    study: str | None,
    told: Callable[[str], None],
) -> None:
    for name, statement in dialect.statements(store.path, _whole(store), names):
        if name in names:
            told(name)
        with _translated(name):
            spark.sql(statement)
            if name in names:
                _write(spark, name, folder, study)


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def _write(spark: SparkSession, name: str, folder: Path, study: str | None) -> None:
    """Write a view's rows, and let what comes next read what is written."""
    rows, path = spark.table(name), os.fspath(folder / name)
    if study is not None and "study" in rows.columns:
        rows = rows.where(rows["study"] == study)
    rows.write.parquet(path)
    if _parts(folder / name):  # without rows there may be no file, and no columns then
        spark.read.parquet(path).createOrReplaceTempView(name)


def _whole(store: Store) -> refresh.Good:
    """Return the lake's files; raises LakeError where one is gone or damaged: an engine's numbers would not say so."""
    good, bad = refresh.sorted_out(store.path, refresh.named(store.path, database.listed(store.path)), {})
    for damage in bad:
        raise LakeError(f"the lake is damaged: {damage.name}: {damage.problem}", hint=damage.hint)
    return good


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Raise what an engine says while it makes a view as an error of ours."""
    try:
        yield
    except PySparkException as error:
        raise UsageError(
            f"the engine could not make {name}: {(str(error).splitlines() or [''])[0]}",
            hint="without `--engine` DuckDB makes it; a server elsewhere needs the lake's folder under the same path",
        ) from error


@contextmanager
def session(engine: str, spill: Path) -> Iterator[SparkSession]:
    """Open a session of an engine, with the settings that the views need; raises UsageError where there is none.

    A Sail of our own writes what does not fit into the memory that its settings allow it below `spill`.
    """
    with _builder(engine, spill) as builder:
        try:
            warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
            if engine.startswith(REMOTE):  # its client would try for ten minutes, and say nothing
                at = urlsplit(engine)
                socket.create_connection((at.hostname or "", at.port or REMOTE_PORT), STARTS_WITHIN_S).close()
            spark = builder.getOrCreate()
        except (PySparkException, OSError) as error:
            raise UsageError(
                f"the engine {engine} does not answer: {(str(error).splitlines() or [''])[0]}",
                hint="`--engine sail` starts one in this process",
            ) from error
        try:
            for key, value in SETTINGS.items():
                spark.conf.set(key, value)
            yield spark
        finally:
            spark.stop()


@contextmanager
def _builder(engine: str, spill: Path) -> Iterator[SparkSession.Builder]:
    if engine == SAIL:
        with _sail(spill) as address:
            yield SparkSession.builder.remote(address)
    elif engine == LOCAL:
        yield SparkSession.builder.config(map={**LOCAL_SETTINGS, **SETTINGS}).master("local[*]")
    elif engine.startswith(REMOTE):
        yield SparkSession.builder.remote(engine)
    else:
        raise UsageError(
            f"no engine {engine!r}", hint="`sail`, `spark`, or the address of a Spark Connect server: sc://host:15002"
        )


@contextmanager
def _sail(spill: Path) -> Iterator[str]:
    """Start Sail in a process of its own, whose memory goes with it, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _SERVE.format(port=port)]
    environment = {"SAIL_RUNTIME__TEMPORARY_FILES__PATHS": f'["{spill}"]'} | os.environ
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, env=environment) as server:
        try:
            ends_at = time.monotonic() + STARTS_WITHIN_S
            while not _listens(port):
                if server.poll() is not None or time.monotonic() > ends_at:
                    raise UsageError("Sail did not start", hint="pip install 'batchpond[cluster]'")
                time.sleep(0.05)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
