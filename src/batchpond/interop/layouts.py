"""Copies of the lake for other tools: what `export --layout` writes, but for whole lakes.

Folders in the layouts of pairwiseLLM, SpecEval and SycoBench are for their users' own scripts. Tables for a warehouse
are Delta's or Iceberg's, written by their own libraries, and added to each time. A file of the lake is a partition
(`lake_file`) of its table there: what is new is added, and what is gone, since it was merged, forgotten or read anew,
is taken out in the same commit; nothing else is written again.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from batchpond import ids
from batchpond.clock import each
from batchpond.errors import AwayError, BatchpondError, UsageError, needed
from batchpond.lake import disk, manifest, tables
from batchpond.lake.schemas import TABLES, Table
from batchpond.lake.store import Store
from batchpond.results.export import Tree, translated
from batchpond.text import address
from batchpond.views import database
from batchpond.views.read import check_study

_query: Final = partial(tables.query, __package__)
_STEPS: Final = tomllib.loads(Path(__file__).with_name("layouts.toml").read_text("utf-8"))


class Layout(StrEnum):
    """Whose files an export looks like."""

    PAIRWISELLM = "pairwisellm"
    SPECEVAL = "speceval"
    SYCOBENCH = "sycobench"


def export_layout(
    lake_path: Path, folder: Path, layout: Layout, *, study: str | None = None, force: bool = False
) -> Tree:
    """Write a study, or all of them, to a folder in another tool's layout.

    Raises UsageError where the folder holds anything and `force` is not set, where there is no such study,
    and where nothing fits the layout.
    """
    if not force and os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", hint="give another folder, or --force to replace files in it")
    # Files outlive the warning that something is not in them.
    connected = closing(database.connect(lake_path, must_be_whole=True))
    with connected as connection, translated(folder), disk.destined(folder, force=force) as written:
        check_study(connection, study)
        tree = Tree(connection, written, study, force)
        if layout is Layout.PAIRWISELLM:
            _pairwisellm(tree)
        else:
            _as_told(tree, **_STEPS[layout])
    if not tree.files:
        told = "".join(f"; {n:,} {why}" for why, n in tree.left_out.items())
        raise UsageError(f"nothing in the lake has a place in the layout of {layout}{told}", hint="`batchpond status`")
    return replace(tree, folder=folder, files=[folder / path.relative_to(written) for path in tree.files])


def _as_told(tree: Tree, kept: Mapping[str, str], left_out: Sequence[list[str]], json: Mapping[str, str]) -> None:
    """Fill a folder with JSON as `layouts.toml` says it: tables kept, rows left out of them, and what is written."""
    tree.connection.execute(_query("told"))
    for name, query in kept.items():
        tree.keep(name, _query(query))
    for table, where, why in left_out:
        tree.leave_out(table, where, why)
    for query, between in json.items():
        tree.json(_query(query), between)


def _pairwisellm(tree: Tree) -> None:
    """A folder as of a multi-batch run: a results CSV per batch, all of them combined, registry and samples."""
    tree.keep("layout_rows", _query("pairwise"))
    segments = tree.connection.execute(_query("segments")).fetchall()
    registry = []
    for number, (segment, batch_id, backend, model) in enumerate(segments, 1):
        name = f"batch_{number:02d}_results.csv"
        rows = "SELECT * FROM layout_rows WHERE coalesce(batch_id, origin) = $segment"
        tree.connection.execute(f"CREATE OR REPLACE TEMP TABLE segment AS {rows}", {"segment": segment})
        tree.csv(name, "SELECT * FROM segment ORDER BY ALL")
        if batch_id is not None:
            registry.append((number, backend, model, batch_id, name))
    if not segments:
        return
    tree.csv("combined_results.csv", "SELECT * FROM layout_rows ORDER BY ALL")
    if registry:
        tree.connection.execute(
            "CREATE TEMP TABLE jobs (segment_index BIGINT, provider TEXT, model TEXT, batch_id TEXT, csv_path TEXT)"
        )
        tree.connection.executemany("INSERT INTO jobs VALUES ($1, $2, $3, $4, $5)", registry)
        tree.csv("jobs_registry.csv", _query("jobs"))
    samples = _query("samples")
    ((n_samples,),) = tree.connection.execute(f"SELECT count(*) FROM ({samples})").fetchall()
    if n_samples:
        tree.csv("samples.csv", f'{samples} ORDER BY "ID"')


FILE: Final = "lake_file"
COMMIT_BYTES: Final = 64 << 20
_SAID_CHARS: Final = 400
_DECORATION: Final = re.compile("\x1b\\[[0-9;]*m|\u21b3")


def export_tables(store: Store, destination: Path, layout: str) -> int:
    """Bring tables of Delta or Iceberg to what the lake's hold; return how many files of the lake came or went.

    Delta's stand below a folder or an address, Iceberg's in the catalog `batchpond` of PyIceberg's settings, under the
    destination's name. Raises LakeError where a file of the lake is missing, and UsageError without what writes them.
    """
    n_changed = 0
    with store.lock("export"), needed(f"export --layout {layout}", "cluster"):  # two would add a file twice
        manifest.require(store, TABLES.keys())
        for table in TABLES.values():
            paths = map(os.fspath, store.files(table.name))
            names = {  # a derived file may be made again under its name
                ids.digest("lake file", name, disk.sha256(store.path / name)): name
                for name in disk.relative(store.path, paths)
            }
            schema = table.schema.append(pa.field(FILE, pa.string()))
            with _told(f"{layout} table {table.name} of {address(destination) or destination}"):
                there = (_Delta if layout == "delta" else _Iceberg)(destination, table.name, schema)
                held = there.held()
                new, gone = sorted(names.keys() - held), sorted(held - names.keys())
                n_changed += len(new) + len(gone)
                if new or gone:
                    there.change(_parts(table, {key: store.path / names[key] for key in new}), [*new, *gone], gone)
    return n_changed


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Raise AwayError for what the libraries, stores and catalogs raise, each in types of its own."""
    try:
        yield
    except (BatchpondError, ModuleNotFoundError):
        raise
    except Exception as error:
        said = " ".join(_DECORATION.sub(" ", str(error)).split())[:_SAID_CHARS]
        hint = "the lake is as it was, and what was committed there stands; the next export adds what lacks"
        raise AwayError(f"{what}: {said or type(error).__name__}", hint=hint) from error


