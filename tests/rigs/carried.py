"""A study's results as a file in another lake: each figure must be the same there, or be of what a file cannot hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any

from batchpond import Lake
from batchpond.interop.imports import ImportReport
from batchpond.views import database, read
from batchpond.views.draft import Worked
from tests.rigs.stage_study import StageRig

BESIDE_METRICS = ("pair_status", "item_status", "jury_verdicts", "prompt_scores", "criteria_points", "candidate_pairs")
_ORIGINS = "SELECT DISTINCT template_id FROM results WHERE task IN ('generation', 'conversation', 'inputs')"
Rows = list[tuple[Any, ...]]


def carry(lake: Path, folder: Path) -> ImportReport:
    """Write a lake's results as CSV, and import them into a lake below the folder."""
    file = folder / "carried.csv"
    Lake(lake).export(file, force=True)
    return Lake(folder / "carried").import_judgments(file)


def differences(rig: StageRig) -> Iterator[str]:
    """Yield what the views say otherwise where a study's results were imported; texts that stages made stay behind."""
    carry(rig.lake, rig.path)
    made = {row["template_id"] for row in rig.ask(_ORIGINS)}
    views = (*BESIDE_METRICS, *sorted(view.name for view in database.views() if view.name.startswith("metric_")))
    for (name, names, here), (_, _, there) in zip(
        _figures(rig.lake, views), _figures(rig.path / "carried", views), strict=True
    ):
        of_templates = [at for at, column in enumerate(names) if column.startswith("template_")]
        judged = [row for row in here if not made.intersection(row[at] for at in of_templates)]
        for one, other in zip_longest(judged, there):
            if one is None or other is None or not all(map(_is_same, one, other)):
                yield f"{name}: {dict(zip(names, one or (), strict=False))} is {other} once imported"
                break


def _figures(lake: Path, views: Iterable[str]) -> Iterator[tuple[str, list[str], Rows]]:
    with closing(database.connect(lake)) as connection:
        (study,) = read.studies(connection)
        worked = Worked(connection, study)  # what views share is planned once
        for name in views:
            worked.make(f"FROM {name}")
            found = connection.execute(f'FROM "{name}"')
            names = [column for column, *_ in found.description or ()]
            yield name, names, sorted(found.fetchall(), key=lambda row: [_rough(value) for value in row])


def _rough(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)
    return one == other
