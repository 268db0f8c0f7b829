"""Copies of the lake in the layouts of pairwiseLLM, SpecEval and SycoBench, for their users' own scripts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond.errors import UsageError
from batchpond.lake import tables
from batchpond.model import Outcome
from batchpond.results.export import LayoutReport, Tree, safe, translated
from batchpond.views import database
from batchpond.views.read import check_study

_query: Final = partial(tables.query, __package__)
_STAMP: Final = "00000000_000000"  # a run has no time of its own here
_KINDS: Final = {"ranking": "rankings", "compliance": "compliance", "likert": "likert"}
_RANKS: Final = {"first": 1, "second": -1, "tie": 0}
_SIMULATED: Final = "simulated judgments, which must not look like real ones"
_NO_TEXT: Final = "judgments of outputs whose text is not in the lake"
_KEYWORDS: Final = "keywords"  # the scorer whose word on a first answer has a key of its own
_SAFETY: Final = {"no_flip": "safe", "initially_wrong": "unsafe"}
_FLIPS: Final = {"initially_wrong": "initially_unsafe"}

Row = dict[str, Any]


def speceval(tree: Tree) -> None:
    """Write specs, inputs, generations, rankings and compliance results."""
    tree.connection.execute(_query("told"))
    tree.keep("judged", _query("judged"))
    tree.keep("answered", _query("answered"))
    ((n,),) = tree.connection.execute("SELECT count(*) FROM judged WHERE origin = 'simulated'").fetchall()
    tree.report.leave_out(_SIMULATED, n)
    _write_spec(tree)
    for statement, rows in _grouped(tree.rows(_query("inputs")), "rubric_id"):
        tree.json(f"inputs/{safe(statement)}.json", {"inputs": [row["input"] for row in rows]})
    answered = tree.rows("SELECT * FROM answered ORDER BY candidate, rubric_id, input, output")
    for (candidate, statement), rows in _grouped(answered, "candidate", "rubric_id"):
        name = f"generations/{safe(candidate)}/{_STAMP}/results/{safe(statement)}.json"
        tree.json(name, [_generation(number, row) for number, row in enumerate(rows)])
    judges = {task: _Judges() for task in _KINDS}
    specs: dict[str, str] = {}
    keys = ("task", "study", "spec", "provider", "request_model", "candidate_first", "candidate_second", "rubric_id")
    order = ", ".join((*keys, "unit_id", "template_id", "thinking", "repeat_no"))
    judged = tree.rows(f"SELECT * FROM judged WHERE origin <> 'simulated' ORDER BY {order}")
    for key, rows in _grouped(judged, *keys):
        said = dict(zip(keys, key, strict=True))
        if specs.setdefault(said["spec"], said["study"]) != said["study"]:  # two studies of one spec
            said["spec"] = said["study"]
        _write_judged(tree, said, rows, judges[key[0]])


class _Judges:
    """One folder name per judge, also where two providers have a model of one name."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, str]] = {}

    def folder(self, provider: str, model: str) -> str:
        name = safe(model)
        if self._owners.setdefault(name, (provider, model)) != (provider, model):
            name = f"{safe(provider)}-{name}"
        return f"judge_{name}"


def _grouped(rows: Iterable[Row], *keys: str) -> Iterator[tuple[Any, list[Row]]]:
    """Yield the rows of one file after the other; they must come in the order of the keys."""
    for key, group in itertools.groupby(rows, lambda row: tuple(row[name] for name in keys)):
        yield (key[0] if len(key) == 1 else key), list(group)


def _write_spec(tree: Tree) -> None:
    lines = []
    for row in tree.rows(_query("spec")):
        known = {"id": row["rubric_id"], "text": row["description"], "type": "guideline"}
        more = orjson.loads(row["metadata"]) if row["metadata"] else {}
        own = {"kind", "origin", "source", "unit_id", "rubric_id", "candidate", "turn_no"}
        lines.append(known | {name: value for name, value in more.items() if name not in own})
    if lines:
        tree.json_lines("spec.jsonl", lines)


def _generation(number: int, row: Row) -> Row:
    return {
        "original_index": number, "input_text": row["input"], "output_text": row["output"], "batch_id": row["batch_id"],
        "candidate": row["candidate"],
    }  # fmt: skip


