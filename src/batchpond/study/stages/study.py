"""The stages of a study file: `[[stages]]`, or the one stage that a file with a `task` of its own is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchpond.answers import derive
from batchpond.files import read_text
from batchpond.study.spec import ItemsFrom, ItemsSpec, PairsSpec, TemplateSpec
from batchpond.study.stages import inputs as stage_inputs
from batchpond.study.stages.spec import (
    CONVERSATION,
    INPUTS,
    MAIN_STAGE,
    OWN_OUTPUT_TASKS,
    PAIR_TASKS,
    TIER_MAX,
    Kept,
    RowsSpec,
    StageSpec,
)
from batchpond.study.statements import read as statements
from batchpond.study.toml_table import TomlTable
from batchpond.tasks import registry
from batchpond.tasks.base import Rule
from batchpond.tasks.pressure import tactics as pressure_tactics
from batchpond.tasks.pressure.tactics import Tactic
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.templates import SIZE_MAX_BYTES, Template, builtin

STAGES_MAX: Final = 100
TACTICS_MAX: Final = 1_000
TURNS_MAX: Final = 50
NAME: Final = "[a-z0-9][a-z0-9_-]{0,63}"
KEYS: Final = ("task", "items", "pairs", "rubrics", "templates", "answer", "models", "repeats", "tactics", "turns",
               "cold_start", "tier", "structured", "expected_share", "expected_output_tokens",
               *stage_inputs.KEYS)  # fmt: skip
_ITEMS: Final = ("path", "folder", "sql", "id", "text", "stage", "where", "after", "rubric", "unit", "candidate",
                 "tier")  # fmt: skip
_OWN_ITEMS: Final = frozenset({"path", "folder", "sql", "id", "text"})
_COLUMNS: Final = ("rubric", "unit", "candidate", "tier")
_FIRST_TURN: Final = Template("first_turn", "{INPUT}")


@dataclass(frozen=True, slots=True)
class Readers:
    """How the parts that all studies share are read; `study` gives them."""

    answer: Callable[[TomlTable], Rule]
    items: Callable[[TomlTable], ItemsSpec]
    pairs: Callable[[TomlTable], PairsSpec]
    rubrics: Callable[[TomlTable], tuple[Rubric, ...]]
    models: stage_inputs.Models
    templates: Callable[[TomlTable, str], tuple[TemplateSpec, ...]]


def stages(root: TomlTable, readers: Readers, base_path: Path) -> tuple[StageSpec, ...]:
    """Return a study's stages, each after those it waits for; raises StudyError."""
    if not root.has("stages"):
        return _stages(MAIN_STAGE, root, readers, base_path, ())
    found: list[StageSpec] = []
    names: set[str] = set()
    for key, entry in root.entries("stages", STAGES_MAX):
        table = TomlTable(root.source, root.text, key, entry, ("name", *KEYS))
        name = table.string("name", pattern=NAME)
        if name in names:
            table.fail("name", f"is {name!r} a second time")
        names.add(name)
        found += _stages(name, table, readers, base_path, found)
    return tuple(found)


def _stages(
    name: str, table: TomlTable, readers: Readers, base_path: Path, earlier: Sequence[StageSpec]
) -> tuple[StageSpec, ...]:
    """Return the stages that one stage of the file is carried out by: one, but where questions are made in rounds."""
    task = table.choice("task", "pairwise", (*registry.NAMES, CONVERSATION))
    if task == INPUTS and stage_inputs.is_chain(table):
        return stage_inputs.stages(name, table, _rubrics(table, readers, base_path), readers.models)
    return (_stage(name, task, table, readers, base_path, earlier),)


