"""Vertex AI's rows, lines and import rules, byte for byte: nothing raises, nothing is flattered, no id is guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond import ids
from batchpond.errors import ProviderError, UsageError
from batchpond.model import ErrorClass, Finish, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.shared.dialect import ModelSettings
from batchpond.providers.vertex.dialect import ImportRuleError, Table, check_payload
from batchpond_sim.shared.batches import RowsError
from batchpond_sim.vertex.batches import Columns

vertex, gemini = registry.module("vertex"), registry.module("gemini")
MODEL = "gemini-2.5-flash"
OURS = ids.custom_id("2222222222" + "a" * 16, "3" * 26)
REQUEST = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
    "modelVersion": "gemini-3.8-flash",
    "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 3, "thoughtsTokenCount": 20},
}
BAD_ROLE = {"error": {"code": 400, "message": "Please use a valid role: user, model.", "status": "INVALID_ARGUMENT"}}


def row(**members: Any) -> bytes:
    found = {"status": "", "processed_time": "2026-11-21T10:18:13.826+00:00", "custom_id": f"k{OURS}"} | members
    return json.dumps({"request": REQUEST} | found).encode()


def read(line: bytes) -> Response:
    return vertex.read_line(line)


def test_an_answer_is_read_with_its_tokens_under_the_id_that_was_made() -> None:
    """The letter before the id is ours and goes; thoughts count as output; the model is the one that answered."""
    got = read(row(response=ANSWER))
    assert (got.custom_id, got.status, got.text, got.finish) == (OURS, ResponseStatus.SUCCEEDED, "Hello", Finish.STOP)
    assert (got.input_tokens, got.output_tokens, got.reasoning_tokens) == (4, 23, 20)
    assert got.response_model == "gemini-3.8-flash"


def test_a_row_without_a_total_is_an_answer_whose_tokens_are_counted_all_the_same() -> None:
    """Rows without `totalTokenCount` were seen."""
    assert read(row(response=ANSWER)).input_tokens == 4
    assert read(row(response={**ANSWER, "usageMetadata": None})).input_tokens is None


@pytest.mark.parametrize(
    ("status", "code", "error_class"),
    [
        (f"Bad Request: {json.dumps(BAD_ROLE)}", "INVALID_ARGUMENT", ErrorClass.PERMANENT),
        ('Too Many Requests: {"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}}',
         "RESOURCE_EXHAUSTED", ErrorClass.TRANSIENT),
        ("RESOURCE_EXHAUSTED: Online prediction request quota exceeded for m.", "RESOURCE_EXHAUSTED",
         ErrorClass.TRANSIENT),
        ("Internal Server Error: it broke", "INTERNAL", ErrorClass.TRANSIENT),
        ("Bad Request: {not json", "INVALID_ARGUMENT", ErrorClass.PERMANENT),
        ("a word from nobody", None, ErrorClass.PERMANENT),
        ('Forbidden: {"error": {"code": 403, "message": "no", "status": "PERMISSION_DENIED"}}', "PERMISSION_DENIED",
         ErrorClass.PERMANENT),
        ({"code": 8, "message": "quota"}, "RESOURCE_EXHAUSTED", ErrorClass.TRANSIENT),
    ],
)  # fmt: skip
@pytest.mark.parametrize("members", [{}, {"response": ""}, {"response": ANSWER}])
def test_a_row_whose_status_says_something_failed_whatever_its_response(
    status: object, code: str | None, error_class: ErrorClass, members: dict[str, Any]
) -> None:
    """Older rows have `response` "" then; the JSON after the first colon is the error."""
    got = read(row(status=status, **members))
    assert (got.custom_id, got.status, got.error_code, got.error_class) == (
        OURS, ResponseStatus.ERRORED, code, error_class,
    )  # fmt: skip


def test_what_is_sent_begins_with_a_letter_and_comes_back_as_it_was() -> None:
    """Even an id of digits and a dash alone; a foreign id is left as it is."""
    line = vertex.payload_line(OURS, "generateContent", orjson.dumps(REQUEST))
    sent = json.loads(line)
    assert sent["custom_id"][0].isalpha()
    assert sent["request"] == REQUEST
    assert read(row(custom_id=sent["custom_id"], response=ANSWER)).custom_id == OURS
    assert read(row(custom_id="k-req-0001", response=ANSWER)).custom_id == "k-req-0001"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcA"), inner, max_size=3),
    max_leaves=8,
)


# --- what can be loaded as a table -----------------------------------------------------------------


def settings(model: str = MODEL, **more: Any) -> ModelSettings:
    return ModelSettings(model, "generateContent", **more)


@pytest.mark.parametrize("model", [MODEL, f"publishers/google/models/{MODEL}"])
def test_a_body_is_what_the_gemini_api_would_get(model: str) -> None:
    """One builder and one table of models for both; the path before a model's name changes nothing."""
    wish: dict[str, Any] = {"thinking": "low", "max_output_tokens": 2_000, "temperature": 0.5, "include_thoughts": True}
    built = vertex.build_body("Which?", settings(model, **wish))
    assert built == gemini.build_body("Which?", settings(**wish))
    assert vertex.caveats(model) == gemini.caveats(MODEL)


