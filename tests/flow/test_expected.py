"""Scores expected by the probabilities of an answer's tokens, whole: asked, bought, read; batch, files and live."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from batchpond.errors import StudyError
from batchpond.plan.cells import make_model_configs
from batchpond.providers import registry
from batchpond.study.file import load
from batchpond.study.spec import ModelSpec, Unsupported
from batchpond.tasks.expected import MASS_MIN
from batchpond_sim.judges.speech import SPREAD
from tests.rigs.stage_study import RUBRICS, StageRig, models, use

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
        f'{RUBRICS}{use("likert_json")}'.replace("stages.", "") + f"[answer]\nlogprobs = true\n{named}"
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