def _parts(table: Table, files: Mapping[str, Path]) -> Iterator[pa.Table]:
    """Yield the rows of files, of as many at once as are held in memory."""
    held: list[pa.Table] = []
    for key, path in each(files.items(), f"writing {table.name}", "files", len(files)):
        rows = table.completed(disk.read_rows(path))
        held.append(rows.append_column(FILE, pa.array([key] * len(rows), pa.string())))
        if sum(part.nbytes for part in held) > COMMIT_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


class _Delta:
    def __init__(self, destination: Path, name: str, schema: pa.Schema) -> None:
        import deltalake

        self._library, self._schema = deltalake, schema
        self._url = f"{address(destination) or os.path.abspath(destination)}/{name}"
        self._options = {"allow_http": "true"}  # where somebody gave an endpoint without TLS

    def held(self) -> set[str]:
        kind = self._library.DeltaTable
        is_there = kind.is_deltatable(self._url, self._options)
        return {one[FILE] for one in kind(self._url, None, self._options).partitions()} if is_there else set()

    def change(self, parts: Iterator[pa.Table], keys: list[str], gone: list[str]) -> None:
        how: dict[str, Any] = {"partition_by": [FILE], "schema_mode": "merge", "storage_options": self._options}
        if gone:
            how |= {"mode": "overwrite", "predicate": f"{FILE} IN ({', '.join(map(repr, keys))})"}
        for some in [parts] if gone else ([part] for part in parts):  # what replaces something comes at once
            rows = pa.RecordBatchReader.from_batches(self._schema, (one for part in some for one in part.to_batches()))
            self._library.write_deltalake(self._url, rows, **{"mode": "append"} | how)


class _Iceberg:
    def __init__(self, destination: Path, name: str, schema: pa.Schema) -> None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.utils.config import Config

        if Config().get_catalog_config("batchpond") is None:
            hint = "set PYICEBERG_CATALOG__BATCHPOND__URI, or write ~/.pyiceberg.yaml"
            raise UsageError("PyIceberg knows no catalog `batchpond`", hint=hint)
        self._catalog, self._name, self._schema = load_catalog("batchpond"), (destination.name, name), schema

    def held(self) -> set[str]:
        there = self._catalog.load_table(self._name) if self._catalog.table_exists(self._name) else None
        partitions = there.inspect.partitions().to_pylist() if there and there.current_snapshot() else []
        return {one["partition"][FILE] for one in partitions}

    def change(self, parts: Iterator[pa.Table], _: list[str], gone: list[str]) -> None:
        self._catalog.create_namespace_if_not_exists(self._name[0])
        there = self._catalog.create_table_if_not_exists(self._name, self._schema)
        if there.spec().is_unpartitioned():
            there.update_spec().add_identity(FILE).commit()
        there.update_schema().union_by_name(self._schema).commit()
        with there.transaction() as commit:
            if gone:
                commit.delete(f"{FILE} IN ({', '.join(map(repr, gone))})")
            for part in parts:
                commit.append(part)