def _write_judged(tree: Tree, key: Row, rows: list[Row], judges: _Judges) -> None:
    is_ranking = key["task"] == "ranking"
    texts = ("input", "output_first", "output_second") if is_ranking else ("input", "output_first")
    usable = [row for row in rows if all(row[name] is not None for name in texts)]
    tree.report.leave_out(_NO_TEXT, len(rows) - len(usable))
    if not usable:
        return
    judge = {"provider": key["provider"], "model_name": key["request_model"]}
    first, second = key["candidate_first"] or "unnamed", key["candidate_second"] or "unnamed"
    pair = f"{safe(first)}x{safe(second)}" if is_ranking else safe(first)
    folder = (
        f"{_KINDS[key['task']]}/spec_{safe(key['spec'])}/{judges.folder(key['provider'], key['request_model'])}/{pair}"
    )
    metadata: Row = {"org_spec_name": key["spec"], "study": key["study"], "statement_id": key["rubric_id"]}
    if is_ranking:
        metadata |= {"ranking_judge_model_info": judge, "model_a": first, "model_b": second}
        document = {"metadata": metadata, "rankings": [_ranking(row) for row in usable]}
    else:
        metadata |= {"judge_model_info": judge, "model": first, "batch_ids": []}
        document = {"metadata": metadata, "results": [_compliance(row, key["task"]) for row in usable]}
    tree.json(f"{folder}/results/{safe(key['rubric_id'])}.json", document)


def _more(row: Row) -> Row:
    return {name: row[name] for name in ("outcome", "repeat_no", "template_id", "thinking")}


def _ranking(row: Row) -> Row:
    return {
        "input": row["input"], "output_a": row["output_first"], "output_b": row["output_second"],
        "rank": _RANKS.get(row["verdict"]), "raw_judge_response": row["raw"], **_more(row),
    }  # fmt: skip


def _compliance(row: Row, task: str) -> Row:
    said = {"rating": row["score"]} if task == "likert" else {
        "compliant": {"true": True, "false": False}.get(row["verdict"]), "confidence": row["confidence"],
    }  # fmt: skip
    return {
        "input": row["input"], "output": row["output_first"], **said, "explanation": row["explanation"], **_more(row),
    }  # fmt: skip


def sycobench(tree: Tree) -> None:
    """Write conversations, and once more for each judge with its labels."""
    tree.connection.execute(_query("told"))
    tree.keep("labels", _query("pressure_labels"))
    ((n,),) = tree.connection.execute("SELECT count(*) FROM labels WHERE origin = 'simulated'").fetchall()
    tree.report.leave_out(_SIMULATED, n)
    tree.connection.execute(f"CREATE TEMP TABLE turns AS {_query('turns')}")
    ((n,),) = tree.connection.execute("SELECT count(*) FROM turns WHERE n_texts > 1").fetchall()
    tree.report.leave_out("answers to one turn that more than one conversation could hold", n)
    told = tree.rows("SELECT * FROM turns WHERE n_texts = 1 ORDER BY candidate, unit_id, tactic, turn_no")
    for candidate, turns in _grouped(told, "candidate"):
        tree.json(f"conversations/{safe(candidate)}.json", _conversations(candidate, turns, None))
    judges = tree.connection.execute(
        "SELECT DISTINCT candidate, provider, request_model FROM labels WHERE origin <> 'simulated' ORDER BY ALL"
    ).fetchall()
    names = _Judges()
    for candidate, provider, model in judges:
        _write_labels(tree, candidate, (provider, model), names)


def _write_labels(tree: Tree, candidate: str, judge: tuple[str, str], names: _Judges) -> None:
    of_judge = {"candidate": candidate, "provider": judge[0], "model": judge[1]}
    turns = list(tree.rows(_query("labelled"), of_judge))
    if turns:
        name = names.folder(*judge).removeprefix("judge_")
        document = _conversations(candidate, turns, judge[1])
        tree.json(f"scoring/{safe(candidate)}_scored_by_{name}.json", document | {"judge_provider": judge[0]})


def _conversations(candidate: str, turns: Iterable[Row], scorer: str | None) -> Row:
    found = [
        _conversation(unit, tactic, group, scorer) for (unit, tactic), group in _grouped(turns, "unit_id", "tactic")
    ]
    return {
        "model_key": candidate, "model_name": candidate, "total_questions": len(found),
        "completed_questions": len(found), "conversations": found,
    }  # fmt: skip


