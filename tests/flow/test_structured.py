"""Structured output: a study asks for it, each provider is asked in its own words, and the parsers read the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest
from anthropic.types import MessageCreateParams
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params
from pydantic import TypeAdapter
from together.types.chat import completion_create_params as together_params

from batchpond.errors import StudyError, UsageError
from batchpond.model import Mode
from batchpond.plan.cells import OutputSchema, canonical, make_model_configs
from batchpond.providers import registry
from batchpond.providers.shared.dialect import SCHEMA, ModelSettings
from batchpond.study.file import load
from batchpond.study.spec import ModelSpec, Unsupported
from batchpond.tasks import compliance, likert, listwise, pressure
from batchpond_sim.anthropic import answers as anthropic_answers
from batchpond_sim.compatible import api as compatible
from batchpond_sim.gemini import answers as gemini_answers
from batchpond_sim.judges.speech import named_schema_problem, schema_problem
from batchpond_sim.openai import answers as openai_answers
from batchpond_sim.together import batches as together_answers
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

SCHEMAS = {
    rule.TASK: rule.output_schema()
    for rule in (compliance.ComplianceRule(), likert.LikertRule(), pressure.PressureRule(), listwise.OrderRule())
} | {"best": listwise.BestRule(none="none").output_schema()}
OURS = OutputSchema(SCHEMAS["compliance"] or {})
NAMED = {"name": "answer", "schema": OURS, "strict": True}
CHAT = {"response_format": {"type": "json_schema", "json_schema": NAMED}}
GENERATION = {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": OURS}}

ASKED: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("openai", "gpt-4.1-mini", None, CHAT),
    ("openai", "gpt-5.4-mini", "/v1/responses", {"text": {"format": {"type": "json_schema", **NAMED}}}),
    ("anthropic", "claude-haiku-4-5", None, {"output_config": {"format": {"type": "json_schema", "schema": OURS}}}),
    ("gemini", "gemini-2.5-flash", None, GENERATION),
    ("vertex", "gemini-2.5-flash", None, GENERATION),
    ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", None, CHAT),
    ("ollama", "llama3.2", None, {"format": OURS}),
    ("mistral", "mistral-large-latest", None, CHAT),
    ("vllm", "any", None, CHAT),
    ("groq", "openai/gpt-oss-20b", None, CHAT),
]  # fmt: skip
NOT_ASKED = [("openai", "gpt-3.5-turbo"), ("openai", "gpt-4-turbo"), ("openai", "chatgpt-4o-latest"),
             ("gemini", "gemini-2.0-flash"), ("deepseek", "deepseek-v4"), ("groq", "qwen3-32b")]  # fmt: skip


def body(provider: str, model: str, endpoint: str | None = None, **more: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the body that holds an answer to the schema, and what was left out of it."""
    module = registry.module(provider)
    endpoint = endpoint or module.endpoint_for(model, False, None)
    built = module.build_body("Is it so?", ModelSettings(model, endpoint, output_schema=OURS, **more))
    return built.body, built.dropped


@pytest.mark.parametrize(("provider", "model", "endpoint", "asked"), ASKED)
def test_each_provider_is_asked_in_its_own_words(
    provider: str, model: str, endpoint: str | None, asked: dict[str, Any]
) -> None:
    sent, left_out = body(provider, model, endpoint)
    assert {name: sent[name] for name in asked} == asked
    assert left_out == ()
    assert registry.module(provider).DESCRIPTOR.takes_schema


@pytest.mark.parametrize(("provider", "model"), NOT_ASKED)
def test_a_model_without_it_is_asked_as_before_and_named(provider: str, model: str) -> None:
    """Whether the table of models says so or the provider has no schemas at all."""
    spec = ModelSpec(provider, model, mode=Mode.LIVE)
    with_schema, without = (
        make_model_configs([spec], registry.module, Unsupported.REFUSE, "study", schema)[0][0]
        for schema in (OURS, None)
    )
    assert with_schema.left_out == (SCHEMA,)
    assert with_schema.fingerprint == without.fingerprint


def test_the_official_types_know_what_is_sent() -> None:
    chat, _ = body("openai", "gpt-4.1-mini")
    responses, _ = body("openai", "gpt-5.4-mini", "/v1/responses")
    messages, _ = body("anthropic", "claude-haiku-4-5")
    together, _ = body("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo")
    cases = (
        (chat_params.CompletionCreateParamsNonStreaming, "response_format", chat),
        (response_create_params.ResponseCreateParamsNonStreaming, "text", responses),
        (together_params.CompletionCreateParamsNonStreaming, "response_format", together),
    )
    for params, name, sent in cases:
        kind = TypeAdapter(get_type_hints(params, include_extras=False)[name])
        assert kind.validate_python(sent[name]) == sent[name]
        with pytest.raises(ValueError, match="validation error"):
            kind.validate_python({"type": "json_schema"} if name == "response_format" else {"format": {"type": "?"}})
    kind = TypeAdapter(MessageCreateParams)
    assert kind.validate_python(messages)["output_config"] == messages["output_config"]