def _stage(
    name: str, task: str, table: TomlTable, readers: Readers, base_path: Path, earlier: Sequence[StageSpec]
) -> StageSpec:
    rule = _rule(table, task, readers)
    is_talk = task == CONVERSATION
    stage = StageSpec(
        name=name,
        task=task,
        rows=_rows(table, readers, earlier),
        rule=rule,
        templates=(_FIRST_TURN,) if is_talk else _templates(table, task, rule, readers, base_path),
        models=readers.models(table, "models"),
        rubrics=_rubrics(table, readers, base_path),
        pairs=readers.pairs(table) if task == "pairwise" else PairsSpec(),
        repeats=table.integer("repeats", 1, 1, 1_000) or 1,
        tactics=_tactics(table) if is_talk else (),
        turns=(table.integer("turns", 3, 0, TURNS_MAX) or 0) if is_talk else 0,
        is_cold_start=table.boolean("cold_start", False),
        expected_share=table.number("expected_share", 1.0, 0, 1) or 0.0,
        expected_output_tokens=table.integer("expected_output_tokens", None, 1, 10_000_000),
        tier=table.integer("tier", None, 1, TIER_MAX),
        is_structured=table.boolean("structured", False),
    )
    _check_keys(table, stage)
    _check(table, stage)
    _check_rubrics(table, stage, earlier)
    return stage


def _rule(table: TomlTable, task: str, readers: Readers) -> Rule:
    if task == "pairwise":
        return readers.answer(table)
    name = "generation" if task == CONVERSATION else task
    settings = table.data.get("answer", {})
    if not isinstance(settings, dict):
        table.fail("answer", "must be a table")
    rule = registry.task(name).rule(settings, table.where("answer"))
    derive.check(rule, table.where("answer"))
    return rule


def _check_keys(table: TomlTable, stage: StageSpec) -> None:
    """Refuse keys that mean nothing to the stage's task."""
    for name in ("tactics", "turns", "cold_start"):
        if table.has(name) and stage.task != CONVERSATION:
            table.fail(name, f"has no meaning for the task {stage.task}", f'it belongs to `task = "{CONVERSATION}"`')
    for name in stage_inputs.KEYS:
        if table.has(name):
            table.fail(name, f"has no meaning for the task {stage.task}", "it is for inputs that are made in rounds")
    if table.has("pairs") and stage.task != "pairwise":
        table.fail("pairs", f"has no meaning for the task {stage.task}")
    if stage.is_structured and stage.output_schema is None:
        table.fail("structured", f"has no meaning for answers of the task {stage.task} as they are read here",
                   "compliance, likert and pressure answers in JSON can be held to a schema")  # fmt: skip


def _check(table: TomlTable, stage: StageSpec) -> None:
    if table.has("expected_share") and stage.rows.where is None and stage.rows.sql is None:
        table.fail("expected_share", "has no meaning without items.where, or items.sql with items.after")
    if stage.task == "ranking" and stage.rows.stage is None and "candidate" not in stage.rows.columns:
        table.fail("items", "has no candidate, whose outputs a ranking compares", 'add `candidate = "column"`')
    if stage.is_cold_start:
        for tactic in stage.tactics:
            if not tactic.opening:
                table.fail("cold_start", f"needs an opening for the tactic {tactic.tactic_id}")
    if stage.repeats > 1 and stage.pairs.adaptive is not None:
        table.fail("repeats", "has no meaning with adaptive pairs", "a pair is asked at most once in each order")
    if stage.repeats > 1 and stage.task in OWN_OUTPUT_TASKS:
        table.fail("repeats", "has no meaning where a later stage judges the answers", "name the model twice instead")


def _check_rubrics(table: TomlTable, stage: StageSpec, earlier: Sequence[StageSpec]) -> None:
    kept = stage.rows.kept
    wanted = stage.rows.stage if kept is None else kept.questions[0]
    source = next((other for other in earlier if other.name == wanted), None)
    if source is None:
        return
    if source.task in PAIR_TASKS and stage.pairs.adaptive is not None:
        table.fail("pairs", f"cannot be adaptive: this stage compares just what {source.name} compared")
    if source.task == CONVERSATION and stage.rubrics:
        table.fail("rubrics", f"cannot be given: conversations of {source.name} are judged by their tactics")
    known = {rubric.rubric_id for rubric in stage.rubrics}
    lacking = [rubric.rubric_id for rubric in source.rubrics if known and rubric.rubric_id not in known]
    if (source.task in OWN_OUTPUT_TASKS or kept) and lacking:
        name = kept.name if kept else source.name
        table.fail("rubrics", f"lacks {lacking[0]!r}, to which answers of {name} belong")


