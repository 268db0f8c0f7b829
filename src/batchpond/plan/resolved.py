"""A study with everything it names read in, and the version that its content has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from batchpond import ids
from batchpond.plan.cells import Cell
from batchpond.plan.items import Item, SqlRows, read_items, read_templates
from batchpond.study.spec import Study
from batchpond.tasks.templates import Template


@dataclass(frozen=True, slots=True)
class Resolved:
    """A study, its items in id order, and its templates with their texts."""

    study: Study
    items: Sequence[Item]
    templates: Sequence[Template]


def resolve(study: Study, run_sql: SqlRows | None = None) -> Resolved:
    """Read what a study names; raises StudyError for anything that cannot be used."""
    return Resolved(study, read_items(study, run_sql), read_templates(study))


def config(study: Study) -> dict[str, Any]:
    """Return a study as plain values, without where on this machine it was read from."""
    values = dataclasses.asdict(study)
    del values["source"], values["base_path"], values["pairs"]["adaptive"]  # a study of rounds is one of stages
    return values


def config_json(study: Study) -> str:
    """Return a study as `studies.config` keeps it."""
    return orjson.dumps(config(study), option=orjson.OPT_SORT_KEYS).decode("utf-8")


def version(resolved: Resolved, cells: Sequence[Cell]) -> str:
    """Return the digest of all that decides what is asked, and of the study's other settings.

    Where texts were read from does not count, what they say does; neither do comments, layout or the
    order of rows. How a provider's bodies are built counts, so a changed wire is a changed version.
    """
    settings = config(resolved.study)
    del settings["items"], settings["templates"]
    parts = [orjson.dumps(settings, option=orjson.OPT_SORT_KEYS)]
    parts += [item.item_hash.encode() for item in resolved.items]
    parts += [template.template_hash.encode() for template in resolved.templates]
    parts += [f"{cell.cell_id} {cell.way.fingerprint}".encode() for cell in cells]
    return ids.digest("study", *parts)
