"""The stages of a study file, made of its tables: `[[stages]]`, or the one that a file with a `task` of its own is.

What no single value can say is checked here: keys that exclude each other, names that must differ.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from batchpond.answers import derive
from batchpond.files import read_text
from batchpond.model import Turn
from batchpond.study import statements, tables
from batchpond.study.spec import (
    CONVERSATION,
    HALF,
    INPUTS,
    MAIN_STAGE,
    OWN_OUTPUT_TASKS,
    PAIR_TASKS,
    AdaptiveSpec,
    ItemsFrom,
    ItemsSpec,
    Kept,
    ModelSpec,
    PairsSpec,
    RetrySpec,
    RowsSpec,
    Select,
    StageSpec,
    TemplateSpec,
)
from batchpond.study.typed import Table, read
from batchpond.tasks import pressure, registry
from batchpond.tasks.base import Rule
from batchpond.tasks.generation import GenerationRule
from batchpond.tasks.inputs import InputsRule
from batchpond.tasks.pressure import Tactic
from batchpond.tasks.templates import (
    PAIRWISE,
    SIZE_MAX_BYTES,
    Rubric,
    Template,
    builtin,
    builtin_rubrics,
    has_turns,
    text_of,
)

_OF_FILE: Final = ("path", "folder", "sql", "id", "text")
_COLUMNS: Final = ("rubric", "unit", "candidate", "input", "tier")
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


def pairs_at_once(
    root: Table, file: tables.PairwiseFile, base_path: Path
) -> tuple[StageSpec, tuple[TemplateSpec, ...]]:
    """Return the one stage of a plain pairwise study, and its templates as they are written."""
    file.answer.check(root.where("answer"))
    rows = RowsSpec(items=items_of(root.inside("items"), file.items))
    pairs, rubrics = pairs_of(root.inside("pairs"), file.pairs), rubrics_of(root, file.rubrics)
    written, models = specs_of(root, file.templates), models_of(root, "models", file.models)
    found = templates(root, written, file.task, file.answer, base_path)
    stage = StageSpec(MAIN_STAGE, file.task, rows, file.answer, found, models, rubrics, pairs, pairs.repeats)
    return stage, written


def of_one(
    name: str, table: Table, written: tables.StageKeys, base_path: Path, earlier: Sequence[StageSpec]
) -> tuple[StageSpec, ...]:
    """Return the stages that one stage of the file is carried out by: one, but where questions are made in rounds."""
    if written.task == INPUTS and not table.has("items"):  # it stands for all its rounds
        return chain(name, table, written, _rubrics(table, written, base_path))
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
        templates=(_first_turns if is_talk else _templates)(table, written, rule, base_path),
        models=models_of(table, "models", written.models),
        rubrics=_rubrics(table, written, base_path),
        pairs=pairs_of(table.inside("pairs"), written.pairs) if task == "pairwise" else PairsSpec(),
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
    rule = rule_of(settings, "generation" if written.task == CONVERSATION else written.task)
    derive.check(rule, settings.where())
    return rule


def _check_keys(table: Table, stage: StageSpec) -> None:
    """Refuse keys that mean nothing to the stage's task."""
    for name in ("tactics", "turns", "cold_start"):
        if table.has(name) and stage.task != CONVERSATION:
            table.fail(name, f"has no meaning for the task {stage.task}", f'it belongs to `task = "{CONVERSATION}"`')
    for name in CHAIN_KEYS:
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
    found = items_of(items, asked)
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
    return templates(table, specs_of(table, written.templates, written.task), written.task, rule, base_path)


def _first_turns(table: Table, written: tables.StageKeys, rule: Rule, base_path: Path) -> tuple[Template, ...]:
    """Return how conversations begin: with the question, and what the templates' other turns say before it."""
    if written.templates is None:
        return (_FIRST_TURN,)
    found = _templates(table, written, rule, base_path)
    for place, template in enumerate(found):
        *before, last = template.turns
        if (
            last.text != _FIRST_TURN.text
            or template.columns
            or any(rule.placeholders.pattern.search(turn.text) for turn in before)
        ):
            table.fail(("templates", place), "must end with {INPUT} alone, the only placeholder of a conversation")
    return found