def _rows(table: TomlTable, readers: Readers, stages: Sequence[StageSpec]) -> RowsSpec:
    if not table.has("items"):
        table.fail(None, "has no items", 'say what is asked about: a file, SQL, or `stage = "..."`')
    items = table.table("items", _ITEMS)
    kept = {stage.keeps.name: stage.keeps for stage in stages if stage.keeps}
    earlier = {stage.name: (stage.name,) for stage in stages} | {name: one.ratings for name, one in kept.items()}
    columns = {name: items.string(name) for name in _COLUMNS if items.has(name)}
    after = tuple(name for written in _after(items) for name in _earlier(items, "after", written, earlier))
    if items.has("stage"):
        for other in ("path", "folder", "sql", "id", "text", *columns):
            if items.has(other):
                items.fail(other, "cannot be given together with stage")
        stage = items.string("stage")
        _earlier(items, "stage", stage, earlier)
        where = items.string("where", size_max=10_000) if items.has("where") else None
        if stage in kept:
            return _kept_rows(items, kept[stage], after)
        return RowsSpec(stage=stage, where=where, after=after)
    if items.has("where"):
        items.fail("where", "needs a stage")
    own = {name: value for name, value in items.data.items() if name in _OWN_ITEMS}
    found = readers.items(TomlTable(table.source, table.text, table.key, {"items": own}, ("items",)))
    if after and found.source is not ItemsFrom.SQL:
        items.fail("after", "has no meaning with a file, which is read when the study is planned")
    if after:
        own = {"id": found.id_column, "text": found.text_column}
        return RowsSpec(sql=found.location, after=after, columns={**own, **columns})
    return RowsSpec(items=found, columns=columns)


def _kept_rows(items: TomlTable, kept: Kept, after: tuple[str, ...]) -> RowsSpec:
    if items.has("where"):
        items.fail("where", f"cannot be given: {kept.name} itself says which questions are kept", "see `keep_below`")
    return RowsSpec(after=after, kept=kept)


def _after(items: TomlTable) -> tuple[str, ...]:
    return items.strings("after", ()) if items.has("after") else ()


def _earlier(items: TomlTable, key: str, name: str, earlier: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the stages that a name in the file stands for."""
    if name not in earlier:
        known = ", ".join(earlier) or "none"
        items.fail(key, f"names {name!r}, which is no earlier stage (earlier: {known})")
    return earlier[name]


def _templates(table: TomlTable, task: str, rule: Rule, readers: Readers, base_path: Path) -> tuple[Template, ...]:
    found = []
    for spec in readers.templates(table, task):
        if spec.file is not None:
            template = Template(spec.template_id, read_text(base_path / spec.file, SIZE_MAX_BYTES))
        elif spec.text is not None:
            template = Template(spec.template_id, spec.text)
        else:
            template = builtin(task)[spec.template_id]
        template.check(spec.file or table.where("templates"), rule.placeholders)
        found.append(template)
    return tuple(found)


def _rubrics(table: TomlTable, readers: Readers, base_path: Path) -> tuple[Rubric, ...]:
    written = table.data.get("rubrics")
    if written is None:
        return ()
    if isinstance(written, dict):
        files = table.table("rubrics", ("path",))
        return statements.read(base_path / files.string("path"))
    return readers.rubrics(table)


def _tactics(table: TomlTable) -> tuple[Tactic, ...]:
    """Return the tactics named, `use = ...` or written out; the false research of three phrases if none is."""
    known = pressure_tactics.builtin()
    if not table.has("tactics"):
        return (known["false_research"],)
    found: list[Tactic] = []
    for key, entry in table.entries("tactics", TACTICS_MAX):
        data = {"use": entry} if isinstance(entry, str) else entry
        one = TomlTable(table.source, table.text, key, data, ("use", "id", "category", "phrases", "opening"))
        if one.has("use"):
            found.append(known[one.choice("use", None, sorted(known))])
        else:
            values: Mapping[str, Any] = {name: value for name, value in one.data.items() if name != "id"}
            found.append(pressure_tactics.from_table(one.string("id", pattern=NAME), values, one.where()))
    if len({tactic.tactic_id for tactic in found}) != len(found):
        table.fail("tactics", "names one twice")
    return tuple(found)
