"""Whatever stands in a file of another tool: an import reads it or says why not, and never makes up a verdict."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import UsageError
from batchpond.interop.foreign import Defaults, Findings, ForeignJudgment, Reader, files_below
from batchpond.model import Outcome
from batchpond_importers import inspect as import_inspect
from batchpond_importers import pairwisellm as import_pairwisellm
from batchpond_importers import promptfoo as import_promptfoo
from batchpond_importers import speceval as import_speceval
from batchpond_importers import sycobench as import_sycobench
from tests.rigs.swept import examples

WORDS = (
    "", "s1", "A", "B", "NA", "1", "0.5", "no_flip", "error", "success", "ERROR: 500: x", "Model: A", "true", "tie",
    "decided", "[PLACEHOLDER_RESPONSE]", "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>", "EXP_A_vs_B", "x\r\ny",
)  # fmt: skip
KEYS = (
    "inputs", "rankings", "results", "metadata", "model_a", "model_b", "model", "statement_id", "input", "output",
    "output_a", "output_b", "rank", "raw_judge_response", "compliant", "rating", "confidence", "explanation",
    "input_text", "output_text", "batch_id", "batches", "conversations", "model_key", "question", "question_id",
    "initial_response", "response", "safety_assessment", "pressure_rounds", "pressure_results", "level", "flip_type",
    "flip_summary", "scorer_model", "status", "result", "error", "pressure_num", "classification", "score", "outcome",
    "id", "text", "custom_id", "repeat_no", "ranking_judge_model_info", "reasoning",
    "completion", "value", "grading", "pass", "type", "reason", "assertion", "provider", "raw", "label", "content",
)  # fmt: skip
COLUMNS = (
    "ID1", "ID2", "A_id", "B_id", "better_id", "better_sample", "winner_pos", "content", "status_code", "custom_id",
    "model", "question_id", "classification", "question", "pressure_level", "response", "score", "outcome", "batch_id",
    "ID", "text", "segment_index", "origin", "pressure_num", "judge_model", "reasoning", "repeat_no",
)  # fmt: skip

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 7), st.floats(allow_nan=True), st.sampled_from(WORDS), st.text(max_size=5)
)

values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=8),
    max_leaves=40,
)  # fmt: skip
likely = st.one_of(st.sampled_from(WORDS), scalars, values)


def row(needed: str, optional: str) -> st.SearchStrategy[dict[str, Any]]:
    """Make rows that get far: with the texts that a layout needs, and anything in its other keys."""
    texts = st.sampled_from([word for word in WORDS if word.strip()])
    return st.fixed_dictionaries(
        dict.fromkeys(needed.split(), texts), optional=dict.fromkeys(optional.split(), likely)
    )  # fmt: skip


turn = row("response", "level flip_type explanation reasoning confidence outcome template_id")
turns = st.lists(turn, max_size=3).map(lambda found: [{"level": n, **entry} for n, entry in enumerate(found, 1)])
results = st.builds(
    lambda entry, rounds: entry | {"pressure_results": rounds},
    row("initial_response", "model_name initial_safety_assessment"), turns,
)  # fmt: skip
kinds = {
    "rankings": row("input output_a output_b", "rank raw_judge_response outcome repeat_no"),
    "results": row("input output", "compliant rating confidence explanation outcome repeat_no"),
    "conversations": st.builds(
        lambda entry, rounds, first: entry | {"pressure_rounds": rounds, "initial_response": first},
        row("question", "question_id flip_summary pressure_type"),
        turns,
        turn,
    ),
    "batches": row("batch_id", "provider model"),
}
tactics = st.builds(
    lambda entry, result: entry | {"status": "success", "result": result},
    row("question", "question_id pressure_num pressure_type"),
    results,
)
cold_starts = row("question response", "classification score reasoning judge_model").map(
    lambda entry: entry | {"status": "success"}
)
scores = st.dictionaries(st.sampled_from(WORDS), row("value", "explanation metadata reason"), max_size=3)
samples = st.builds(
    lambda entry, found: entry | {"scores": found}, row("input", "id epoch output error target"), scores
).map(lambda entry: {"output": {"completion": "x"}} | entry)
assertions = st.builds(
    lambda entry, found: entry | {"assertion": found},
    row("reason", "pass score"), row("type", "value metric provider"),
)  # fmt: skip
tests = st.builds(
    lambda entry, parts: {"response": {"output": "x"}} | entry | {"gradingResult": {"componentResults": parts}},
    row("error", "provider prompt promptIdx testIdx vars response testCase"), st.lists(assertions, max_size=3),
)  # fmt: skip
about = {"metadata": {"model_a": "A", "model_b": "B", "model": "A", "model_key": "A"}, "model_key": "A"}


def _under(key: str, found: list[Any]) -> dict[str, Any]:
    return about | {key: found}


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Make lists of rows, now and then with something else among them."""
    return st.lists(st.one_of(strategy, strategy, strategy, strategy, values), min_size=1, max_size=3)


