"""Reading `study.toml`: text in, a checked `Study` out, or a StudyError that says file, line and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from batchpond.errors import StudyError
from batchpond.model import ErrorClass, Mode
from batchpond.study.spec import (
    THINKING_DEFAULT,
    BudgetSpec,
    ItemsFrom,
    ItemsSpec,
    ModelSpec,
    Order,
    PairsSpec,
    RetrySpec,
    ShardsSpec,
    Study,
    TemplateSpec,
    Unsupported,
)
from batchpond.study.stages import adaptive as adaptive_spec
from batchpond.study.stages import study as stage_study
from batchpond.study.stages.spec import StagedStudy
from batchpond.study.toml_table import Key, TomlTable, parse
from batchpond.tasks import rubrics, templates
from batchpond.tasks.pairwise import AnswerRule
from batchpond.tasks.rubrics import Rubric

__all__ = ["Study", "example", "load", "parse_study"]

STUDY_NAME: Final = "[a-z0-9][a-z0-9_-]{0,63}"
PART_NAME: Final = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
FILE_SIZE_MAX_BYTES: Final = 4_000_000
EXAMPLES: Final = ("study", "stages")
ENTRIES_MAX: Final = 1_000
SUFFIXES: Final = {
    ".csv": ItemsFrom.CSV,
    ".jsonl": ItemsFrom.JSONL,
    ".ndjson": ItemsFrom.JSONL,
    ".parquet": ItemsFrom.PARQUET,
}

_ROOT: Final = ("study", "seed", "items", "pairs", "rubrics", "templates", "answer", "models", "grid", "shards",
                "retry", "budget")  # fmt: skip
_ROOT_OF_STAGES: Final = ("study", "seed", "stages", "grid", "shards", "retry", "budget")
_ITEMS: Final = ("path", "folder", "sql", "id", "text")
_PAIRS: Final = ("select", "share", "count", "order", "reverse", "repeats", *adaptive_spec.KEYS)
_MODEL: Final = ("provider", "model", "thinking", "include_thoughts", "max_output_tokens", "temperature", "endpoint",
                 "mode", "parameters")  # fmt: skip


def load(path: Path) -> Study | StagedStudy:
    """Read and check a study file; raises StudyError that names file, line and key."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise StudyError(f"{path}: {error.strerror or error}", hint="`batchpond init` writes an example") from None
    if len(data) > FILE_SIZE_MAX_BYTES:
        raise StudyError(f"{path}: larger than {FILE_SIZE_MAX_BYTES:,} bytes, which no study file is")
    return parse_any(data, str(path), path.parent)


def example(name: str = EXAMPLES[0]) -> str:
    """Return a commented example that `init` writes, by its name in `EXAMPLES`."""
    return (resources.files("batchpond.study") / "examples" / f"{name}.toml").read_text("utf-8")


def parse_any(data: bytes, source: str = "study.toml", base_path: Path = Path()) -> Study | StagedStudy:
    """Return the study that a file's bytes describe; of one with stages, the templates and statements too."""
    document, text = parse(data, source)
    is_pairwise = "stages" not in document and document.get("task", "pairwise") == "pairwise"
    if is_pairwise and not _is_adaptive(document) and not _has_tiers(document):
        return parse_study(data, source, base_path)
    own = _ROOT_OF_STAGES if "stages" in document else (*_ROOT_OF_STAGES, *stage_study.KEYS)
    root = TomlTable(source, text, (), document, own)
    readers = stage_study.Readers(_answer, _items, _pairs, _rubrics, _models, _templates)
    return StagedStudy(
        name=root.string("study", pattern=STUDY_NAME),
        stages=stage_study.stages(root, readers, base_path),
        seed=root.integer("seed", 1, 0, 2**63 - 1) or 0,
        unsupported=_unsupported(root),
        shards=_shards(root),
        retry=_retry(root),
        budget=_budget(root),
        source=source,
        base_path=base_path,
    )


def parse_study(data: bytes, source: str = "study.toml", base_path: Path = Path()) -> Study:
    """Return the pairwise study that a file's bytes describe; reads nothing else."""
    document, text = parse(data, source)
    root = TomlTable(source, text, (), document, _ROOT)
    return Study(
        name=root.string("study", pattern=STUDY_NAME),
        seed=root.integer("seed", 1, 0, 2**63 - 1) or 0,
        items=_items(root),
        pairs=_pairs(root),
        rubrics=_rubrics(root),
        templates=_templates(root),
        answer=_answer(root),
        models=_models(root),
        unsupported=_unsupported(root),
        shards=_shards(root),
        retry=_retry(root),
        budget=_budget(root),
        source=source,
        base_path=base_path,
    )


