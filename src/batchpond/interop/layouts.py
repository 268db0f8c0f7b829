"""Copies of the lake in the layouts of pairwiseLLM, SpecEval and SycoBench, for their users' own scripts.

What those layouts cannot say stands in further columns and keys, which the tools ignore and `import`
reads: outcome, repeat_no, template_id, thinking. A failure is never written as a tie, as "not
compliant" or as "no flip". What the layout has no place for is counted in the report.
"""

from __future__ import annotations

import os
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchpond import views
from batchpond.errors import UsageError
from batchpond.interop import trees
from batchpond.lake.tables import literal
from batchpond.results.export import translated
from batchpond.results.export_files import LayoutReport, Tree

if TYPE_CHECKING:
    import duckdb


class Layout(StrEnum):
    """Whose files an export looks like."""

    PAIRWISELLM = "pairwisellm"
    SPECEVAL = "speceval"
    SYCOBENCH = "sycobench"


def export_layout(
    lake_path: Path, folder: Path, layout: Layout, *, study: str | None = None, force: bool = False
) -> LayoutReport:
    """Write a study, or all of them, to a folder in another tool's layout.

    Raises UsageError where the folder holds anything and `force` is not set, where there is no such study,
    and where nothing fits the layout.
    """
    if not force and os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", hint="give another folder, or --force to replace files in it")
    report = LayoutReport()
    with closing(views.connect(lake_path)) as connection, translated(folder):
        _check_study(connection, study)
        tree = Tree(connection, folder, f"study = {literal(study)}" if study else "true", report, force)
        match layout:
            case Layout.PAIRWISELLM:
                _pairwisellm(tree)
            case Layout.SPECEVAL:
                trees.speceval(tree)
            case Layout.SYCOBENCH:
                trees.sycobench(tree)
    if not report.files:
        told = "".join(f"; {n:,} {why}" for why, n in report.left_out.items())
        raise UsageError(f"nothing in the lake has a place in the layout of {layout}{told}", hint="`batchpond status`")
    return report


def _check_study(connection: duckdb.DuckDBPyConnection, study: str | None) -> None:
    query = "SELECT study FROM studies_current UNION SELECT study FROM imported_judgments ORDER BY study"
    known = [row[0] for row in connection.execute(query).fetchall()]
    if study is not None and study not in known:
        raise UsageError(f"there is no study {study!r}", hint=f"studies: {', '.join(known[:20]) or 'none'}")


def _pairwisellm(tree: Tree) -> None:
    """A folder as of a multi-batch run: a results CSV per batch, all of them combined, registry and samples."""
    tree.connection.execute(f"CREATE TEMP TABLE layout_rows AS {_PAIRWISE_ROWS.format(where=tree.where_study)}")
    segments = tree.connection.execute(
        "SELECT coalesce(batch_id, origin) AS segment, any_value(batch_id), any_value(backend), any_value(model)"
        " FROM layout_rows GROUP BY segment ORDER BY segment"
    ).fetchall()
    registry = []
    for number, (segment, batch_id, backend, model) in enumerate(segments, 1):
        name = f"batch_{number:02d}_results.csv"
        rows = f"SELECT * FROM layout_rows WHERE coalesce(batch_id, origin) = {literal(segment)} ORDER BY ALL"
        tree.csv(name, rows)
        if batch_id is not None:
            registry.append((number, backend, model, batch_id, name))
    if not segments:
        return
    tree.csv("combined_results.csv", "SELECT * FROM layout_rows ORDER BY ALL")
    if registry:
        values = ", ".join(
            f"({n}, {', '.join(map(literal, texts))}, NULL, NULL, {literal(name)}, NULL, 'TRUE')"
            for n, *texts, name in registry
        )
        tree.csv("jobs_registry.csv", f"SELECT * FROM (VALUES {values}) AS t({_REGISTRY_COLUMNS}) ORDER BY 1")
    ((n_samples,),) = tree.connection.execute(f"SELECT count(*) FROM ({_SAMPLES})").fetchall()
    if n_samples:
        tree.csv("samples.csv", f'{_SAMPLES} ORDER BY "ID"')


_REGISTRY_COLUMNS: Final = (
    "segment_index, provider, model, batch_id, batch_input_path, batch_output_path, csv_path, pairs_path, done"
)

_PAIRWISE_ROWS: Final = """
    SELECT * FROM results_pairwisellm WHERE {where}
    UNION ALL BY NAME
    SELECT
        item_first AS "ID1", item_second AS "ID2", item_first AS "A_id", item_second AS "B_id",
        least(item_first, item_second) || ':' || greatest(item_first, item_second) AS unordered_key,
        item_first || ':' || item_second AS ordered_key,
        CASE verdict WHEN 'first' THEN item_first WHEN 'second' THEN item_second END AS better_id,
        CASE verdict WHEN 'first' THEN 'SAMPLE_1' WHEN 'second' THEN 'SAMPLE_2' END AS better_sample,
        CASE verdict WHEN 'first' THEN 1 WHEN 'second' THEN 2 END AS winner_pos,
        request_model AS model, provider AS backend, outcome, input_tokens AS prompt_tokens,
        output_tokens AS completion_tokens, study, template_id, rubric_id, thinking, unit_id, repeat_no,
        'imported' AS origin
    FROM imported_judgments
    WHERE coalesce(task, 'pairwise') = 'pairwise' AND {where}"""

# An id may have had several texts: one of them, always the same, as the layout has room for one.
_SAMPLES: Final = """
    SELECT item_id AS "ID", max_by(text, item_hash) AS text
    FROM items
    WHERE item_id IN (SELECT "ID1" FROM layout_rows UNION SELECT "ID2" FROM layout_rows)
    GROUP BY item_id"""
