"""What a study is to show is written down before anything is sent, and the report says whether it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from batchpond.study.file import load
from batchpond.study.spec import CLAIMABLE, from_config, to_config
from batchpond.views import refresh
from tests.rigs.fake_openai import FakeOpenAI, fake_openai
from tests.rigs.findings import Told
from tests.rigs.program import STUDY, N, Program

CLAIMS = """
[claims]
primary = "position"
secondary = ["length", "win matrix"]
hypothesis = 'The "first" is favoured, the longer one is not.'
effect = {effect}
"""
N_PAIRS = N // 2
# Of six pairs the exact test rejects at six of six only: 0.8 = s ** 6.
SHARE_IN_REACH = 0.8 ** (1 / N_PAIRS)


@pytest.fixture
def account() -> Iterator[FakeOpenAI]:
    with fake_openai() as found:
        yield found


@pytest.fixture
def program(account: FakeOpenAI, tmp_path: Path) -> Program:
    made = Program(tmp_path, account.url)
    made.write()
    return made


def claim(program: Program, effect: float | None) -> str:
    """Write claims into the study, plan it, and return what `plan` said."""
    file = program.folder / "study.toml"
    claims = CLAIMS.format(effect=effect) if effect is not None else CLAIMS.partition("effect")[0]
    file.write_text(file.read_text().partition("\n[claims]")[0] + claims)
    done = program.run("plan", "study.toml")
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def claimed(program: Program) -> dict[str, Any]:
    """Return the row of the study's claims."""
    (row,) = json.loads(program.run("query", "from report_claims", "--format", "json").stdout)
    return dict(row)


def report(program: Program) -> str:
    """Return the report's sections on claims and on all tests, each with what it finds at the top, as Markdown."""
    told = Told(program.folder / program.lake, STUDY)
    return "\n".join(map(told.text, ("claims", "tests")))


def test_what_was_claimed_first_is_marked_and_how_much_the_plan_could_find_is_said(program: Program) -> None:
    """Before anything is sent, and after everything was answered."""
    assert "claimed: position, length, win matrix; kept with this plan" in claim(program, 0.1)
    row = claimed(program)
    assert (row["primary_claim"], row["secondary_claims"], row["effect"], row["n_claims"]) == (
        "position", "length,win matrix", 0.1, 1
    )  # fmt: skip
    assert row["hypothesis"] == 'The "first" is favoured, the longer one is not.'
    assert (row["first_sent_at"], row["is_claimed_first"], row["n_pairs"]) == (None, True, N_PAIRS)
    assert row["position_mde"] == pytest.approx(SHARE_IN_REACH, abs=1e-9)
    assert row["is_effect_in_reach"] is False
    program.submit()
    program.sync()
    after = claimed(program)
    assert (after["is_claimed_first"], after["n_sent_before"]) == (True, 0)
    assert after["claims_sha256"] == row["claims_sha256"]
    told = report(program)
    assert "| position | primary |" in told
    assert "were written down" not in told
    assert re.search(r"as primary claim: position\. \d of \d tests? .* corrected by Holm over all \d", told)
    assert "explores" not in told


def test_claims_that_change_once_answers_were_asked_for_are_no_claims(account: FakeOpenAI, program: Program) -> None:
    """The report says so first; nothing is asked again, and the first ones, once planned again, count as before."""
    claim(program, 0.1)
    program.submit()
    program.sync()
    first = claimed(program)
    claim(program, 0.47)
    assert program.submit().returncode == 0
    late = claimed(program)
    assert (late["is_claimed_first"], late["n_sent_before"], late["n_claims"]) == (False, N, 2)
    assert late["claims_sha256"] != first["claims_sha256"]
    assert late["is_effect_in_reach"] is True
    told = report(program)
    assert f"after {N} requests had been sent: nothing in it was planned first" in told
    assert "| position | primary |" not in told
    claim(program, 0.1)
    again = claimed(program)
    assert (again["is_claimed_first"], again["claims_sha256"], again["n_claims"]) == (True, first["claims_sha256"], 2)
    assert len(account.batches) == 1


def test_a_claim_that_names_no_effect_is_reported(program: Program) -> None:
    """What was not said is a dash in the report, before anything is sent."""
    claim(program, None)
    assert (claimed(program)["effect"], claimed(program)["is_effect_in_reach"]) == (None, None)
    assert "| position | length,win matrix |" in report(program)


def test_a_study_without_claims_has_none_and_an_unknown_test_is_named(program: Program) -> None:
    """With the names there are."""
    assert program.run("plan", "study.toml").returncode == 0
    assert json.loads(program.run("query", "from report_claims", "--format", "json").stdout) == []
    file = program.folder / "study.toml"
    file.write_text(file.read_text() + '[claims]\nprimary = "positoin"\n')
    done = program.run("plan", "study.toml")
    assert done.returncode == 2
    assert "claims.primary is 'positoin', not one of position" in done.stderr
    assert "did you mean" in done.stderr


@pytest.mark.parametrize("name", CLAIMABLE)
def test_what_can_be_claimed_is_a_test_of_the_report(name: str) -> None:
    """A claim by a name that no test has would be marked nowhere."""
    written = (files("batchpond_report") / "sections" / "tests.toml").read_text("utf-8")
    compared = name.removeprefix("consistency by ")
    assert f"'{name}'" in written or ("'consistency by ' || compared" in written and compared in {"template", "judge"})


def test_claims_of_stages_come_back_from_the_lake(program: Program) -> None:
    """As they were written; a study without them is kept without the word, so that its version stays."""
    file = program.folder / "study.toml"
    without = load(file)
    file.write_text(file.read_text() + CLAIMS.format(effect=0.25))
    study = load(file)
    assert from_config(json.loads(json.dumps(to_config(study)))).claims == study.claims
    assert study.claims is not None
    assert "claims" not in to_config(without)
    assert from_config(to_config(without)).claims is None


def test_the_methods_are_the_claims_and_the_headers_of_what_the_report_read(program: Program) -> None:
    """On stdout, before and after answers; every estimator stands in a header, and each reference with it."""
    claim(program, 0.1)
    program.submit()
    program.sync()
    done = program.run("report", STUDY, "--claims")
    assert done.returncode == 0, done.stderr
    row = claimed(program)
    for said in ("What was claimed beforehand", row["claims_sha256"][:16], "claimed first", row["hypothesis"][:10]):
        assert said in done.stdout
    scripts = {script.name: script for script in refresh.scripts()}
    parts = {part.partition("\n")[0]: part for part in done.stdout.split("\n## ")[1:]}
    printed = [name for name in parts if name in scripts]
    assert {"report_claims", "metric_consistency", "metric_position_bias", "wilson", "clustered"} <= set(printed)
    assert "metric_pressure" not in printed
    for name in printed:
        header = scripts[name].header
        assert header["reference"] in parts[name]
        lines = [line for line in parts[name].splitlines() if line.startswith("- ")]
        assert set(lines) <= set(header["estimators"].splitlines())
        assert lines or name == "report_claims"
    assert "consistency_decided: n_consistent_win / n_decided" in parts["metric_consistency"]
    wrong = program.run("report", STUDY, "--claims", "--format", "md")
    assert wrong.returncode == 2
    assert "--claims prints the methods alone" in wrong.stderr