def templates(
    table: Table, specs: Sequence[TemplateSpec], task: str, rule: Rule, base_path: Path
) -> tuple[Template, ...]:
    """Return templates with their texts; raises StudyError for one that cannot be used."""
    found = []
    for place, spec in enumerate(specs):
        if spec.file is not None:
            text = read_text(base_path / spec.file, SIZE_MAX_BYTES)
        else:
            text = builtin(task)[spec.template_id].text if spec.text is None else spec.text
        template = Template(spec.template_id, text, rule.placeholders.columns(text, spec.literal))
        turns = [one.where() for one in table.elements("templates")[place].elements("messages")]
        where = spec.file or table.where("templates", place, "messages" if turns else "text")
        template.check(where, rule.placeholders, spec.literal, turns)
        found.append(template)
    return tuple(found)


def _rubrics(table: Table, written: tables.StageKeys, base_path: Path) -> tuple[Rubric, ...]:
    match written.rubrics:
        case None:
            return ()
        case tables.RubricsFile(path=path):
            return statements.read(base_path / path)
        case _:
            return rubrics_of(table, written.rubrics)


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


CHAIN_KEYS: Final = (
    "categories", "scenarios_per_category", "questions_per_scenario", "judges", "candidates", "keep_below",
    "per_statement", "uniform", "promising", "max_rounds",
)  # fmt: skip
_CHAIN_OTHERS: Final = (
    "name", "study", "seed", "grid", "shards", "retry", "budget", "task", "rubrics", "models", "tier", "structured",
    "expected_share", "expected_output_tokens", *CHAIN_KEYS,
)  # fmt: skip
_SEPARATOR: Final = "."


@dataclass(frozen=True, slots=True)
class _Chain:
    """What the stages of one `inputs` stage share."""

    kept: Kept
    rubrics: tuple[Rubric, ...]
    makers: tuple[ModelSpec, ...]
    judges: tuple[ModelSpec, ...]
    candidates: tuple[ModelSpec, ...]
    counts: tuple[int, int, int]
    expected_output_tokens: int | None

    def stage(
        self, step: str, number: int | None, rows: RowsSpec, rule: Rule, template: str, models: tuple[ModelSpec, ...]
    ) -> StageSpec:
        """Return one of them, which asks by a template that batchpond brings."""
        name, templates = _name(self.kept.name, step, number), (builtin(rule.TASK)[template],)
        return StageSpec(name, rule.TASK, rows, rule, templates, models, self.rubrics)

    def made(self, step: str, place: int, rows: RowsSpec, number: int | None = None) -> StageSpec:
        """Return a step that asks for lists; what is beyond the number asked for is not taken, as it would be paid."""
        rule = InputsRule(step=step, count=self.counts[place], count_max=self.counts[place])
        found = self.stage(step, number, rows, rule, f"inputs_{step}", self.makers)
        return replace(found, expected_output_tokens=self.expected_output_tokens)


def chain(name: str, table: Table, written: tables.StageKeys, rubrics: tuple[Rubric, ...]) -> tuple[StageSpec, ...]:
    """Return the stages that an `inputs` stage is carried out by, in order: questions made, and rated, in rounds.

    Categories of requests are asked for by statement, scenarios by category, questions by scenario; judges rate the
    questions (or, where `candidates` are named, those models' answers to them). Statements that then lack questions
    rated below `keep_below` are asked further, in the scenarios whose questions were rated lowest, up to `max_rounds`
    times. Each step is a stage of its own, `NAME.categories` to `NAME.ratings-3`, so it is planned, sent, retried and
    counted like any other; what the whole keeps is asked about by stages whose items say `stage = "NAME"`. Raises
    StudyError.
    """
    for key in table.data:
        if key not in _CHAIN_OTHERS:
            table.fail(key, "has no meaning where questions are made in rounds", "with items it is one step by itself")
    if not rubrics:
        table.fail((), "has no rubrics", 'say which statements the questions are to test: `rubrics.path = "..."`')
    chain = _Chain(
        kept=_kept(name, table, written),
        rubrics=rubrics,
        makers=models_of(table, "models", written.models),
        judges=models_of(table, "judges", written.judges),
        candidates=models_of(table, "candidates", written.candidates or ()),
        counts=(written.categories, written.scenarios_per_category, written.questions_per_scenario),
        expected_output_tokens=written.expected_output_tokens,
    )
    found = [chain.made("categories", 0, RowsSpec())]
    found.append(chain.made("scenarios", 1, RowsSpec(stage=found[0].name)))
    for number in range(1, written.max_rounds + 1):
        found += _round(chain, number, found[1].name)
    found[-1] = replace(found[-1], keeps=chain.kept)
    return tuple(
        replace(
            stage,
            tier=written.tier,
            is_structured=written.structured and stage.rule.output_schema() is not None,
        )
        for stage in found
    )


