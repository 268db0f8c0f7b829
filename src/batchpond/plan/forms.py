"""How a study stands in the lake: as stages, its version, its settings, and the ids of its cells.

A pairwise study is one stage, however its file says it. What was planned keeps its names: a file without rounds and
tiers has a version of its own kind, and a version whose rows carry the stage in their cells' ids goes on with those.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from batchpond import ids
from batchpond.plan.asks import SourceRow
from batchpond.plan.cells import ModelConfig, cell_id
from batchpond.plan.items import Item
from batchpond.study.file import to_config, to_json
from batchpond.study.prices import NOTHING
from batchpond.study.spec import MAIN_STAGE, RowsSpec, StagedStudy, StageSpec, Study
from batchpond.tasks.pairwise import TASK
from batchpond.tasks.templates import Template

if TYPE_CHECKING:
    import duckdb

    from batchpond.plan.forecast import Forecast

_FIRST_CELL: Final = """
select template_id, rubric_id, provider, request_model, thinking, cell_id
from plan where study = $study and study_version = $version and stage = $stage limit 1
"""


def as_stages(study: Study | StagedStudy, templates: Sequence[Template]) -> StagedStudy:
    """Return a study as stages; `templates` are those of a study that only names them."""
    if isinstance(study, StagedStudy):
        return study
    stage = StageSpec(
        MAIN_STAGE, TASK, RowsSpec(items=study.items), study.answer, tuple(templates), study.models, study.rubrics,
        study.pairs, study.pairs.repeats,
    )  # fmt: skip
    return StagedStudy(
        study.name, (stage,), study.seed, study.unsupported, study.shards, study.retry, study.budget, study.source,
        study.base_path,
    )  # fmt: skip


def stage_in_cells(
    connection: duckdb.DuckDBPyConnection, study: StagedStudy, version: str, stage: StageSpec
) -> str | None:
    """Return the stage as it enters a version's cell ids, None where it does not; `connection` has a view of `plan`.

    What stands decides: a version of pairs that was planned with the stage in its ids goes on so.
    """
    if not study.is_pairs_alone:
        return stage.name
    values = {"study": study.name, "version": version, "stage": stage.name}
    found = connection.execute(_FIRST_CELL, values).fetchone()
    is_named = found is not None and found[-1] == cell_id(study.name, found[:-1], stage.name)
    return stage.name if is_named else None


def config(study: Study) -> dict[str, Any]:
    """Return a study as plain values, without where on this machine it was read from."""
    values = dataclasses.asdict(study)
    del values["source"], values["base_path"], values["pairs"]["adaptive"]  # a study of rounds is one of stages
    return values


def config_json(study: Study | StagedStudy, foreseen: Sequence[Forecast] = ()) -> str:
    """Return a study as `studies.config` keeps it, with what its later rounds are foreseen to cost."""
    if isinstance(study, Study):
        return orjson.dumps(config(study), option=orjson.OPT_SORT_KEYS).decode("utf-8")
    later = {
        found.stage.name: {**dataclasses.asdict(found.later), "n_rounds": found.stage.n_later_rounds}
        for found in foreseen
        if found.later != NOTHING
    }
    return orjson.dumps({**to_config(study), "later": later}).decode("utf-8")


def version(
    study: Study | StagedStudy, stages: Sequence[tuple[StageSpec, Sequence[ModelConfig], Sequence[SourceRow]]]
) -> str:
    """Return the digest of all that decides what is asked, and of the study's other settings.

    `stages` are the study's, with the ways to ask and the rows of those that wait for nothing. Where texts were read
    from does not count, what they say does; neither do comments, layout or the order of rows. How a provider's bodies
    are built counts, so a changed wire is a changed version.
    """
    if isinstance(study, Study):
        ((stage, configs, rows),) = stages
        return _pairwise_version(study, stage, configs, [row.item() for row in rows])
    parts = [to_json(study)]
    for stage, configs, rows in stages:
        parts += [config.fingerprint for config in configs]
        parts += sorted(_placed(row, stage).item_hash for row in rows)
    return ids.digest("staged study", *parts)


def _pairwise_version(study: Study, stage: StageSpec, configs: Sequence[ModelConfig], items: Sequence[Item]) -> str:
    settings = config(study)
    del settings["items"], settings["templates"]
    parts = [orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)]
    parts += [item.item_hash.encode() for item in items]
    parts += [template.template_hash.encode() for template in stage.templates]
    parts += [
        f"{cell_id(study.name, one.dimensions(template.template_id, rubric.rubric_id))} {one.fingerprint}".encode()
        for one in configs
        for template in stage.templates
        for rubric in study.rubrics
    ]
    return ids.digest("study", *parts)


def _placed(row: SourceRow, stage: StageSpec) -> Item:
    """Return a row as the item that a version knows: the column of its tier gone, the tier said by that name."""
    if row.of_file is None:
        return row.item()
    more = {name: value for name, value in row.more.items() if name != stage.rows.columns.get("tier")}
    return dataclasses.replace(row, more=more, of_file=None).item()
