"""A staged study as `studies.config` keeps it, whole enough to open every later round from the lake alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import orjson

from batchpond.errors import LakeError
from batchpond.study.stages.spec import StagedStudy, StageSpec
from batchpond.study.typed import of_plain
from batchpond.tasks import registry

_SETTINGS: Final = ("name", "seed", "unsupported", "shards", "retry", "budget")
_STAGE: Final = {key.name for key in dataclasses.fields(StageSpec)} - {"keeps", "tier", "is_structured"}
"""What every stage in a lake has; the others came later."""


def to_config(study: StagedStudy) -> dict[str, Any]:
    """Return a study as plain values, without where on this machine it was read from."""
    plain = dataclasses.asdict(study)
    del plain["source"], plain["base_path"]
    return {**plain, "stages": [_stage_config(stage) for stage in study.stages]}


def to_json(study: StagedStudy) -> str:
    """Return `to_config` as text, the same for the same study."""
    return orjson.dumps(to_config(study), option=orjson.OPT_SORT_KEYS).decode("utf-8")


def _stage_config(stage: StageSpec) -> dict[str, Any]:
    plain = dataclasses.asdict(stage)
    plain["rule"] = dict(stage.rule.to_spec())
    if stage.pairs.adaptive is None:
        del plain["pairs"]["adaptive"]
    plain["templates"] = [[t.template_id, t.text] for t in stage.templates]
    return plain


def from_config(config: Mapping[str, Any]) -> StagedStudy:
    """Return the study that `to_config` wrote; raises LakeError when it is damaged."""
    try:
        stages = [_with_named_texts(entry) for entry in config["stages"]]
        known = {name: config[name] for name in _SETTINGS}
        plain = {**known, "stages": stages, "source": f"study {config['name']}"}
        return of_plain(plain, StagedStudy, lambda _, rule: registry.rule_of(rule))
    except (KeyError, TypeError, ValueError) as error:
        raise LakeError(
            f"a study's settings in the lake are damaged: {type(error).__name__}: {error}",
            hint="plan the study again: `batchpond plan FILE`",
        ) from None


def _with_named_texts(entry: Mapping[str, Any]) -> dict[str, Any]:
    if lacking := sorted(_STAGE - entry.keys()):
        raise KeyError(lacking[0])
    named = [{"template_id": template_id, "text": text} for template_id, text in entry["templates"]]
    return {**entry, "templates": named}