def _kept(name: str, table: Table, written: tables.StageKeys) -> Kept:
    lowest, below = tables.SCALE.minimum, written.keep_below
    if below <= lowest:
        table.fail("keep_below", f"is {below:g}, so no question could be kept: ratings begin with {lowest:g}")
    if not written.promising:
        table.fail("promising", "is 0, so no round would follow the first", "write `max_rounds = 1` for that")
    share = (below - lowest) / (tables.SCALE.maximum + 1 - lowest)
    numbers = range(1, written.max_rounds + 1)
    return Kept(
        name=name,
        questions=tuple(_name(name, "questions", number) for number in numbers),
        ratings=tuple(_name(name, "ratings", number) for number in numbers),
        below=below,
        per_statement=written.per_statement,
        is_uniform=written.uniform,
        promising=written.promising,
        expected_share=share if written.expected_share is None else written.expected_share,
    )


def _name(name: str, step: str, number: int | None = None) -> str:
    return f"{name}{_SEPARATOR}{step}" + ("" if number is None else f"-{number}")


def _round(chain: _Chain, number: int, scenarios: str) -> list[StageSpec]:
    before = replace(chain.kept, questions=chain.kept.questions[: number - 1], ratings=chain.kept.ratings[: number - 1])
    rows = RowsSpec(stage=scenarios, lacking=before if number > 1 else None)
    found = [chain.made("questions", 2, rows, number)]
    if chain.candidates:
        asked = RowsSpec(stage=found[-1].name)
        found.append(chain.stage("answers", number, asked, GenerationRule(), "question", chain.candidates))
    template, rated = "likert_json" if chain.candidates else "likert_question", RowsSpec(stage=found[-1].name)
    return [*found, chain.stage("ratings", number, rated, tables.SCALE, template, chain.judges)]


SUFFIXES: Final = {
    ".csv": ItemsFrom.CSV,
    ".tsv": ItemsFrom.CSV,
    ".jsonl": ItemsFrom.JSONL,
    ".ndjson": ItemsFrom.JSONL,
    ".parquet": ItemsFrom.PARQUET,
}
ADAPTIVE_KEYS: Final = tuple(key.name for key in dataclasses.fields(AdaptiveSpec))
REVERSE_OF_ADAPTIVE: Final = 0.1


def settings_of(root: Table, file: tables.StudyFile) -> dict[str, Any]:
    """Return what every study has, by the names of its record."""
    if file.shards.segments is not None and file.shards.max_requests is not None:
        root.inside("shards").fail("segments", "cannot be given together with max_requests")
    rules = file.retry
    return {
        "name": file.study,
        "seed": file.seed,
        "unsupported": file.grid.unsupported,
        "shards": file.shards,
        "retry": RetrySpec() if rules is None else RetrySpec(rules.max_attempts, rules.classes, is_automatic=True),
        "budget": file.budget,
    }


def items_of(table: Table, written: tables.Items) -> ItemsSpec:
    """Return where the items are."""
    kind = _one_of(table, ("path", "folder", "sql"))
    location = str(table.data[kind])
    source = _file_kind(table, location) if kind == "path" else ItemsFrom(kind)
    if source is ItemsFrom.FOLDER and (table.has("id") or table.has("text")):
        table.fail("id" if table.has("id") else "text", "has no meaning with folder: ids are the files' names")
    if written.id == written.text:
        table.fail("text", f"is the same column as id, {written.id!r}")
    return ItemsSpec(source, location, written.id, written.text)


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


def pairs_of(table: Table, written: tables.Pairs) -> PairsSpec:
    """Return which pairs are asked; raises StudyError for keys that belong to the other way of choosing."""
    if written.select is Select.ADAPTIVE:
        return _adaptive(table, written)
    for name in ADAPTIVE_KEYS:
        if table.has(name):
            table.fail(name, 'has a meaning only with `select = "adaptive"`')
    if table.has("share") and table.has("count"):
        table.fail("count", "cannot be given together with share")
    if written.share == 0:
        table.fail("share", "is 0, so no pair would be asked")
    reverse = 1.0 if written.reverse is None else float(written.reverse)
    return PairsSpec(written.share, written.count, written.order, reverse, written.repeats)


