"""The stages of a study file: `[[stages]]`, or the one stage that a file with a `task` of its own is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from batchpond.answers import derive
from batchpond.files import read_text
from batchpond.study import parts, tables
from batchpond.study.spec import ItemsFrom, PairsSpec
from batchpond.study.stages import inputs as stage_inputs
from batchpond.study.stages.spec import (
    CONVERSATION,
    INPUTS,
    OWN_OUTPUT_TASKS,
    PAIR_TASKS,
    Kept,
    RowsSpec,
    StageSpec,
)
from batchpond.study.statements import read as statements
from batchpond.study.toml import Table
from batchpond.tasks import tactics
from batchpond.tasks.base import Rule
from batchpond.tasks.rubrics import Rubric
from batchpond.tasks.tactics import Tactic
from batchpond.tasks.templates import SIZE_MAX_BYTES, Template, builtin

_OF_FILE: Final = ("path", "folder", "sql", "id", "text")
_COLUMNS: Final = ("rubric", "unit", "candidate", "tier")
_FIRST_TURN: Final = Template("first_turn", "{INPUT}")


def stages(root: Table, written: Sequence[tables.Stage], base_path: Path) -> tuple[StageSpec, ...]:
    """Return a study's stages, each after those it waits for; raises StudyError."""
    found: list[StageSpec] = []
    names: set[str] = set()
    for table, stage in zip(root.elements("stages"), written, strict=True):
        if stage.name in names:
            table.fail("name", f"is {stage.name!r} a second time")
        names.add(stage.name)
        found += of_one(stage.name, table, stage, base_path, found)
    return tuple(found)


def of_one(
    name: str, table: Table, written: tables.StageKeys, base_path: Path, earlier: Sequence[StageSpec]
) -> tuple[StageSpec, ...]:
    """Return the stages that one stage of the file is carried out by: one, but where questions are made in rounds."""
    if written.task == INPUTS and stage_inputs.is_chain(table):
        return stage_inputs.stages(name, table, written, _rubrics(table, written, base_path))
    return (_stage(name, table, written, base_path, earlier),)


def _stage(
    name: str, table: Table, written: tables.StageKeys, base_path: Path, earlier: Sequence[StageSpec]
) -> StageSpec:
    task = written.task
    rule = _rule(table, written)
    is_talk = task == CONVERSATION
    stage = StageSpec(
        name=name,
        task=task,
        rows=_rows(table, written, earlier),
        rule=rule,
        templates=(_FIRST_TURN,) if is_talk else _templates(table, written, rule, base_path),
        models=parts.models(table, "models", written.models),
        rubrics=_rubrics(table, written, base_path),
        pairs=parts.pairs(table.inside("pairs"), written.pairs) if task == "pairwise" else PairsSpec(),
        repeats=written.repeats,
        tactics=_tactics(table, written) if is_talk else (),
        turns=written.turns if is_talk else 0,
        is_cold_start=written.cold_start,
        expected_share=1.0 if written.expected_share is None else written.expected_share,
        expected_output_tokens=written.expected_output_tokens,
        tier=written.tier,
        is_structured=written.structured,
    )
    _check_keys(table, stage)
    _check(table, stage)
    _check_rubrics(table, stage, earlier)
    return stage


def _rule(table: Table, written: tables.StageKeys) -> Rule:
    settings = table.inside("answer")
    rule = parts.answer(settings, "generation" if written.task == CONVERSATION else written.task)
    derive.check(rule, settings.where())
    return rule


def _check_keys(table: Table, stage: StageSpec) -> None:
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


def _check(table: Table, stage: StageSpec) -> None:
    if table.has("expected_share") and stage.rows.where is None and stage.rows.sql is None:
        table.fail("expected_share", "has no meaning without items.where, or items.sql with items.after")
    if stage.task == "ranking" and stage.rows.stage is None and "candidate" not in stage.rows.columns:
        table.fail("items", "has no candidate, whose outputs a ranking compares", 'add `candidate = "column"`')
    if stage.is_cold_start:
        for tactic in stage.tactics:
            if not tactic.opening:
                table.fail("cold_start", f"needs an opening for the tactic {tactic.tactic_id}")
    if table.has("repeats") and table.inside("pairs").has("repeats"):
        table.fail("repeats", "cannot be given together with pairs.repeats")
    if stage.repeats > 1 and stage.pairs.adaptive is not None:
        table.fail("repeats", "has no meaning with adaptive pairs", "a pair is asked at most once in each order")
    if stage.repeats > 1 and stage.task in OWN_OUTPUT_TASKS:
        table.fail("repeats", "has no meaning where a later stage judges the answers", "name the model twice instead")


