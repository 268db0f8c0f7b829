"""The parts that all studies share, made of their tables: items, pairs, rubrics, templates, answers, models.

What no single value can say is checked here: keys that exclude each other, names that must differ.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from batchpond.study import tables
from batchpond.study.spec import (
    HALF,
    AdaptiveSpec,
    ItemsFrom,
    ItemsSpec,
    ModelSpec,
    PairsSpec,
    RetrySpec,
    Select,
    TemplateSpec,
)
from batchpond.study.typed import Table, read
from batchpond.tasks import registry
from batchpond.tasks import templates as known_templates
from batchpond.tasks.base import Rule
from batchpond.tasks.templates import Rubric, builtin_rubrics

SUFFIXES: Final = {
    ".csv": ItemsFrom.CSV,
    ".jsonl": ItemsFrom.JSONL,
    ".ndjson": ItemsFrom.JSONL,
    ".parquet": ItemsFrom.PARQUET,
}
ADAPTIVE_KEYS: Final = tuple(key.name for key in dataclasses.fields(AdaptiveSpec))
REVERSE_OF_ADAPTIVE: Final = 0.1


def settings(root: Table, file: tables.StudyFile) -> dict[str, Any]:
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


def items(table: Table, written: tables.Items) -> ItemsSpec:
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


def pairs(table: Table, written: tables.Pairs) -> PairsSpec:
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


def rubrics(table: Table, written: Sequence[tables.RubricTable | str]) -> tuple[Rubric, ...]:
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


def templates(
    table: Table, written: Sequence[tables.TemplateTable | str], task: str = known_templates.PAIRWISE
) -> tuple[TemplateSpec, ...]:
    """Return the templates of a list of them."""
    found = [_template(one, template, task) for one, template in zip(table.elements("templates"), written, strict=True)]
    _refuse_twice(table, "templates", [template.template_id for template in found])
    return tuple(found)


def _template(table: Table, written: tables.TemplateTable | str, task: str) -> TemplateSpec:
    known = sorted(known_templates.builtin(task))
    if isinstance(written, str):
        return TemplateSpec(table.choose("use", written, known))
    _one_of(table, ("use", "file", "text"))
    if written.use is not None:
        for key in ("id", "literal"):
            if table.has(key):
                table.fail(key, "cannot be given together with use: a built-in template stays as it is")
        return TemplateSpec(table.choose("use", written.use, known))
    if written.file is not None:
        return TemplateSpec(written.id or _name_of_file(table, written.file), None, written.file, written.literal)
    if task == known_templates.PAIRWISE:
        known_templates.Template("", written.text or "").check(table.where("text"), literal=written.literal)
    return TemplateSpec(table.required("id"), written.text, literal=written.literal)


def _name_of_file(table: Table, file: str) -> str:
    name = Path(file).stem
    if not re.fullmatch(tables.PART_NAME, name):
        table.fail("id", f"is {name!r}, which does not have the form {tables.PART_NAME}", "name it with `id = ...`")
    return name


def answer(table: Table, task: str) -> Rule:
    """Return the checked rule that answers of a task are read by; `reader` chooses one where there are several."""
    readers = registry.TASKS[task]
    name, *others = readers
    if others:
        name = table.choose("reader", str(table.data.get("reader", name)), tuple(readers))
        table = table.without("reader")
    rule = read(table, readers[name])
    rule.check(table.where())
    return rule


def models(table: Table, name: str, written: tuple[ModelSpec, ...] | None) -> tuple[ModelSpec, ...]:
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