def _adaptive(table: Table, written: tables.Pairs) -> PairsSpec:
    for name, hint in (
        ("share", "`count` limits the judgments of each cell"),
        ("order", "a pair's order is random, balanced over each item's pairs"),
        ("repeats", "a pair is asked at most once in each order"),
    ):
        if table.has(name):
            table.fail(name, 'has no meaning with `select = "adaptive"`', hint)
    if isinstance(written.reverse, bool):
        table.fail("reverse", 'must be a share with `select = "adaptive"`', f"usual is {REVERSE_OF_ADAPTIVE}")
    reverse = REVERSE_OF_ADAPTIVE if written.reverse is None else written.reverse
    if reverse > HALF:
        table.fail("reverse", f"is {reverse}, not between 0 and {HALF}")
    rules = AdaptiveSpec(**{name: getattr(written, name) for name in ADAPTIVE_KEYS})
    return PairsSpec(count=written.count, reverse=reverse, adaptive=rules)


def rubrics_of(table: Table, written: Sequence[tables.RubricTable | str]) -> tuple[Rubric, ...]:
    """Return the rubrics of a list of them."""
    found = [_rubric(one, rubric) for one, rubric in zip(table.elements("rubrics"), written, strict=True)]
    _refuse_twice(table, "rubrics", [rubric.rubric_id for rubric in found])
    return tuple(found)


def _rubric(table: Table, written: tables.RubricTable | str) -> Rubric:
    known = builtin_rubrics()
    if isinstance(written, str):
        return known[table.choose("use", written, sorted(known))]
    if written.use is not None:
        others = [name for name in table.data if name != "use"]
        if others:
            table.fail(others[0], "cannot be given together with use", "leave out use to describe a rubric of your own")
        return known[table.choose("use", written.use, sorted(known))]
    name, rubric_id, description = (table.required(key) for key in ("name", "id", "description"))
    return Rubric(rubric_id, name.strip(), description.strip())


def specs_of(
    table: Table, written: Sequence[tables.TemplateTable | str], task: str = PAIRWISE
) -> tuple[TemplateSpec, ...]:
    """Return the templates of a list of them."""
    found = [_template(one, template, task) for one, template in zip(table.elements("templates"), written, strict=True)]
    _refuse_twice(table, "templates", [template.template_id for template in found])
    return tuple(found)


def _template(table: Table, written: tables.TemplateTable | str, task: str) -> TemplateSpec:
    known = sorted(builtin(task))
    if isinstance(written, str):
        return TemplateSpec(table.choose("use", written, known))
    _one_of(table, ("use", "file", "text", "messages"))
    if written.use is not None:
        for key in ("id", "literal"):
            if table.has(key):
                table.fail(key, "cannot be given together with use: a built-in template stays as it is")
        return TemplateSpec(table.choose("use", written.use, known))
    if written.file is not None:
        return TemplateSpec(written.id or _name_of_file(table, written.file), None, written.file, written.literal)
    text = written.text if written.messages is None else _text_of(table, written.messages)
    return TemplateSpec(table.required("id"), text, literal=written.literal)


def _text_of(table: Table, messages: Sequence[tables.MessageTable]) -> str:
    """Return the one text that a template is kept as."""
    for one, message in zip(table.elements("messages"), messages, strict=True):
        if has_turns(message.text):
            one.fail("text", "has a line that begins a turn", "give each turn a message of its own")
    return text_of([Turn(message.role, message.text) for message in messages])


def _name_of_file(table: Table, file: str) -> str:
    name = Path(file).stem
    if not re.fullmatch(tables.PART_NAME, name):
        table.fail("id", f"is {name!r}, which does not have the form {tables.PART_NAME}", "name it with `id = ...`")
    return name


def rule_of(table: Table, task: str) -> Rule:
    """Return the checked rule that answers of a task are read by; `reader` chooses one where there are several."""
    readers = registry.TASKS[task]
    name, *others = readers
    if others:
        name = table.choose("reader", str(table.data.get("reader", name)), tuple(readers))
        table = table.without("reader")
    rule = read(table, readers[name])
    rule.check(table.where())
    return rule


def models_of(table: Table, name: str, written: tuple[ModelSpec, ...] | None) -> tuple[ModelSpec, ...]:
    """Return models that can be told apart."""
    if written is None:
        table.fail(name, "is missing")
    _refuse_twice(table, name, [f"{m.provider}/{m.model} with thinking {t!r}" for m in written for t in m.thinking])
    return written


def _refuse_twice(table: Table, name: str, labels: Sequence[str]) -> None:
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        table.fail(
            name, f"has more than one {', '.join(twice)}", "each must differ, or answers could not be told apart"
        )
