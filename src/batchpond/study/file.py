"""Reading `study.toml`: text in, a checked study out, or an error that says what is wrong.

A stage is one of `[[stages]]`, or what a file with a `task` of its own is. What no single value can say is checked
here: keys that exclude each other, names that must differ.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from batchpond.answers import derive
from batchpond.files import read_bytes, read_text
from batchpond.model import Turn
from batchpond.study import spec, statements, tables
from batchpond.study.spec import (
    CANDIDATE,
    UNIT,
    ItemsFrom,
    ItemsSpec,
    PairsSpec,
    RowsSpec,
    StageSpec,
    Study,
    TemplateSpec,
)
from batchpond.study.tables import CHAIN_KEYS, chain
from batchpond.study.typed import Table, json_schema, parse, read
from batchpond.tasks import inputs, pressure, registry, templates
from batchpond.tasks.answer_fields import Field, FieldsRule
from batchpond.tasks.base import About, Gives, Rule
from batchpond.tasks.pressure import Tactic
from batchpond.tasks.templates import OF_STATEMENT, POINTS, Rubric, Template, column_of
from batchpond.text import did_you_mean

__all__ = ["Study", "load", "parse_study", "schema"]

FILE_SIZE_MAX_BYTES: Final = 4_000_000


def load(path: Path) -> Study:
    """Read and check a study file; raises StudyError that names file, line and key."""
    hint = "`batchpond init` writes an example" if path.exists() else _meant(path)
    return parse_study(read_bytes(path, FILE_SIZE_MAX_BYTES, hint), str(path), path.parent)


def _meant(path: Path) -> str:
    """Return a hint for who names no file: that of the study of this name, the file of the nearest, or how to begin."""
    for one in files_of(path.name, path.parent):
        return f"a file is asked for; that of study {path.name} is {one}"
    files = [one.name for one in sorted(path.parent.glob("*.toml")) if one.is_file()]
    return did_you_mean(path.name, files, "`batchpond init` writes an example")


def files_of(study: str, folder: Path) -> list[Path]:
    """Return the files of a folder that say that they describe a study of this name."""
    said = re.compile(rf"""^study *= *["']{re.escape(study)}["']""", re.MULTILINE)
    files = (one for one in sorted(folder.glob("*.toml")) if one.is_file())
    return [one for one in files if said.search(one.read_bytes().decode("utf-8", "replace"))]


def parse_study(data: bytes, source: str = "study.toml", base_path: Path = Path()) -> Study:
    """Return the study that a file's bytes describe, with the templates and statements that it names."""
    root = parse(data, source)
    file: tables.StagesFile | tables.PairwiseFile | tables.OneStageFile
    written: tuple[TemplateSpec, ...] = ()
    if root.has("stages"):
        file = read(root, tables.StagesFile)
        stages = _stages(root, file.stages, base_path)
    elif _is_plain(root.data):
        file = read(root, tables.PairwiseFile)
        stage, written = _pairs_at_once(root, file, base_path)
        stages = (stage,)
    else:
        file = read(root, tables.OneStageFile)
        stages = _of_one(spec.MAIN_STAGE, root, file, base_path, ())
    if file.shards.segments is not None and file.shards.max_requests is not None:
        root.inside("shards").fail("segments", "cannot be given together with max_requests")
    rules = file.retry
    retry = spec.RetrySpec() if rules is None else spec.RetrySpec(rules.max_attempts, rules.classes, is_automatic=True)
    study = Study(
        file.study, stages, file.seed, file.grid.unsupported, file.shards, retry, file.budget, file.claims, file.report,
        source, base_path, written,
    )  # fmt: skip
    for table in () if study.media else root.elements("stages") or [root]:
        why = "has no effect: no template shows a picture"
        table.inside("items").refuse(["media_max_px"], why, "show a column, `{item.COLUMN as media}`, or leave it out")
    # Pairs alone count their repeats themselves, and a version's name was made of both numbers as they are written.
    if study.is_pairs_alone:
        return study
    repeated = (replace(stage, repeats=max(stage.repeats, stage.pairs.repeats)) for stage in stages)
    return replace(study, stages=tuple(repeated))


def _is_plain(document: Mapping[str, Any]) -> bool:
    """Whether a file without stages is a pairwise study that asks all at once, which is no stage of its own."""
    written = (document.get(name) for name in ("items", "pairs", "answer"))
    items, pairs, answer = (table if isinstance(table, dict) else {} for table in written)
    is_more = pairs.get("select") == "adaptive" or "tier" in items or "fields" in answer
    return document.get("task", "pairwise") == "pairwise" and not is_more


_IS_PLAIN: Final = {
    "properties": {
        "task": {"const": "pairwise"},
        "items": {"properties": {"tier": False}},
        "pairs": {"properties": {"select": {"not": {"const": "adaptive"}}}},
        "answer": {"properties": {"fields": False}},
    }
}
"""`_is_plain` as a JSON Schema."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema of study files, which editors complete and check them by."""
    kinds = tables.StagesFile, tables.PairwiseFile, tables.OneStageFile, Field
    (stages, plain, one_stage, field), found = json_schema(*kinds)
    for stage in (found["Stage"], found["OneStageFile"]):
        fields = {"anyOf": [{"type": "object"}, {"type": "array", "items": field}]}
        stage["properties"]["answer"]["properties"] = {"fields": fields}
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


_OF_FILE: Final = ("path", "folder", "sql", "id", "text")
_COLUMNS: Final = ("rubric", "unit", "candidate", "input", "tier")
_FIRST_TURN: Final = Template("first_turn", "{INPUT}")


def _stages(root: Table, written: Sequence[tables.Stage], base_path: Path) -> tuple[StageSpec, ...]:
    found: list[StageSpec] = []
    for place, (table, stage) in enumerate(zip(root.elements("stages"), written, strict=True)):
        if any(before.name == stage.name for before in written[:place]):
            table.fail("name", f"is {stage.name!r} a second time")
        found += _of_one(stage.name, table, stage, base_path, found)
    return tuple(found)


def _pairs_at_once(
    root: Table, file: tables.PairwiseFile, base_path: Path
) -> tuple[StageSpec, tuple[TemplateSpec, ...]]:
    """Return the one stage of a plain pairwise study, and its templates as they are written."""
    file.answer.check(root.where("answer"))
    rows = RowsSpec(items=_items_of(root.inside("items"), file.items))
    pairs, rubrics = _pairs_of(root.inside("pairs"), file.pairs), _rubrics_of(root, file.rubrics)
    written, models = _specs_of(root, file.templates), spec.models_of(root, "models", file.models)
    found = _with_texts(root, written, file.task, file.answer, base_path)
    stage = StageSpec(spec.MAIN_STAGE, file.task, rows, file.answer, found, models, rubrics, pairs, pairs.repeats)
    _check_points(root, stage)
    return spec.with_answers(root, stage, ()), written


def _of_one(
    name: str, table: Table, written: tables.StageKeys, base_path: Path, earlier: Sequence[StageSpec]
) -> tuple[StageSpec, ...]:
    """Return the stages that one stage of the file is carried out by: one, but where questions are made in rounds."""
    if written.task == inputs.TASK and not table.has("items"):  # it stands for all its rounds
        return chain(name, table, written, _rubrics(table, written, base_path))
    return (_stage(name, table, written, base_path, earlier),)


def _stage(
    name: str, table: Table, written: tables.StageKeys, base_path: Path, earlier: Sequence[StageSpec]
) -> StageSpec:
    task, settings = written.task, table.inside("answer")
    is_talk = task == spec.CONVERSATION
    rule = written.lists.read_by(rule_of(settings, "generation" if is_talk else task))
    derive.check(rule, settings.where())
    rows = _rows(table, written, earlier)
    found = (_first_turns if is_talk else _templates)(table, written, rule, base_path)
    by = _fields_of(table, rule) if isinstance(rule, FieldsRule) else _rubrics(table, written, base_path, found)
    stage = StageSpec(
        name=name,
        task=task,
        rows=rows,
        rule=rule,
        templates=found,
        models=spec.models_of(table, "models", written.models),
        rubrics=by,
        pairs=_pairs_of(table.inside("pairs"), written.pairs) if rule.ABOUT.is_of_two else written.lists.as_pairs,
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
    _check_points(table, stage)
    _check_rubrics(table, stage, earlier)
    return spec.with_answers(table, stage, earlier)


def _fields_of(table: Table, rule: FieldsRule) -> tuple[Rubric, ...]:
    """Return the fields of an answer as what is judged by; raises StudyError where something else is too."""
    for part, key in ((table, "rubrics"), (table.inside("items"), "rubric")):
        part.refuse([key], "cannot be given together with [[answer.fields]]", "each field is what is judged by")
    if table.inside("pairs").data.get("select") == spec.Select.ADAPTIVE:
        why = "cannot be adaptive together with [[answer.fields]]: each field would ask for other pairs"
        table.inside("pairs").fail("select", why, "choose pairs by share, count or a file")
    return tuple(Rubric(name, name, part.description) for name, part in rule.parts.items())


def _check_keys(table: Table, stage: StageSpec) -> None:
    why = f"has no meaning for the task {stage.task}"
    if stage.about is not About.TALK:
        table.refuse(("tactics", "turns", "cold_start"), why, f'it belongs to `task = "{spec.CONVERSATION}"`')
    table.refuse(CHAIN_KEYS, why, "it is for inputs that are made in rounds")
    pairs = table.inside("pairs")
    if stage.about is About.CANDIDATES:
        others = [name for name in pairs.data if name != "baseline"]
        pairs.refuse(others, why, "each two candidates, or each and the `baseline`, are asked about in both orders")
    elif stage.about is not About.PAIR:
        table.refuse(["pairs"], why)
    else:
        pairs.refuse(["baseline"], why, 'it belongs to `task = "ranking"`, whose items are candidates\' answers')
    if stage.is_structured and stage.output_schema is None:
        table.fail("structured", f"has no meaning for answers of the task {stage.task} as they are read here",
                   "compliance, likert, listwise, pressure answers in JSON and fields can be held to one")  # fmt: skip


def _check(table: Table, stage: StageSpec) -> None:
    if table.has("expected_share") and stage.rows.where is None and stage.rows.sql is None:
        table.fail("expected_share", "has no meaning without items.where, or items.sql with items.after")
    if stage.about is About.CANDIDATES and stage.rows.stage is None and "candidate" not in stage.rows.columns:
        table.fail("items", "has no candidate, whose outputs a ranking compares", 'add `candidate = "column"`')
    if stage.is_cold_start:
        for tactic in stage.tactics:
            if not tactic.opening:
                table.fail("cold_start", f"needs an opening for the tactic {tactic.tactic_id}")
    if stage.waits:
        why = f"this stage waits for {', '.join(stage.rows.waits_for)}"
        problem = f"is of items that are there when the study is planned; {why}"
        table.inside("pairs").refuse(("path", "sql", "block"), problem)
    if stage.rows.sql is not None and any(template.media for template in stage.templates):
        table.fail(
            "templates", "show pictures of rows that only SQL will give", "a stage that names one shows its items'"
        )
    if table.has("repeats") and table.inside("pairs").has("repeats"):
        table.fail("repeats", "cannot be given together with pairs.repeats")
    if stage.repeats > 1 and stage.pairs.adaptive is not None:
        table.fail("repeats", "has no meaning with adaptive pairs", "a pair is asked at most once in each order")
    if stage.repeats > 1 and stage.about is About.TALK:
        table.fail("repeats", "has no meaning for conversations", "each goes on from its own one answer before")


def _check_points(table: Table, stage: StageSpec) -> None:
    if not stage.rule.EARNS and any(rubric.points is not None for rubric in stage.rubrics):
        why = f"give points, which answers of the task {stage.task} cannot earn"
        table.fail("rubrics", why, "of compliance they do: what is met earns them")


def _check_rubrics(table: Table, stage: StageSpec, earlier: Sequence[StageSpec]) -> None:
    kept = stage.rows.kept
    wanted = stage.rows.stage if kept is None else kept.questions[0]
    source = next((other for other in earlier if other.name == wanted), None)
    tables.check_lists(table, stage, source)
    if source is None:
        return
    made_by = spec.made_by(stage, {one.name: one for one in earlier})
    if made_by.gives is Gives.OUTPUT:
        _check_candidates(table, stage, made_by)
    pairs = stage.pairs
    is_of_all = pairs.adaptive is not None or pairs.is_exact or pairs.n_reverse is not None or pairs.baseline
    if source.about.is_of_two and is_of_all:
        why = "cannot have a baseline" if pairs.baseline else "cannot be adaptive or exact"
        table.fail("pairs", f"{why}: this stage compares just what {source.name} compared", "choose the pairs there")
    if source.about is About.TALK and stage.rubrics and not stage.rule.parts:
        table.fail("rubrics", f"cannot be given: conversations of {source.name} are judged by their tactics")
    if source.rule.parts and stage.rows.where is not None and "rubric_id" not in stage.rows.where:
        first = next(iter(source.rule.parts))
        why = f"does not say which field of {source.name} it is about, and each has a row of its own"
        table.inside("items").fail("where", why, f"for example rubric_id = '{first}' and ...")
    if stage.rule.parts:  # which judge whatever the rows belong to
        return
    known = {rubric.rubric_id for rubric in stage.rubrics}
    lacking = [rubric.rubric_id for rubric in source.rubrics if known and rubric.rubric_id not in known]
    if (source.gives is Gives.OUTPUT or kept) and lacking:
        name = kept.name if kept else source.name
        table.fail("rubrics", f"lacks {lacking[0]!r}, to which answers of {name} belong")


def _check_candidates(table: Table, stage: StageSpec, made_by: StageSpec) -> None:
    names, baseline = spec.candidates_of(made_by), stage.pairs.baseline
    n_needed = 2 if stage.about is About.CANDIDATES else stage.rule.size
    if len(names) < n_needed:
        why = f"are answers of {made_by.name}, of which each question has {len(names)}"
        table.fail(
            "items", f"{why}, and this stage compares {n_needed}", "ask more models there: nothing would be compared"
        )
    if baseline not in (None, *names):
        table.fail(
            ("pairs", "baseline"), f"is {baseline!r}, which nobody of {made_by.name} is called", ", ".join(names)
        )


def _rows(table: Table, written: tables.StageKeys, stages: Sequence[StageSpec]) -> RowsSpec:
    if written.items is None:
        table.fail((), "has no items", 'say what is asked about: a file, SQL, or `stage = "..."`')
    asked, items = written.items, table.inside("items")
    kept = {stage.keeps.name: stage.keeps for stage in stages if stage.keeps}
    earlier = {stage.name: (stage.name,) for stage in stages} | {name: one.ratings for name, one in kept.items()}
    columns = {name: str(items.data[name]) for name in _COLUMNS if items.has(name)}
    after = tuple(name for stage in asked.after or () for name in _earlier(items, "after", stage, earlier))
    if asked.stage is not None or after:
        why = "has no effect on rows that come from other stages"
        items.refuse(["media_max_px"], why, "it stands under the items whose pictures are read: those of a file")
    if asked.stage is not None:
        of_questions = {name: column for name, column in columns.items() if name == "rubric"}
        items.refuse((*_OF_FILE, *(columns.keys() - of_questions)), "cannot be given together with stage")
        _earlier(items, "stage", asked.stage, earlier)
        source = next((stage for stage in stages if stage.name == asked.stage), None)
        if of_questions and (source is None or not source.answers_once or source.rows.items is None):
            hint = "it names the column of a file's questions that says by what their answers are judged"
            items.fail("rubric", f"cannot be given: {asked.stage} does not answer the items of a file", hint)
        if (own := kept.get(asked.stage)) is not None:
            why = f"cannot be given: {own.name} itself says which questions are kept"
            items.refuse(["where"], why, "see `keep_below`")
            return RowsSpec(after=after, kept=own)
        return RowsSpec(stage=asked.stage, where=asked.where, after=after, columns=of_questions)
    items.refuse(["where"], "needs a stage")
    found = _items_of(items, asked)
    if asked.candidates:
        found = _by_candidate(items, found, asked.candidates)
        columns = {"unit": UNIT, **columns, "candidate": CANDIDATE}
    if after and asked.candidates:
        items.fail("candidates", "cannot be given together with after", "let the SQL give a row for each output")
    if after and found.source is not ItemsFrom.SQL:
        items.fail("after", "has no meaning with a file, which is read when the study is planned")
    if after:
        named = {"id": found.id_column, "text": found.text_column}
        return RowsSpec(sql=found.location, after=after, columns={**named, **columns})
    return RowsSpec(items=found, columns=columns)


def _by_candidate(items: Table, found: ItemsSpec, candidates: tuple[str, ...]) -> ItemsSpec:
    """Return items of which each row has several, each candidate's output in a column of its own."""
    why = "cannot be given together with candidates"
    items.refuse(
        ("text", "candidate"), why, "each of those columns is the text of the candidate that it is named after"
    )
    if found.source in {ItemsFrom.FOLDER, ItemsFrom.LINES}:
        items.fail("candidates", "are columns, and there are none", "write a .csv, .jsonl or .parquet file")
    if found.id_column in candidates:
        items.fail("candidates", f"names {found.id_column!r}, the column of the ids", "`id` names another")
    return replace(found, text_column=candidates[0], candidates=candidates)


def _earlier(items: Table, key: str, name: str, earlier: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    if name not in earlier:
        known = ", ".join(earlier) or "none"
        items.fail(key, f"names {name!r}, which is no earlier stage (earlier: {known})")
    return earlier[name]


def _templates(table: Table, written: tables.StageKeys, rule: Rule, base_path: Path) -> tuple[Template, ...]:
    if written.templates is None:
        table.fail("templates", "is missing", "how to ask: `batchpond templates` shows what is built in")
    return _with_texts(table, _specs_of(table, written.templates, written.task), written.task, rule, base_path)


def _first_turns(table: Table, written: tables.StageKeys, rule: Rule, base_path: Path) -> tuple[Template, ...]:
    """Return how conversations begin: with the question, and what the templates' other turns say before it."""
    if written.templates is None:
        return (_FIRST_TURN,)
    found = _templates(table, written, rule, base_path)
    for place, template in enumerate(found):
        *before, last = template.turns
        is_alone = last.text == _FIRST_TURN.text and not template.columns
        if not is_alone or any(rule.placeholders.pattern.search(turn.text) for turn in before):
            table.fail(("templates", place), "must end with {INPUT} alone, and shows neither columns nor pictures")
    return found


def _with_texts(
    table: Table, specs: Sequence[TemplateSpec], task: str, rule: Rule, base_path: Path
) -> tuple[Template, ...]:
    """Return templates with their texts; raises StudyError for one that cannot be used."""
    found = []
    for place, one in enumerate(specs):
        if one.file is not None:
            text = read_text(base_path / one.file, templates.SIZE_MAX_BYTES)
        else:
            text = templates.builtin(task)[one.template_id].text if one.text is None else one.text
        template = Template(one.template_id, text, rule.placeholders.columns(text, one.literal))
        turns = [message.where() for message in table.elements("templates")[place].elements("messages")]
        where = one.file or table.where("templates", place, "messages" if turns else "text")
        template.check(where, rule.placeholders, one.literal, turns)
        rule.check_shown(where, text)
        found.append(template)
    return tuple(found)


def _rubrics(
    table: Table, written: tables.StageKeys, base_path: Path, shown_by: Sequence[Template] = ()
) -> tuple[Rubric, ...]:
    match written.rubrics:
        case None:
            return ()
        case tables.RubricsFile(path=path, points=points):
            columns = {name for template in shown_by for name in template.columns}
            shown = {column_of(name) for name in columns if name.partition(".")[0] == OF_STATEMENT}
            return statements.read(base_path / path, shown, points)
        case _:
            return _rubrics_of(table, written.rubrics)


def _tactics(table: Table, written: tables.StageKeys) -> tuple[Tactic, ...]:
    """Return the tactics named, `use = ...` or written out; the false research of three phrases if none is."""
    known = pressure.tactics()
    if written.tactics is None:
        return (known["false_research"],)
    found: list[Tactic] = []
    for one, tactic in zip(table.elements("tactics"), written.tactics, strict=True):
        if isinstance(tactic, str) or tactic.use is not None:
            found.append(known[one.choose("use", one.required("use"), sorted(known))])
            continue
        found.append(Tactic(one.required("id"), tactic.category, tactic.phrases, tactic.opening))
        found[-1].check(one.where(), tactic.literal)
    if len({tactic.tactic_id for tactic in found}) != len(found):
        table.fail("tactics", "names one twice")
    return tuple(found)


SUFFIXES: Final = {
    ".csv": ItemsFrom.CSV,
    ".tsv": ItemsFrom.CSV,
    ".jsonl": ItemsFrom.JSONL,
    ".ndjson": ItemsFrom.JSONL,
    ".parquet": ItemsFrom.PARQUET,
    ".txt": ItemsFrom.LINES,
}
ADAPTIVE_KEYS: Final = tuple(key.name for key in dataclasses.fields(spec.AdaptiveSpec))
REVERSE_OF_ADAPTIVE: Final = 0.1


def _items_of(table: Table, written: tables.Items) -> ItemsSpec:
    kind = _one_of(table, ("path", "folder", "sql"))
    location = str(table.data[kind])
    source = _file_kind(table, location) if kind == "path" else ItemsFrom(kind)
    own_ids = {ItemsFrom.FOLDER: "folder: ids are the files' names", ItemsFrom.LINES: "lines: ids are their numbers"}
    if source in own_ids and (table.has("id") or table.has("text")):
        table.fail("id" if table.has("id") else "text", f"has no meaning with {own_ids[source]}")
    if written.id == written.text:
        table.fail("text", f"is the same column as id, {written.id!r}")
    return ItemsSpec(source, location, written.id, written.text, written.media_max_px)


def _file_kind(table: Table, location: str) -> ItemsFrom:
    suffix = Path(location).suffix.lower()
    if suffix not in SUFFIXES:
        problem = f"ends with {suffix!r}, not one of {', '.join(SUFFIXES)}"
        table.fail("path", problem, "a folder of .txt files is `folder = ...`")
    return SUFFIXES[suffix]


def _one_of(table: Table, names: Sequence[str]) -> str:
    written = [name for name in names if table.has(name)]
    if len(written) != 1:
        problem = "has none" if not written else f"has {' and '.join(written)}"
        table.fail((), f"{problem}; it needs exactly one of {', '.join(names)}")
    return written[0]


def _pairs_of(table: Table, written: tables.Pairs) -> PairsSpec:
    """Return which pairs are asked; raises StudyError for keys that belong to the other way of choosing."""
    if written.select is spec.Select.ADAPTIVE:
        return _adaptive(table, written)
    lacking = dict.fromkeys(ADAPTIVE_KEYS, '`select = "adaptive"`')
    if not (table.has("path") or table.has("sql")):
        lacking |= {"item_1": "path or sql", "item_2": "path or sql"}
    for name, needed in lacking.items():
        table.refuse([name], f"has a meaning only with {needed}")
    if table.has("share") and table.has("count"):
        table.fail("count", "cannot be given together with share")
    if written.share == 0:
        table.fail("share", "is 0, so no pair would be asked")
    if table.has("n_reverse") and table.has("reverse"):
        table.fail("n_reverse", "cannot be given together with reverse")
    reverse = float(written.n_reverse is None if written.reverse is None else written.reverse)
    given = _given(table, written)
    is_exact = bool(given or written.block) if written.exact is None else written.exact
    return PairsSpec(
        written.share, written.count, written.order, reverse, written.repeats, None, given, written.block,
        written.n_reverse, is_exact, written.baseline,
    )  # fmt: skip


def _given(table: Table, written: tables.Pairs) -> ItemsSpec | None:
    """Return where pairs of one's own stand, their two columns in place of id and text."""
    if not (table.has("path") or table.has("sql")):
        return None
    table.refuse(["block"], "cannot be given together with path or sql", "they say themselves which pairs are asked")
    found = _items_of(table, tables.Items(id=written.item_1, text=written.item_2))
    if found.source is ItemsFrom.LINES:
        table.fail("path", "has no columns that could name two items", "write a .csv, .jsonl or .parquet file")
    return found


def _adaptive(table: Table, written: tables.Pairs) -> PairsSpec:
    for name, hint in (
        ("share", "`count` limits the judgments of each cell"),
        ("order", "a pair's order is random, balanced over each item's pairs"),
        ("repeats", "a pair is asked at most once in each order"),
        *((name, "rounds choose among all pairs of the items") for name in ("path", "sql", "block", "exact")),
        ("n_reverse", "`reverse` is the share of a round"),
    ):
        table.refuse([name], 'has no meaning with `select = "adaptive"`', hint)
    if isinstance(written.reverse, bool):
        table.fail("reverse", 'must be a share with `select = "adaptive"`', f"usual is {REVERSE_OF_ADAPTIVE}")
    reverse = REVERSE_OF_ADAPTIVE if written.reverse is None else written.reverse
    if reverse > spec.HALF:
        table.fail("reverse", f"is {reverse}, not between 0 and {spec.HALF}")
    rules = spec.AdaptiveSpec(**{name: getattr(written, name) for name in ADAPTIVE_KEYS})
    return PairsSpec(count=written.count, reverse=reverse, adaptive=rules)


def _rubrics_of(table: Table, written: Sequence[tables.RubricTable | str]) -> tuple[Rubric, ...]:
    found = [_rubric(one, rubric) for one, rubric in zip(table.elements("rubrics"), written, strict=True)]
    table.refuse_twice("rubrics", [rubric.rubric_id for rubric in found])
    return tuple(found)


def _rubric(table: Table, written: tables.RubricTable | str) -> Rubric:
    known = templates.builtin_rubrics()
    if isinstance(written, str) or written.use is not None:
        others = (name for name in table.data if name != "use")
        table.refuse(others, "cannot be given together with use", "leave out use to describe a rubric of your own")
        return known[table.choose("use", table.required("use"), sorted(known))]
    name, rubric_id, description = (table.required(key) for key in ("name", "id", "description"))
    points = () if written.points is None else ((POINTS, repr(written.points)),)
    return Rubric(rubric_id, name.strip(), description.strip(), points)


def _specs_of(
    table: Table, written: Sequence[tables.TemplateTable | str], task: str = templates.PAIRWISE
) -> tuple[TemplateSpec, ...]:
    found = [_template(one, template, task) for one, template in zip(table.elements("templates"), written, strict=True)]
    table.refuse_twice("templates", [template.template_id for template in found])
    return tuple(found)


def _template(table: Table, written: tables.TemplateTable | str, task: str) -> TemplateSpec:
    _one_of(table, ("use", "file", "text", "messages"))
    if isinstance(written, str) or written.use is not None:
        table.refuse(("id", "literal"), "cannot be given together with use: a built-in template stays as it is")
        return TemplateSpec(table.choose("use", table.required("use"), sorted(templates.builtin(task))))
    if written.file is not None:
        name = written.id or Path(written.file).stem
        if not re.fullmatch(tables.PART_NAME, name):
            why = f"is {name!r}, which does not have the form {tables.PART_NAME}"
            table.fail("id", why, "name it with `id = ...`")
        return TemplateSpec(name, None, written.file, written.literal)
    text = written.text if written.messages is None else _text_of(table, written.messages)
    return TemplateSpec(table.required("id"), text, literal=written.literal)


def _text_of(table: Table, messages: Sequence[tables.MessageTable]) -> str:
    for one, message in zip(table.elements("messages"), messages, strict=True):
        if templates.TURN_MARK.search(message.text):
            one.fail("text", "has a line that begins a turn", "give each turn a message of its own")
    return templates.text_of([Turn(message.role, message.text) for message in messages])


def rule_of(table: Table, task: str) -> Rule:
    """Return the checked rule that answers of a task are read by; `reader` chooses one where there are several."""
    readers = registry.TASKS[task]
    name, *others = (name for name in readers if name not in {Field.READER, FieldsRule.READER})
    written = table.data.get("fields")
    if isinstance(written, list) and all(isinstance(one, dict) for one in written):
        name, others = FieldsRule.READER, []
    if name not in readers:
        hint = 'tasks pairwise, ranking and prompts have them: in prompts `kind = "score"` rates an item by each field'
        table.fail("fields", f"cannot be [[answer.fields]]: an answer of the task {task} is one judgment", hint)
    if others:
        name = table.choose("reader", str(table.data.get("reader", name)), tuple(readers))
        table = table.without("reader")
    rule = read(table, readers[name])
    rule.check(table.where())
    return rule