def _unsupported(root: TomlTable) -> Unsupported:
    return Unsupported(root.table("grid", ("unsupported",)).choice("unsupported", "refuse", list(Unsupported)))


def _budget(root: TomlTable) -> BudgetSpec:
    return BudgetSpec(root.table("budget", ("max_cost_usd",)).number("max_cost_usd", None, 0, 1e9))


def _one_of(table: TomlTable, names: Sequence[str]) -> str:
    written = [name for name in names if table.has(name)]
    if len(written) != 1:
        problem = "has none" if not written else f"has {' and '.join(written)}"
        table.fail(None, f"{problem}; it needs exactly one of {', '.join(names)}")
    return written[0]


def _items(root: TomlTable) -> ItemsSpec:
    if not root.has("items"):
        root.fail(None, "has no [items]", 'say where the texts are, for example [items] and path = "samples.csv"')
    table = root.table("items", _ITEMS)
    kind = _one_of(table, ("path", "folder", "sql"))
    location = table.string(kind, size_max=100_000)
    if kind == "path":
        suffix = Path(location).suffix.lower()
        if suffix not in SUFFIXES:
            table.fail(
                "path",
                f"ends with {suffix!r}, not one of {', '.join(SUFFIXES)}",
                "a folder of .txt files is `folder = ...`",
            )
        source = SUFFIXES[suffix]
    else:
        source = ItemsFrom(kind)
    if source is ItemsFrom.FOLDER and (table.has("id") or table.has("text")):
        table.fail("id" if table.has("id") else "text", "has no meaning with folder: ids are the files' names")
    id_column, text_column = table.string("id", "id"), table.string("text", "text")
    if id_column == text_column:
        table.fail("text", f"is the same column as id, {id_column!r}")
    return ItemsSpec(source, location, id_column, text_column)


def _has_tiers(document: Mapping[str, Any]) -> bool:
    """Whether a file without stages says by a column of its items what is sent first, as a stage does."""
    items = document.get("items")
    return isinstance(items, dict) and "tier" in items


def _is_adaptive(document: Mapping[str, Any]) -> bool:
    """Whether a file without stages asks its pairs in rounds, which makes it one stage of that name."""
    pairs = document.get("pairs")
    return isinstance(pairs, dict) and pairs.get("select") == "adaptive"


def _pairs(root: TomlTable) -> PairsSpec:
    table = root.table("pairs", _PAIRS)
    if adaptive_spec.is_adaptive(table):
        return adaptive_spec.read(table)
    if table.has("share") and table.has("count"):
        table.fail("count", "cannot be given together with share")
    share = table.number("share", None, 0, 1)
    if share == 0:
        table.fail("share", "is 0, so no pair would be asked")
    return PairsSpec(
        share=share,
        count=table.integer("count", None, 1, 10**9),
        order=Order(table.choice("order", "random", list(Order))),
        reverse=_share_of_reverse(table),
        repeats=table.integer("repeats", 1, 1, 1_000) or 1,
    )


def _share_of_reverse(table: TomlTable) -> float:
    if isinstance(table.data.get("reverse"), bool):
        return float(table.data["reverse"])
    share = table.number("reverse", 1.0, 0, 1)
    return 1.0 if share is None else share


def _element(root: TomlTable, key: Key, entry: object, known: Sequence[str]) -> TomlTable:
    """Return an element of a list; a bare string stands for `use = "..."`."""
    data = {"use": entry} if isinstance(entry, str) else entry
    return TomlTable(root.source, root.text, key, data, known)


def _refuse_twice(root: TomlTable, name: str, labels: Sequence[str]) -> None:
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        root.fail(name, f"has more than one {', '.join(twice)}", "each must differ, or answers could not be told apart")


def _rubrics(root: TomlTable) -> tuple[Rubric, ...]:
    found = [_rubric(_element(root, key, entry, ("use", "id", "name", "description")))
             for key, entry in root.entries("rubrics", ENTRIES_MAX)]  # fmt: skip
    _refuse_twice(root, "rubrics", [rubric.rubric_id for rubric in found])
    return tuple(found)


