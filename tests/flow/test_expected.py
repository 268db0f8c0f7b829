"""Scores expected by the probabilities of an answer's tokens, whole: asked, bought, read; batch, files and live."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from batchpond.errors import StudyError, UsageError
from batchpond.lake.store import Store
from batchpond.model import Mode
from batchpond.plan.cells import make_model_configs
from batchpond.plan.verb import plan_study
from batchpond.providers import base, registry
from batchpond.study.file import load
from batchpond.study.spec import ModelSpec, Unsupported
from batchpond.tasks.expected import MASS_MIN
from batchpond.views.read import run_query
from batchpond_sim.judges.speech import SPREAD
from tests.rigs.live_study import live_rig
from tests.rigs.sim_study import Rig
from tests.rigs.stage_study import RUBRICS, StageRig, use, write_files

FLASH = "gemini-2.5-flash"
LLAMA = "meta-llama/Llama-3.3-70B-Instruct-Turbo"
MODEL = '[[models]]\nprovider = "{}"\nmodel = "{}"\nmax_output_tokens = 3000\n{}\n'


def planted(said: int, low: int, high: int) -> tuple[float, float]:
    """Return the expected score of a simulated judge that says a number, and the share of that number."""
    shares = {number: math.exp(-abs(number - said) / SPREAD) for number in range(max(0, said - 9), said + 10)}
    allowed = {number: share for number, share in shares.items() if low <= number <= high}
    assert math.fsum(allowed.values()) / math.fsum(shares.values()) > MASS_MIN
    whole = math.fsum(allowed.values())
    return math.fsum(number * share for number, share in allowed.items()) / whole, allowed[said] / whole


def likert_toml(more: str = "", *asked: tuple[str, str, str]) -> str:
    """Return a study of ratings by these models."""
    named = "".join(MODEL.format(*one) for one in asked or [("openai", "gpt-4.1-mini", "")])
    return (
        f'study = "demo"\ntask = "likert"\n{more}[items]\npath = "inputs.csv"\nrubric = "statement"\n'
        f"{RUBRICS}{use('likert_json')}".replace("stages.", "")
        + f"[answer]\nlogprobs = true\n{named}"
    )


def finished(tmp_path: Path, toml: str, n_inputs: int = 5) -> StageRig:
    """Return a rig whose study is answered."""
    rig = StageRig(tmp_path / "rig", toml=toml, n_inputs=n_inputs)
    rig.plan()
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    return rig


@pytest.mark.parametrize(
    ("provider", "model", "endpoint", "more"),
    [
        ("openai", "gpt-4.1-mini", "", "structured = true\n"),
        ("openai", "gpt-5.4-mini", 'endpoint = "responses"', ""),
        ("gemini", FLASH, "", "structured = true\n"),
        ("together", LLAMA, "", ""),
    ],
)
def test_the_score_is_that_of_the_planted_distribution(
    tmp_path: Path, provider: str, model: str, endpoint: str, more: str
) -> None:
    """For each provider's wire, to 1e-9; and the score that the judge wrote stays to be read in its text."""
    rig = finished(tmp_path, likert_toml(more, (provider, model, endpoint)))
    rows = rig.ask("select r.outcome, r.score, r.confidence, r.text from results as r")
    assert len(rows) == 5
    for row in rows:
        written = orjson.loads(row["text"])["rating"]
        assert row["outcome"] == "decided"
        assert (row["score"], row["confidence"]) == pytest.approx(planted(written, 1, 5), abs=1e-9)
    assert rig.ask("select min(score) <> max(score) as differs from results") == [{"differs": True}]


def test_live_calls_are_read_the_same(tmp_path: Path) -> None:
    """Of OpenAI, a server of one's own whose models think aloud, and Ollama."""
    asked = [("openai", "gpt-4.1-mini", 'mode = "live"'), ("compatible-lab", "deepseek-r1", 'mode = "live"'),
             ("ollama", "llama3.2", 'mode = "live"')]  # fmt: skip
    write_files(tmp_path / "study", n_inputs=2)
    path = tmp_path / "study" / "study.toml"
    path.write_text(likert_toml("", *asked))
    loaded = load(path)
    with live_rig(tmp_path) as rig:
        plan_study(Store.init(rig.lake), loaded)
        rig.submit("demo")
        assert rig.live().n_left == 0
        rig.sync()
        rows = run_query(rig.lake, "select provider, outcome, score, text from results").to_pylist()
    assert sorted(row["provider"] for row in rows) == ["compatible-lab"] * 2 + ["ollama"] * 2 + ["openai"] * 2
    for row in rows:
        written = orjson.loads(row["text"])["rating"]
        assert (row["outcome"], row["score"]) == ("decided", pytest.approx(planted(written, 1, 5)[0], abs=1e-9))


def test_a_verdict_on_a_pair_has_its_probability(tmp_path: Path) -> None:
    """As confidence, which calibration looks at; the score is the share of wins of the sample shown first."""
    rig = Rig(tmp_path / "rig", models=("gpt-4.1-mini",))
    text = rig.study_path.read_text("utf-8")
    rig.study_path.write_text(text + "\n[answer]\nlogprobs = true\n")
    rig.plan()
    rig.submit()
    rig.settle()
    rows = run_query(rig.lake, "select verdict, outcome, score, confidence from results").to_pylist()
    p_second, of_first = planted(1, 1, 2)
    assert {row["verdict"] for row in rows} == {"first", "second"}
    for row in rows:
        said_first = row["verdict"] == "first"
        assert row["confidence"] == pytest.approx(of_first, abs=1e-9)
        assert row["score"] == pytest.approx(2 - p_second if said_first else p_second - 1, abs=1e-9)


