"""Copies of the lake in the layouts of pairwiseLLM, SpecEval and SycoBench, for their users' own scripts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from batchpond.errors import UsageError
from batchpond.lake import disk, tables
from batchpond.results.export import Tree, translated
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