def _conversation(unit: str, tactic: str, turns: list[Row], scorer: str | None) -> Row:
    first = next((row for row in turns if row["turn_no"] == 0), None)
    rounds = [row for row in turns if row["turn_no"] > 0]
    flips = [row["turn_no"] for row in rounds if row.get("label") in {"soft_flip", "explicit_flip"}]
    entry: Row = {"question_id": turns[0]["question_id"] or unit, "question": turns[0]["question"]}
    if tactic:
        entry["pressure_type"] = tactic
    if first is not None:
        entry["initial_response"] = {"response": first["text"], **_label(first, scorer)}
        if scorer == _KEYWORDS and first.get("label") in _SAFETY:
            entry["initial_response"]["safety_assessment"] = _SAFETY[first["label"]]
    entry["pressure_rounds"] = [
        {"level": row["turn_no"], "pressure": row["pressure"], "response": row["text"], **_label(row, scorer)}
        for row in rounds
    ]
    if scorer is not None:
        entry["flip_summary"] = {"first_flip_level": min(flips, default=None), "scorer_model": scorer}
    return entry


def _label(row: Mapping[str, Any], scorer: str | None) -> Row:
    """Return a label as SycoBench writes it; a judge's failure is `error`, never `no_flip`."""
    if scorer is None or row.get("outcome") is None:
        return {}
    word = row["label"] if row["outcome"] == Outcome.DECIDED else None
    more = {"template_id": row["template_id"], "repeat_no": row["repeat_no"]}
    return {
        "flip_type": _FLIPS.get(word or "", word) or "error", "outcome": row["outcome"],
        "confidence": row["confidence"], "reasoning": row["explanation"], **more,
    }  # fmt: skip


class Layout(StrEnum):
    """Whose files an export looks like."""

    PAIRWISELLM = "pairwisellm"
    SPECEVAL = "speceval"
    SYCOBENCH = "sycobench"


def export_layout(
    lake_path: Path, folder: Path, layout: Layout, *, study: str | None = None, force: bool = False
) -> LayoutReport:
    """Write a study, or all of them, to a folder in another tool's layout.

    Raises UsageError where the folder holds anything and `force` is not set, where there is no such study,
    and where nothing fits the layout.
    """
    if not force and os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", hint="give another folder, or --force to replace files in it")
    report = LayoutReport()
    # Files outlive the warning that something is not in them.
    with closing(database.connect(lake_path, must_be_whole=True)) as connection, translated(folder):
        if study is not None:
            check_study(connection, study)
        tree = Tree(connection, folder, study, report, force)
        match layout:
            case Layout.PAIRWISELLM:
                _pairwisellm(tree)
            case Layout.SPECEVAL:
                speceval(tree)
            case Layout.SYCOBENCH:
                sycobench(tree)
    if not report.files:
        told = "".join(f"; {n:,} {why}" for why, n in report.left_out.items())
        raise UsageError(f"nothing in the lake has a place in the layout of {layout}{told}", hint="`batchpond status`")
    return report


def _pairwisellm(tree: Tree) -> None:
    """A folder as of a multi-batch run: a results CSV per batch, all of them combined, registry and samples."""
    tree.keep("layout_rows", _query("pairwise"))
    segments = tree.connection.execute(
        "SELECT coalesce(batch_id, origin) AS segment, any_value(batch_id), any_value(backend), any_value(model)"
        " FROM layout_rows GROUP BY segment ORDER BY segment"
    ).fetchall()
    registry = []
    for number, (segment, batch_id, backend, model) in enumerate(segments, 1):
        name = f"batch_{number:02d}_results.csv"
        rows = "SELECT * FROM layout_rows WHERE coalesce(batch_id, origin) = $segment"
        tree.connection.execute(f"CREATE OR REPLACE TEMP TABLE segment AS {rows}", {"segment": segment})
        tree.csv(name, "SELECT * FROM segment ORDER BY ALL")
        if batch_id is not None:
            registry.append((number, backend, model, batch_id, name))
    if not segments:
        return
    tree.csv("combined_results.csv", "SELECT * FROM layout_rows ORDER BY ALL")
    if registry:
        tree.connection.execute(
            "CREATE TEMP TABLE jobs (segment_index BIGINT, provider TEXT, model TEXT, batch_id TEXT, csv_path TEXT)"
        )
        tree.connection.executemany("INSERT INTO jobs VALUES ($1, $2, $3, $4, $5)", registry)
        tree.csv("jobs_registry.csv", _query("jobs"))
    samples = _query("samples")
    ((n_samples,),) = tree.connection.execute(f"SELECT count(*) FROM ({samples})").fetchall()
    if n_samples:
        tree.csv("samples.csv", f'{samples} ORDER BY "ID"')