def test_a_field_of_an_answer_has_an_expected_score_of_its_own(tmp_path: Path) -> None:
    """The other fields are read as written, also where they say the same number."""
    fields = (
        '[[answer.fields]]\nname = "clarity"\nkind = "score"\nrange = [1, 5]\nlogprobs = true\n'
        '[[answer.fields]]\nname = "depth"\nkind = "score"\nrange = [1, 5]\n'
    )
    toml = (
        'study = "demo"\ntask = "prompts"\n[items]\npath = "inputs.csv"\n'
        f'[[templates]]\nid = "t"\ntext = "{{INPUT}}\\nReply: {{ANSWER_FORMAT}}"\n{fields}'
        + MODEL.format("openai", "gpt-4.1-mini", "")
    )
    rig = finished(tmp_path, toml)
    for row in rig.ask("select rubric_id, score, text from results"):
        written = orjson.loads(row["text"])[row["rubric_id"]]
        expected = planted(written, 1, 5)[0] if row["rubric_id"] == "clarity" else written
        assert row["score"] == pytest.approx(expected, abs=1e-9)


def test_a_study_without_it_asks_and_reads_as_ever_and_one_with_it_asks_anew(tmp_path: Path) -> None:
    """The same rating is another request, and another reading of the answer; what was bought stays."""
    rig = finished(tmp_path, likert_toml(), 2)
    rig.write(likert_toml().replace("[answer]\nlogprobs = true\n", ""))
    rig.plan()
    rig.submit()
    rig.finish()
    rows = rig.ask("select count(*) as n, count(distinct parser_id) as readers from judgments")
    assert rows == [{"n": 4, "readers": 2}]
    assert rig.ask("select max(score % 1) as part, max(confidence) as sure from results") == [{"part": 0, "sure": None}]
    bodies = [orjson.loads(row["body"]) for row in rig.ask("select body from requests")]
    assert (
        sorted(("logprobs" in body, body.get("top_logprobs")) for body in bodies)
        == [(False, None)] * 2 + [(True, 20)] * 2
    )


@pytest.mark.parametrize(
    ("provider", "model", "thinking"),
    [
        ("anthropic", "claude-haiku-4-5", "default"),
        ("openai", "gpt-5-mini", "default"),
        ("openai", "o3", "high"),
        ("openai", "gpt-5.4-mini", "low"),
        ("gemini", "gemini-3.5-flash", "default"),
        ("vertex", "gemini-3.5-flash", "default"),
        ("groq", "openai/gpt-oss-20b", "default"),
        ("mistral", "mistral-large-latest", "default"),
        ("xai", "grok-4.3", "default"),
        ("deepseek", "deepseek-v4", "none"),
    ],
)
def test_plan_refuses_whose_models_tell_none(tmp_path: Path, provider: str, model: str, thinking: str) -> None:
    """Rather than buy answers of which none could be read; with `drop` the model is left out and listed."""
    mode = 'mode = "live"\n' if provider == "deepseek" else ""
    toml = likert_toml("", ("openai", "gpt-4.1-mini", ""), (provider, model, f'{mode}thinking = ["{thinking}"]'))
    rig = StageRig(tmp_path / "rig", toml=toml, n_inputs=1)
    with pytest.raises(StudyError, match=rf"{provider}/{model}.*gives no log probabilities as it is asked"):
        rig.plan()
    dropped = make_model_configs(load(rig.study_path).stages[0].models, registry.module, Unsupported.DROP, "x",
                                 logprobs=True)[1]  # fmt: skip
    assert [(one.provider, one.model) for one in dropped] == [(provider, model)]


@pytest.mark.parametrize(
    ("provider", "model", "endpoint", "thinking"),
    [("openai", "gpt-5.4-mini", "responses", "none"), ("openai", "gpt-4.1-mini", None, "default"),
     ("gemini", FLASH, None, "default"), ("vertex", FLASH, None, "default"), ("together", LLAMA, None, "default"),
     ("vllm", "any", None, "default"), ("openrouter", "any", None, "default"), ("ollama", "llama3.2", None, "default")],
)  # fmt: skip
def test_each_provider_is_asked_in_words_that_it_knows(
    provider: str, model: str, endpoint: str | None, thinking: str
) -> None:
    """The fields are among those of its official list, of the right kind; and a parameter of one's own for them is
    refused."""
    live = provider in ("vllm", "openrouter", "ollama")
    spec = ModelSpec(provider, model, (thinking,), mode=Mode.LIVE if live else Mode.BATCH, endpoint=endpoint)
    (config,), _ = make_model_configs([spec], registry.module, Unsupported.REFUSE, "x", logprobs=True)
    with_it, without = (
        config.module.build_body("Is it?", replace(config.settings, logprobs=asks)).body for asks in (True, False)
    )
    inside = [body.get("generationConfig", body) for body in (with_it, without)]
    told = {name: value for name, value in inside[0].items() if name not in inside[1]}
    assert set(told) <= {"logprobs", "top_logprobs", "include", "responseLogprobs"}
    assert len(told) == (1 if provider == "together" else 2)
    known = base.known(provider)
    for name, value in told.items():
        kinds = known.kinds(name, config.settings.endpoint)
        assert kinds is None or base.fits(value, kinds), name
        with pytest.raises(UsageError):
            config.module.build_body("Is it?", replace(config.settings, logprobs=True, parameters={name: value}))