def _check_rubrics(table: Table, stage: StageSpec, earlier: Sequence[StageSpec]) -> None:
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


def _rows(table: Table, written: tables.StageKeys, stages: Sequence[StageSpec]) -> RowsSpec:
    if written.items is None:
        table.fail((), "has no items", 'say what is asked about: a file, SQL, or `stage = "..."`')
    asked, items = written.items, table.inside("items")
    kept = {stage.keeps.name: stage.keeps for stage in stages if stage.keeps}
    earlier = {stage.name: (stage.name,) for stage in stages} | {name: one.ratings for name, one in kept.items()}
    columns = {name: str(items.data[name]) for name in _COLUMNS if items.has(name)}
    after = tuple(name for stage in asked.after or () for name in _earlier(items, "after", stage, earlier))
    if asked.stage is not None:
        for other in (*_OF_FILE, *columns):
            if items.has(other):
                items.fail(other, "cannot be given together with stage")
        _earlier(items, "stage", asked.stage, earlier)
        if asked.stage in kept:
            return _kept_rows(items, kept[asked.stage], after)
        return RowsSpec(stage=asked.stage, where=asked.where, after=after)
    if items.has("where"):
        items.fail("where", "needs a stage")
    found = parts.items(items, asked)
    if after and found.source is not ItemsFrom.SQL:
        items.fail("after", "has no meaning with a file, which is read when the study is planned")
    if after:
        own = {"id": found.id_column, "text": found.text_column}
        return RowsSpec(sql=found.location, after=after, columns={**own, **columns})
    return RowsSpec(items=found, columns=columns)


def _kept_rows(items: Table, kept: Kept, after: tuple[str, ...]) -> RowsSpec:
    if items.has("where"):
        items.fail("where", f"cannot be given: {kept.name} itself says which questions are kept", "see `keep_below`")
    return RowsSpec(after=after, kept=kept)


def _earlier(items: Table, key: str, name: str, earlier: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the stages that a name in the file stands for."""
    if name not in earlier:
        known = ", ".join(earlier) or "none"
        items.fail(key, f"names {name!r}, which is no earlier stage (earlier: {known})")
    return earlier[name]


def _templates(table: Table, written: tables.StageKeys, rule: Rule, base_path: Path) -> tuple[Template, ...]:
    if written.templates is None:
        table.fail("templates", "is missing", "how to ask: `batchpond templates` shows what is built in")
    found = []
    for spec in parts.templates(table, written.templates, written.task):
        if spec.file is not None:
            template = Template(spec.template_id, read_text(base_path / spec.file, SIZE_MAX_BYTES))
        elif spec.text is not None:
            template = Template(spec.template_id, spec.text)
        else:
            template = builtin(written.task)[spec.template_id]
        template.check(spec.file or table.where("templates"), rule.placeholders)
        found.append(template)
    return tuple(found)


def _rubrics(table: Table, written: tables.StageKeys, base_path: Path) -> tuple[Rubric, ...]:
    match written.rubrics:
        case None:
            return ()
        case tables.RubricsFile(path=path):
            return statements.read(base_path / path)
        case _:
            return parts.rubrics(table, written.rubrics)


def _tactics(table: Table, written: tables.StageKeys) -> tuple[Tactic, ...]:
    """Return the tactics named, `use = ...` or written out; the false research of three phrases if none is."""
    known = tactics.builtin()
    if written.tactics is None:
        return (known["false_research"],)
    found: list[Tactic] = []
    for one, tactic in zip(table.elements("tactics"), written.tactics, strict=True):
        if isinstance(tactic, str) or tactic.use is not None:
            found.append(known[one.choose("use", one.required("use"), sorted(known))])
            continue
        found.append(Tactic(one.required("id"), tactic.category, tactic.phrases, tactic.opening))
        found[-1].check(one.where())
    if len({tactic.tactic_id for tactic in found}) != len(found):
        table.fail("tactics", "names one twice")
    return tuple(found)
