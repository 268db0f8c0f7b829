"""The demo: the whole flow over loopback HTTP, and the planted biases found again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from batchpond.lake.events import EventLog
from batchpond.lake.records import Planned
from batchpond.lake.store import Store
from tests.rigs import forked
from tests.rigs.events import fact

PLANTED = {"claude-haiku-4-5": 0.0, "gpt-5.4-mini": 0.9, "gemini-2.5-flash-lite": -0.7}

# Of what each request asked and came to, whatever its batch was called and its model costs today.
RESULTS = "5700,f89fe636159124c1c0a70e0ca372b180"
FACTS = """
SELECT count(*), md5(string_agg(concat_ws('|', request_id, template_id, request_model, direction, outcome, verdict,
  input_tokens, output_tokens), '~'
  ORDER BY request_id, template_id, request_model, direction, item_first, item_second))
FROM results
"""


def _demo(lake: Path) -> subprocess.CompletedProcess[bytes]:
    return forked.run("--lake", str(lake), "demo", "--json", env=os.environ)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "lake"


def test_the_demo_finds_the_planted_biases(lake: Path) -> None:
    """Of 15 intervals at 95 %, chance leaves out one; the direction is never mistaken."""
    done = _demo(lake)
    assert done.returncode == 0, done.stderr.decode()
    document = json.loads(done.stdout)
    cells = document["consistency"]
    assert len(cells) == 15
    covered = 0
    for cell in cells:
        planted = PLANTED[cell["request_model"]]
        covered += cell["position_logodds_lo"] <= planted <= cell["position_logodds_hi"]
        if planted:
            assert cell["position_logodds"] * planted > 0
            assert cell["q_bh"] < 0.05
    assert covered >= 13
    assert sum(cell["n_planned"] for cell in document["completion"]) == 5_700
    report = lake.absolute().parent / "demo-report.html"
    assert document["report"] == str(report)
    assert "All answers in this report are simulated" in report.read_text()


def test_the_demo_asks_and_is_answered_the_same_in_every_version(lake: Path) -> None:
    """Its seed decides: a faster planner, reader or view changes no request and no result."""
    assert _run(lake, "query", FACTS, "--format", "csv").decode().splitlines()[1] == RESULTS


def test_the_demo_again_buys_nothing(lake: Path) -> None:
    before = {path: path.read_bytes() for path in lake.rglob("*.parquet")}
    done = _demo(lake)
    assert done.returncode == 0, done.stderr.decode()
    assert {path: path.read_bytes() for path in lake.rglob("*.parquet")} == before


def test_results_travel_to_another_lake_with_their_metrics(lake: Path, tmp_path: Path) -> None:
    """What `results` wrote is taken in by `import judgments`: the same figures, and simulated still."""
    other, path = tmp_path / "other", tmp_path / "results.csv"
    path.write_bytes(_run(lake, "results", "--study", "demo", "--format", "csv"))
    _run(other, "import", "judgments", str(path))
    for view in ("metric_consistency", "metric_pairwisellm", "metric_outcomes", "report_consistency"):
        here, there = (_rounded(_run(each, "query", f"from {view} order by all", "--json")) for each in (lake, other))
        assert here
        assert here == there
        assert {row.get("origin", "simulated") for row in there} == {"simulated"}


def _rounded(document: bytes) -> list[dict[str, object]]:
    """Return rows without the digits that depend on the order in which floats were added."""
    return [
        {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in row.items()}
        for row in json.loads(document)
    ]


def _run(lake: Path, *command: str) -> bytes:
    done = forked.run("--lake", str(lake), *command, env=os.environ)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_lake_with_real_data_is_refused_untouched(tmp_path: Path) -> None:
    store = Store.init(tmp_path / "lake")
    with store.lock("test"):
        EventLog(store).append(fact(Planned, study="mine", study_version="v"))
    before = {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()}
    done = _demo(store.path)
    assert done.returncode == 2
    assert b"holds real data (mine)" in done.stderr
    assert {path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()} == before