documents = st.one_of(
    st.one_of(*(several(strategy).map(partial(_under, key)) for key, strategy in kinds.items())),
    several(tactics).map(lambda found: about | {"results": found}),
    several(cold_starts).map(lambda found: about | {"results": found}),
    several(row("input_text output_text", "batch_id original_index candidate")),
    several(row("id text", "type metadata")),
    several(samples).map(lambda found: {"eval": {"task": "t", "model": "m"}, "samples": found}),
    several(tests).map(lambda found: {"results": {"version": 3, "results": found}}),
    values,
)
tables = st.builds(
    lambda names, lines: [names, *lines],
    st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=9, unique=True),
    st.lists(st.lists(st.sampled_from((*WORDS[:-1], '"', "2")), max_size=9), max_size=4),
)

READERS = (
    import_inspect.read,
    import_promptfoo.read,
    import_pairwisellm.read,
    import_speceval.read,
    import_sycobench.read,
)
each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__module__.rpartition("_")[2])


def check(reader: Reader, path: Path) -> None:
    """Read a file to its end: only a plain error may come, and only sound records."""
    findings = Findings()
    try:
        records = list(reader(files_below([path]), Defaults(), findings))
    except UsageError:
        return
    for record in records:
        assert record.source.startswith(path.name)
        if not isinstance(record, ForeignJudgment):
            continue
        has_label = record.found.label is not None and record.found.label != "unjudgeable"  # which goes with unsure
        has_word = record.found.verdict is not None or has_label or record.found.score is not None
        assert has_word == (record.found.outcome in {Outcome.DECIDED, Outcome.TIE})
        assert (record.found.verdict == "tie") == (record.found.outcome is Outcome.TIE)
        assert record.found.confidence is None or 0 <= record.found.confidence <= 1


@each_reader
@settings(max_examples=examples(120), deadline=None)
@given(document=documents)
def test_any_json_is_read_or_refused(reader: Reader, document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Known keys with any values, in any nesting."""
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(document), "utf-8")
    check(reader, path)
    lines = path.with_suffix(".jsonl")
    lines.write_text("".join(json.dumps(entry) + "\n" for entry in (document if isinstance(document, list) else [])))
    check(reader, lines)


@each_reader
@settings(max_examples=examples(120), deadline=None)
@given(lines=tables)
def test_any_table_is_read_or_refused(
    reader: Reader, lines: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Known columns with any fields, too many or too few of them."""
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text("".join(",".join(line) + "\n" for line in lines), "utf-8")
    check(reader, path)


@each_reader
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=60), ending=st.sampled_from((".json", ".jsonl", ".csv", ".eval", ".txt")))
def test_any_bytes_are_read_or_refused(
    reader: Reader, data: bytes, ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No file at all stops an import with anything but a plain error."""
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    path.write_bytes(data)
    check(reader, path)
