"""Reading `study.toml`, or a study from the lake: text in, a checked study out, or an error that says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond.errors import LakeError, StudyError
from batchpond.study import stages as stage_study
from batchpond.study import tables
from batchpond.study.spec import MAIN_STAGE, ModelSpec, StageSpec, Study, TemplateSpec, without_checks
from batchpond.study.typed import json_schema, of_plain, parse, read
from batchpond.tasks import registry

__all__ = ["Study", "example", "load", "parse_study", "schema"]

FILE_SIZE_MAX_BYTES: Final = 4_000_000
EXAMPLES: Final = ("pairwise", "stages", "adaptive", "compliance", "live")
COMMENTED: Final = {"pairwise": "commented.toml", "stages": "commented_stages.toml"}
_PATH: Final = re.compile(r'^path = "([^"]+)"', re.MULTILINE)


def load(path: Path) -> Study:
    """Read and check a study file; raises StudyError that names file, line and key."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror or error}", hint="`batchpond init` writes an example") from None
    if len(data) > FILE_SIZE_MAX_BYTES:
        raise StudyError(f"{path}: larger than {FILE_SIZE_MAX_BYTES:,} bytes, which no study file is")
    return parse_study(data, str(path), path.parent)


def example(name: str = EXAMPLES[0], *, is_commented: bool = False) -> str:
    """Return a study that `init` writes, by its name in `EXAMPLES`; commented, one that explains every key there is."""
    return _shipped(COMMENTED[name] if is_commented else f"{name}.toml").read_text("utf-8")


def example_data(text: str) -> dict[str, str]:
    """Return what an example asks about: the files that its `path`s name, by their names."""
    return {name: _shipped("data", name).read_text("utf-8") for name in dict.fromkeys(_PATH.findall(text))}


def _shipped(*names: str) -> Traversable:
    return resources.files("batchpond.study").joinpath("examples", *names)


def parse_study(data: bytes, source: str = "study.toml", base_path: Path = Path()) -> Study:
    """Return the study that a file's bytes describe, with the templates and statements that it names."""
    root = parse(data, source)
    file: tables.StagesFile | tables.PairwiseFile | tables.OneStageFile
    written: tuple[TemplateSpec, ...] = ()
    if root.has("stages"):
        file = read(root, tables.StagesFile)
        stages = stage_study.stages(root, file.stages, base_path)
    elif _is_plain(root.data):
        file = read(root, tables.PairwiseFile)
        stage, written = stage_study.pairs_at_once(root, file, base_path)
        stages = (stage,)
    else:
        file = read(root, tables.OneStageFile)
        stages = stage_study.of_one(MAIN_STAGE, root, file, base_path, ())
    settings = stage_study.settings_of(root, file)
    study = Study(stages=stages, source=source, base_path=base_path, templates=written, **settings)
    # Pairs alone count their repeats themselves, and a version's name was made of both numbers as they are written.
    return study if study.is_pairs_alone else replace(study, stages=tuple(map(_repeated, stages)))


def _repeated(stage: StageSpec) -> StageSpec:
    """Return a stage that asks as often as its pairs say, where they say it."""
    return replace(stage, repeats=max(stage.repeats, stage.pairs.repeats))


def _is_plain(document: Mapping[str, Any]) -> bool:
    """Whether a file without stages is a pairwise study that asks all at once, which is no stage of its own."""
    items, pairs = document.get("items"), document.get("pairs")
    has_tiers = isinstance(items, dict) and "tier" in items
    is_adaptive = isinstance(pairs, dict) and pairs.get("select") == "adaptive"
    return document.get("task", "pairwise") == "pairwise" and not is_adaptive and not has_tiers


_IS_PLAIN: Final = {
    "properties": {
        "task": {"const": "pairwise"},
        "items": {"properties": {"tier": False}},
        "pairs": {"properties": {"select": {"not": {"const": "adaptive"}}}},
    }
}
"""`_is_plain` as a JSON Schema."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of study files, which editors complete and check them by."""
    (stages, plain, one_stage), found = json_schema(tables.StagesFile, tables.PairwiseFile, tables.OneStageFile)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "study.toml",
        "description": "A study of batchpond",
        "type": "object",
        "if": {"required": ["stages"]},
        "then": stages,
        "else": {"if": _IS_PLAIN, "then": plain, "else": one_stage},
        "$defs": found,
    }


_SETTINGS: Final = ("name", "seed", "unsupported", "shards", "retry", "budget")
_STAGE: Final = {key.name for key in fields(StageSpec)} - {"keeps", "tier", "is_structured"}
"""What every stage in a lake has; the others came later."""


def to_config(study: Study) -> dict[str, Any]:
    """Return a study as `studies.config` keeps it: plain values, without where on this machine it was read from.

    They are enough to open every later round from the lake alone.
    """
    plain = asdict(study)
    del plain["source"], plain["base_path"], plain["templates"]
    return {**plain, "stages": [_stage_config(stage) for stage in study.stages]}


def to_json(study: Study) -> str:
    """Return `to_config` as text, the same for the same study."""
    return orjson.dumps(to_config(study), option=orjson.OPT_SORT_KEYS).decode("utf-8")


def _stage_config(stage: StageSpec) -> dict[str, Any]:
    plain = without_checks(asdict(stage))
    plain["rule"] = dict(stage.rule.to_spec())
    if stage.pairs.adaptive is None:
        del plain["pairs"]["adaptive"]
    # Columns came later: a template without them is kept as ever, so that its study keeps its version.
    plain["templates"] = [[t.template_id, t.text, *([t.columns] if t.columns else [])] for t in stage.templates]
    return plain


def from_config(config: Mapping[str, Any]) -> Study:
    """Return the study that `to_config` wrote; raises LakeError when it is damaged."""
    try:
        stages = [_with_named_texts(entry) for entry in config["stages"]]
        known = {name: config[name] for name in _SETTINGS}
        plain = {**known, "stages": stages, "source": f"study {config['name']}"}
        return of_plain(plain, Study, lambda _, rule: registry.rule_of(rule))
    except (KeyError, TypeError, ValueError) as error:
        raise LakeError(
            f"a study's settings in the lake are damaged: {type(error).__name__}: {error}",
            hint="plan the study again: `batchpond plan FILE`",
        ) from None


def spec_of_plain(model: Mapping[str, Any]) -> ModelSpec:
    """Return one model of a study's settings in the lake; raises LakeError when it is damaged."""
    try:
        return of_plain(dict(model), ModelSpec, lambda kind, value: kind(value))
    except (TypeError, ValueError) as error:
        raise LakeError(f"a study's model in the lake is damaged: {error}") from None


def _with_named_texts(entry: Mapping[str, Any]) -> dict[str, Any]:
    if lacking := sorted(_STAGE - entry.keys()):
        raise KeyError(lacking[0])
    named = [dict(zip(("template_id", "text", "columns"), one, strict=False)) for one in entry["templates"]]
    return {**entry, "templates": named}