def test_google_knows_what_is_sent() -> None:
    types = pytest.importorskip("google.genai.types")
    sent, _ = body("gemini", "gemini-2.5-flash")
    found = types.GenerationConfig.model_validate(sent["generationConfig"])
    assert found.response_json_schema == OURS
    assert found.response_mime_type == "application/json"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_tasks_schema_is_in_the_subset_that_all_take_and_keeps_its_order(name: str) -> None:
    """The reason comes first: a model answers in the order of the schema."""
    schema = SCHEMAS[name]
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema_problem(schema) is None
    sent = canonical({"z": 1, "format": OutputSchema(schema), "a": "ü"})
    assert sent == b'{"a":"\xc3\xbc","format":' + json.dumps(schema, separators=(",", ":")).encode() + b',"z":1}'
    assert next(iter(schema["properties"])) == "explanation"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({**OURS, "additionalProperties": True}, "additionalProperties"),
        ({**OURS, "required": ["compliant"]}, "Missing"),
        ({**OURS, "minimum": 3}, "'minimum' is not permitted"),
        ({"type": "array", "items": {"type": "string"}}, "got 'type: \"array\"'"),
        ({**OURS, "properties": {**OURS["properties"], "compliant": {"type": "bool"}}}, "'bool' is not valid"),
        (None, "must be a JSON Schema"),
    ],
)
def test_simulators_refuse_what_providers_refuse(schema: Any, problem: str) -> None:
    assert problem in (schema_problem(schema) or "")
    assert problem in (named_schema_problem({"name": "answer", "schema": schema, "strict": True}) or "")
    assert named_schema_problem({"schema": schema}) == "Missing required parameter: 'response_format.json_schema.name'."


def test_a_parameter_of_ones_own_for_the_same_thing_is_refused() -> None:
    for provider, model, name in (("openai", "gpt-4.1-mini", "response_format"), ("ollama", "llama3.2", "format"),
                                  ("anthropic", "claude-haiku-4-5", "output_config")):  # fmt: skip
        with pytest.raises(UsageError):
            body(provider, model, parameters={name: {"type": "json_object"}})


def structured_study(models_text: str) -> str:
    """Return answers, and verdicts on them in JSON of a known form."""
    return (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4o-mini')}")
        + stage("verdicts", "compliance", 'stage = "answers"',
                f"structured = true\n---{RUBRICS}{use('compliance_json')}{models_text}")
    )  # fmt: skip


def test_a_study_asks_for_it_and_reads_the_answers_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models without schemas have ended at OpenAI, but not at another address."""
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    text = structured_study(models("gpt-4.1-mini", "gpt-3.5-turbo"))
    rig = StageRig(tmp_path / "rig", toml=text, n_inputs=2)
    report = rig.planned()
    assert [note for note in report.notes if SCHEMA in note] == [
        "stage verdicts: openai/gpt-3.5-turbo at thinking default does not take structured output; left out"
    ]
    rig.submit()
    rig.finish()
    rows = rig.ask(
        "select r.request_model, r.outcome, q.body from results as r join requests as q on q.request_id = r.request_id"
        " where r.stage = 'verdicts' order by all"
    )
    assert [(row["request_model"], row["outcome"], "json_schema" in row["body"]) for row in rows] == [
        ("gpt-3.5-turbo", "decided", False), ("gpt-3.5-turbo", "decided", False),
        ("gpt-4.1-mini", "decided", True), ("gpt-4.1-mini", "decided", True),
    ]  # fmt: skip
    assert rig.violations() == []


def test_it_has_no_meaning_for_answers_of_no_known_form(tmp_path: Path) -> None:
    text = structured_study(models("gpt-4.1-mini")).replace(
        'task = "generation"', 'task = "generation"\nstructured = true'
    )
    rig = StageRig(tmp_path / "rig", toml=text)
    with pytest.raises(StudyError, match="structured has no meaning for answers of the task generation"):
        load(rig.study_path)


@pytest.mark.parametrize(
    ("provider", "model", "spoil"),
    [
        ("openai", "gpt-4.1-mini", lambda sent: sent["response_format"]["json_schema"]),
        ("openai", "gpt-5.4-mini", lambda sent: sent["text"]["format"]),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", lambda sent: sent["response_format"]["json_schema"]),
        ("anthropic", "claude-haiku-4-5", lambda sent: sent["output_config"]["format"]),
        ("gemini", "gemini-2.5-flash", lambda sent: sent["generationConfig"]),
        ("vllm", "any", lambda sent: sent["response_format"]["json_schema"]),
    ],
)
def test_each_simulator_takes_what_is_sent_and_refuses_it_spoiled(provider: str, model: str, spoil: Any) -> None:
    endpoint = "/v1/responses" if model.startswith("gpt-5") else None
    sent, _ = body(provider, model, endpoint)
    assert refusal(provider, endpoint, sent) is None
    spoiled = json.loads(json.dumps(sent))
    place = spoil(spoiled)
    place["responseJsonSchema" if provider == "gemini" else "schema"] = {"type": "object", "properties": {}}
    assert "additionalProperties" in str(refusal(provider, endpoint, spoiled))


def refusal(provider: str, endpoint: str | None, sent: dict[str, Any]) -> object:
    """Return what a provider's simulator has against a body, None when nothing."""
    match provider:
        case "openai":
            return openai_answers._refused_parameters(endpoint or openai_answers.CHAT, sent)
        case "together":
            return together_answers._refused(sent)
        case "vllm":
            return compatible._refused_body(sent)
        case "gemini":
            family = gemini_answers.family_of("gemini-2.5-flash")
            return gemini_answers.malformed(sent) or gemini_answers.refused(sent, family)
        case _:
            try:
                anthropic_answers.check_params({**sent, "max_tokens": 100}, anthropic_answers.VERSION, is_batch=True)
            except anthropic_answers.ParamsError as error:
                return error
            return None
