"""A staged study as `studies.config` keeps it, whole enough to open every later round from the lake alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import orjson

from batchpond.errors import LakeError
from batchpond.model import ErrorClass, Mode
from batchpond.study.spec import (
    AdaptiveSpec,
    BudgetSpec,
    ItemsFrom,
    ItemsSpec,
    ModelSpec,
    Order,
    PairsSpec,
    RetrySpec,
    ShardsSpec,
    Unsupported,
)
from batchpond.study.stages.spec import Kept, RowsSpec, StagedStudy, StageSpec
from batchpond.tasks import registry
from batchpond.tasks.pressure.tactics import Tactic
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.templates import Template


def to_config(study: StagedStudy) -> dict[str, Any]:
    """Return a study as plain values, without where on this machine it was read from."""
    return {
        "seed": study.seed,
        "unsupported": str(study.unsupported),
        "shards": dataclasses.asdict(study.shards),
        "retry": dataclasses.asdict(study.retry),
        "budget": dataclasses.asdict(study.budget),
        "name": study.name,
        "stages": [_stage_config(stage) for stage in study.stages],
    }


def to_json(study: StagedStudy) -> str:
    """Return `to_config` as text, the same for the same study."""
    return orjson.dumps(to_config(study), option=orjson.OPT_SORT_KEYS).decode("utf-8")


def _stage_config(stage: StageSpec) -> dict[str, Any]:
    plain = dataclasses.asdict(stage)
    plain["rule"] = dict(stage.rule.to_spec())
    if stage.pairs.adaptive is None:
        del plain["pairs"]["adaptive"]
    plain["templates"] = [[t.template_id, t.text] for t in stage.templates]
    plain["rubrics"] = [dataclasses.asdict(rubric) for rubric in stage.rubrics]
    return plain


def from_config(config: Mapping[str, Any]) -> StagedStudy:
    """Return the study that `to_config` wrote; raises LakeError when it is damaged."""
    try:
        return StagedStudy(
            name=config["name"],
            stages=tuple(_stage(entry) for entry in config["stages"]),
            seed=config["seed"],
            unsupported=Unsupported(config["unsupported"]),
            shards=ShardsSpec(**config["shards"]),
            retry=_retry(config["retry"]),
            budget=BudgetSpec(**config["budget"]),
            source=f"study {config['name']}",
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LakeError(
            f"a study's settings in the lake are damaged: {type(error).__name__}: {error}",
            hint="plan the study again: `batchpond plan FILE`",
        ) from None


def _retry(entry: Mapping[str, Any]) -> RetrySpec:
    classes = tuple(ErrorClass(name) for name in entry["classes"])
    return RetrySpec(entry["is_automatic"], entry["max_attempts"], classes)


def _stage(entry: Mapping[str, Any]) -> StageSpec:
    return StageSpec(
        name=entry["name"],
        task=entry["task"],
        rows=_rows(entry["rows"]),
        rule=registry.rule_of(entry["rule"]),
        templates=tuple(Template(template_id, text) for template_id, text in entry["templates"]),
        models=tuple(_model(model) for model in entry["models"]),
        rubrics=tuple(_rubric(rubric) for rubric in entry["rubrics"]),
        pairs=_pairs(entry["pairs"]),
        repeats=entry["repeats"],
        tactics=tuple(Tactic(**{**tactic, "phrases": tuple(tactic["phrases"])}) for tactic in entry["tactics"]),
        turns=entry["turns"],
        is_cold_start=entry["is_cold_start"],
        expected_share=entry["expected_share"],
        expected_output_tokens=entry["expected_output_tokens"],
        keeps=_kept(entry.get("keeps")),
        tier=entry.get("tier"),
        is_structured=entry.get("is_structured", False),
    )


def _pairs(entry: Mapping[str, Any]) -> PairsSpec:
    rules = entry.get("adaptive")
    adaptive = None if rules is None else AdaptiveSpec(**rules)
    return PairsSpec(**{**entry, "order": Order(entry["order"]), "adaptive": adaptive})


def _rubric(entry: Mapping[str, Any]) -> Rubric:
    return Rubric(**{**entry, "more": tuple((name, value) for name, value in entry["more"])})


def _rows(entry: Mapping[str, Any]) -> RowsSpec:
    items = entry["items"]
    found = None if items is None else ItemsSpec(**{**items, "source": ItemsFrom(items["source"])})
    kept, lacking = _kept(entry.get("kept")), _kept(entry.get("lacking"))
    after = tuple(entry["after"])
    return RowsSpec(found, entry["stage"], entry["sql"], entry["where"], after, entry["columns"], kept, lacking)


def _kept(entry: Mapping[str, Any] | None) -> Kept | None:
    if entry is None:
        return None
    return Kept(**{**entry, "questions": tuple(entry["questions"]), "ratings": tuple(entry["ratings"])})


def _model(entry: Mapping[str, Any]) -> ModelSpec:
    return ModelSpec(**{**entry, "thinking": tuple(entry["thinking"]), "mode": Mode(entry["mode"])})
