"""What questions cost, as far as it is known, and keys from a file: what a user meets before anything is sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.rigs.fake_openai import fake_openai
from tests.rigs.program import STUDY, Program

UNKNOWN_MODEL = '[[models]]\nprovider = "openai"\nmodel = "gpt-99"\nmax_output_tokens = 200\n'


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A study of two models, one of which nobody knows the price of; nothing listens at its provider's address."""
    program = Program(tmp_path, "http://127.0.0.1:9/v1")
    program.write()
    with (tmp_path / "study.toml").open("a") as study:
        study.write(UNKNOWN_MODEL)
    return program


def test_a_total_says_what_is_known_of_it(program: Program) -> None:
    """One unknown price made every figure unknown; a limit is refused all the same, and JSON stays strict."""
    planned = program.run("plan", "study.toml").stdout
    assert "a rough estimate at batch prices:" in planned
    (line,) = [line for line in planned.splitlines() if line.startswith("low $")]
    assert line.count(" + unknown") == 3
    told = program.run("submit", STUDY, "--dry-run")
    assert "rough estimates at batch prices" in told.stdout
    (total,) = [line for line in told.stdout.splitlines() if line.startswith("in all 24 requests")]
    assert total.count("$") == total.count("+ unknown") == 2
    cost = json.loads(program.run("plan", "study.toml", "--json").stdout)["cost"]
    assert [cost[f"{name}_usd"] for name in ("low", "expected", "worst")] == [None] * 3
    assert 0 < cost["known_low_usd"] < cost["known_expected_usd"] < cost["known_worst_usd"]
    refused = program.run("submit", STUDY, "--yes", "--max-cost", "5")
    assert refused.returncode == 2
    assert "a cost limit cannot be kept" in refused.stderr


def test_prices_are_shown_with_who_says_so(program: Program) -> None:
    """Of the lake's models, an unknown one named with where to set it; of a provider; of one model, in each way."""
    program.run("plan", "study.toml")
    shown = program.run("prices", "--json")
    rows = {row["request_model"] if "request_model" in row else row["model"]: row for row in json.loads(shown.stdout)}
    assert (rows["gpt-99"]["input_usd"], rows["gpt-99"]["source"]) == (None, None)
    assert rows["gpt-4.1-mini"]["source"].startswith("genai-prices ")
    assert '[prices."openai/gpt-99"]' in shown.stderr
    assert re.search(r"genai-prices [\d.]+, whose newest price holds since 20\d\d-\d\d-\d\d", shown.stderr)
    (program.folder / "lake" / "config.toml").write_text('[prices."openai/gpt-99"]\ninput = 1.5\noutput = 3\n')
    rows = {row["model"]: row for row in json.loads(program.run("prices", "--json").stdout)}
    assert (rows["gpt-99"]["input_usd"], rows["gpt-99"]["source"]) == (1.5, "config.toml")
    one = json.loads(program.run("prices", "openai/gpt-5.4-mini", "--json").stdout)
    batch, live = ({row["mode"]: row["output_usd"] for row in one}[mode] for mode in ("batch", "live"))
    assert 0 < batch < live
    for named, key in (("openai/gpt-5.4-mini", "openai/gpt-5.4-mini"), ("openai", "openai/MODEL")):
        last = program.run("prices", named).stderr.splitlines()[-1]  # how to set one, also where all are known
        assert last.startswith("hint: to set one, write input and output under")
        assert f'[prices."{key}"]' in last
    assert "did you mean gpt-5.4-mini?" in program.run("prices", "openai/gpt-5.4-mimi").stderr
    assert len(json.loads(program.run("prices", "anthropic", "--json").stdout)) > 10
    assert "nothing is billed" in program.run("prices", "vllm").stderr
    assert "did you mean 'openai'" in program.run("prices", "opnai").stderr


def test_an_env_file_gives_what_is_not_set(program: Program) -> None:
    """Quotes, comments and `export`; what is set stays; nothing of it is shown or stored; a wrong line is named."""
    program.run("plan", "study.toml")
    program.more = {"TOGETHER_API_KEY": ""}
    file = program.folder / "my.env"
    file.write_text(
        "# keys\nexport ANTHROPIC_API_KEY='sk-ant-0123456789abcdef'  # mine\n\nTOGETHER_API_KEY=\"tk-1\"\n"
        "OPENAI_API_KEY=sk-other#1\n"
    )
    keys = program.run("keys", "--env-file", str(file), "--json")
    found = {row["provider"]: row["is_found"] for row in json.loads(keys.stdout)}
    assert (found["anthropic"], found["openai"], found["together"]) == (True, True, False)
    with fake_openai() as account:
        program.base_url = account.url
        for arguments in (("doctor",), ("submit", STUDY, "--yes")):
            done = program.run("--env-file", str(file), *arguments)
            assert "sk-" not in done.stdout + done.stderr
        assert len(account.batches) == 2
    assert not [path for path in (program.folder / "lake").rglob("*") if path.is_file() and b"sk-" in path.read_bytes()]
    file.write_text('A=1\nOPENAI_API_KEY="sk-secret\n')
    wrong = program.run("--env-file", str(file), "keys")
    assert wrong.returncode == 2
    assert "my.env:2: is no NAME=VALUE" in wrong.stderr
    assert "sk-secret" not in wrong.stderr
    missing = program.run("--env-file", str(program.folder / "no.env"), "keys")
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)


def test_a_limit_is_said_in_figures_that_differ(program: Program) -> None:
    """Mission defect D6: "the expected cost $0.00 exceeds the limit $0.00" says nothing; small amounts have digits."""
    program.write()
    program.run("plan", "study.toml")
    refused = program.run("submit", STUDY, "--yes", "--max-cost", "0.0005")
    assert refused.returncode == 2
    assert "the expected cost $0.0005904 exceeds the limit $0.0005000: not sent" in refused.stderr
    program.write(max_requests=12)
    above = program.run("submit", STUDY, "--yes", "--max-cost", "0.0025")
    assert "one batch may cost $0.0027 at worst, above the limit $0.0025" in above.stderr


def test_how_to_set_a_price_is_written_where_one_lacks(program: Program) -> None:
    """Mission defect D6: the guide names the keys and says batch or list price; a price that is set is used as such."""
    guide = program.run("guide", "costs").stdout
    for words in ('[prices."', "input = ", "output = ", "at batch prices", "@live"):
        assert words in guide
    planned = program.run("plan", "study.toml")
    assert '[prices."openai/gpt-99"]' in planned.stdout + planned.stderr
    prices = '[prices."openai/gpt-99"]\ninput = 1.0\noutput = 2.0\n'
    (program.folder / "lake" / "config.toml").write_text(prices)
    cost = json.loads(program.run("plan", "study.toml", "--json").stdout)["cost"]
    assert cost["worst_usd"] == cost["known_worst_usd"] > 0
    (row,) = [r for r in json.loads(program.run("prices", "--json").stdout) if r["model"] == "gpt-99"]
    assert (row["mode"], row["input_usd"], row["output_usd"]) == ("batch", 1.0, 2.0)