def _rubric(table: TomlTable) -> Rubric:
    if table.has("use"):
        others = [name for name in table.data if name != "use"]
        if others:
            table.fail(others[0], "cannot be given together with use", "leave out use to describe a rubric of your own")
        return rubrics.builtin()[table.choice("use", None, sorted(rubrics.builtin()))]
    name = table.string("name")
    return Rubric(
        table.string("id", pattern=PART_NAME), name.strip(), table.string("description", size_max=100_000).strip()
    )


def _templates(root: TomlTable, task: str = templates.PAIRWISE) -> tuple[TemplateSpec, ...]:
    found = [_template(_element(root, key, entry, ("use", "id", "file", "text")), task)
             for key, entry in root.entries("templates", ENTRIES_MAX)]  # fmt: skip
    _refuse_twice(root, "templates", [template.template_id for template in found])
    return tuple(found)


def _template(table: TomlTable, task: str) -> TemplateSpec:
    match _one_of(table, ("use", "file", "text")):
        case "use":
            if table.has("id"):
                table.fail("id", "cannot be given together with use: a built-in template keeps its name")
            return TemplateSpec(table.choice("use", None, sorted(templates.builtin(task))))
        case "file":
            file = table.string("file")
            name = table.string("id", Path(file).stem, pattern=PART_NAME)
            return TemplateSpec(name, file=file)
        case _:
            text = table.string("text", size_max=templates.SIZE_MAX_BYTES)
            if task == templates.PAIRWISE:
                templates.Template("", text).check(table.where("text"))
            return TemplateSpec(table.string("id", pattern=PART_NAME), text=text)


def _answer(root: TomlTable) -> AnswerRule:
    usual = AnswerRule()
    table = root.table("answer", ("prefix", "first", "second", "suffix"))
    suffix = table.data.get("suffix", usual.suffix)
    rule = AnswerRule(
        prefix=table.string("prefix", usual.prefix, size_max=200),
        first=table.string("first", usual.first, size_max=200),
        second=table.string("second", usual.second, size_max=200),
        suffix="" if suffix == "" else table.string("suffix", usual.suffix, size_max=200),
    )
    rule.check(table.where())
    return rule


def _models(root: TomlTable, name: str = "models") -> tuple[ModelSpec, ...]:
    found = [
        _model(TomlTable(root.source, root.text, key, entry, _MODEL)) for key, entry in root.entries(name, ENTRIES_MAX)
    ]
    _refuse_twice(root, name, [f"{m.provider}/{m.model} with thinking {t!r}" for m in found for t in m.thinking])
    return tuple(found)


def _model(table: TomlTable) -> ModelSpec:
    return ModelSpec(
        provider=table.string("provider", pattern="[a-z][a-z0-9_-]{0,31}"),
        model=table.string("model", pattern=r"[^\s\x00-\x1f\x7f]{1,200}"),
        thinking=table.strings("thinking", (THINKING_DEFAULT,)),
        include_thoughts=table.boolean("include_thoughts", False),
        max_output_tokens=table.integer("max_output_tokens", None, 1, 10_000_000),
        temperature=table.number("temperature", None, 0, 2),
        endpoint=table.string("endpoint", size_max=200) if table.has("endpoint") else None,
        mode=Mode(table.choice("mode", "batch", list(Mode))),
        parameters=table.json("parameters"),
    )


def _shards(root: TomlTable) -> ShardsSpec:
    table = root.table("shards", ("max_requests", "segments", "per_cell"))
    if table.has("max_requests") and table.has("segments"):
        table.fail("segments", "cannot be given together with max_requests")
    return ShardsSpec(
        max_requests=table.integer("max_requests", None, 1, 10_000_000),
        segments=table.integer("segments", None, 1, 100_000),
        per_cell=table.boolean("per_cell", False),
    )


def _retry(root: TomlTable) -> RetrySpec:
    table = root.table("retry", ("max_attempts", "classes"))
    usual = RetrySpec()
    classes: tuple[Any, ...] = table.strings("classes", usual.classes)
    for name in classes:
        if name not in list(ErrorClass):
            table.fail("classes", f"contains {name!r}, not one of {', '.join(ErrorClass)}")
    max_attempts = table.integer("max_attempts", usual.max_attempts, 1, 20) or 1
    return RetrySpec(root.has("retry"), max_attempts, tuple(ErrorClass(name) for name in classes))