def test_whole_and_broken_temperatures_are_of_one_type() -> None:
    """0 beside 0.5 would be two types of one column, and the job would fail."""
    bodies = [vertex.build_body("Which?", settings(temperature=t, parameters={"topK": 40})).body for t in (0, 0.5)]
    table = Table()
    for number, body in enumerate(bodies, 1):
        table.add(json.loads(orjson.dumps({"request": body})), number)
    assert orjson.dumps(bodies[0]["generationConfig"]["temperature"]) == b"0.0"


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"responseSchema": {"$defs": {"a": 1}}}, r"\$defs is no column name"),
        ({"responseSchema": {"final answer": 1}}, "final answer is no column name"),
        ({"tools": [{"google_search": {}}]}, "google_search is an empty object"),
        ({"responseSchema": {"default": None}}, "default is null"),
        ({"stopSequences": ["a", 1]}, "stopSequences holds a whole number and text"),
        ({"responseSchema": {"enum": [["a"]]}}, "enum is an array of arrays"),
        ({"responseSchema": {"type": "a", "Type": "b"}}, "columns ignore case"),
    ],
)
def test_parameters_that_cannot_be_loaded_are_refused_before_anything_is_planned(
    parameters: dict[str, Any], problem: str
) -> None:
    """Each fails the whole job at Vertex AI, minutes after it was made."""
    with pytest.raises(UsageError, match=problem) as caught:
        vertex.build_body("Which?", settings(parameters=parameters))
    assert "loads the input file as a table" in (caught.value.hint or "")


def test_levels_end_at_fifteen() -> None:
    """A schema can be nested deeper than a table."""
    deep: dict[str, Any] = {"type": "STRING"}
    for _ in range(12):
        deep = {"items": deep}
    vertex.build_body("Which?", settings(parameters={"responseSchema": deep["items"]["items"]}))
    with pytest.raises(UsageError, match="nested deeper than 15"):
        vertex.build_body("Which?", settings(parameters={"responseSchema": {"items": {"items": deep}}}))


@pytest.mark.parametrize("model", ["publishers/anthropic/models/claude-haiku-4-5", "a/b", "models/"])
def test_a_model_that_is_no_gemini_is_refused(model: str) -> None:
    """Other publishers' lines have another shape."""
    with pytest.raises(UsageError, match="not a Gemini model"):
        vertex.build_body("Which?", settings(model))


def test_a_file_of_two_types_is_refused_with_both_lines_named(tmp_path: Path) -> None:
    """Nothing is uploaded that would fail whole."""
    path = tmp_path / "p.jsonl"
    lines = [{"request": {"topK": 1}}, {"request": {"seed": 2}}, {"request": {"topK": 0.5}}]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    with pytest.raises(ProviderError, match=r"line 3 of p\.jsonl .*request\.topK is a fraction.*on line 1; no batch"):
        check_payload(path)
    path.write_bytes(orjson.dumps(lines[0]) + b"\n" + orjson.dumps(lines[1]) + b"\n")
    check_payload(path)


@given(st.lists(JSON, min_size=1, max_size=4))
def test_what_is_let_through_can_be_loaded(values: list[Any]) -> None:
    """The simulator's import, which knows nothing of this check, never fails a file that passed it."""
    table, columns = Table(), Columns()
    for number, value in enumerate(values, 1):
        line = {"request": {"value": value}}
        try:
            table.add(line, number)
        except ImportRuleError:
            return
        try:
            columns.load(line)
        except RowsError as error:
            pytest.fail(f"{values}: {error}")
