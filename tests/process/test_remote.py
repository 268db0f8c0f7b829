"""Hosts that share a lake in a bucket, as processes: what is killed, sleeps, or comes at once buys nothing twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from tests.rigs.hosts import N_REQUESTS, N_SHARDS, USUAL, disturb, hosts
from tests.rigs.sim_study import STUDY
from tests.rigs.swept import some

SHORT_SLEEP_S = 3.0
"""More than a lease, and so far below the settle time that no busy machine makes up the difference."""


def test_one_host_plans_another_submits_and_a_third_collects(tmp_path: Path) -> None:
    with hosts(tmp_path) as made:
        assert made.here(1, "submit", STUDY, "--yes") == ExitCode.DONE
        assert made.here(2, "sync") == ExitCode.DONE
        assert made.problems() == []


LOOKING = (
    ("status",),
    ("results", "--study", STUDY),
    ("report", STUDY, "-o", "{folder}/report.html", "--force"),
    ("query", "SELECT * FROM metric_consistency"),
    ("query", "responses"),
    ("compare", f"{STUDY}:model=gpt-4o", f"{STUDY}:model=gpt-4.1-mini"),
)
NEEDING = (
    (("query", "SELECT count(*) FROM raw"), {"raw"}),
    (("query", "requests"), {"requests"}),
    (("audit",), {"raw"}),
    (("export", "{folder}/results.csv"), {"raw", "requests"}),
    (("doctor",), {"raw", "requests"}),
    (("sync",), {"raw", "requests"}),
)


def test_who_only_looks_downloads_no_raw_lines_and_no_requests_and_is_told_where_the_lake_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What needs them has them first, each of its host's own; no note or error calls the lake by its mirror's path."""
    with hosts(tmp_path) as made:
        assert made.here(1, "submit", STUDY, "--yes") == ExitCode.DONE
        assert made.here(2, "sync") == ExitCode.DONE
        made.shop.log.clear()
        for words in LOOKING:
            assert made.here(3, *(word.format(folder=tmp_path) for word in words)) == ExitCode.DONE, words
        assert made.shop.fetched("/raw/") == made.shop.fetched("/requests/") == []
        assert "until something reads them" in capfd.readouterr().err
        for host, (words, tables) in enumerate(NEEDING, start=4):
            made.shop.log.clear()
            assert made.here(host, *(word.format(folder=tmp_path) for word in words)) == ExitCode.DONE, words
            fetched = {name: len(made.shop.fetched(f"/{name}/")) for name in ("raw", "requests")}
            there = {name: sum(f"/{name}/" in key for key in made.shop.objects) for name in fetched}
            assert fetched == {name: n if name in tables else 0 for name, n in there.items()}, words
        out, said = capfd.readouterr()
        assert f"{N_REQUESTS}\n" in out
        assert f"{made.url} is lake" in out
        assert "host-" not in said


def test_status_says_how_requests_failed_without_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with hosts(tmp_path, faults=("lines@1:error_rows=1",)) as made:
        assert made.here(1, "submit", STUDY, "--yes") == ExitCode.DONE
        assert made.here(1, "sync") in USUAL
        made.shop.log.clear()
        assert made.here(3, "status") in USUAL
        assert "failed or missing" in capfd.readouterr().err
        assert made.shop.fetched("/raw/") == made.shop.fetched("/requests/") == []


@pytest.mark.parametrize("view", some("raw", swept=["audit"]))
def test_what_a_query_waits_for_is_no_part_of_its_time(tmp_path: Path, view: str) -> None:
    """A command that ran over its time would have ended by itself."""
    with hosts(tmp_path) as made:
        assert made.here(1, "submit", STUDY, "--yes") == ExitCode.DONE
        assert made.here(1, "sync") == ExitCode.DONE
        made.shop.faults.append(("GET", "/raw/", "slow"))
        assert made.start(2, "query", f"SELECT count(*) FROM {view}", "--timeout", "1").wait() == ExitCode.DONE


@pytest.mark.parametrize("provider", some("anthropic", swept=["openai"]))
def test_hosts_that_die_and_sleep_at_any_moment_buy_nothing_twice(tmp_path: Path, provider: str) -> None:
    """A token, or results alone, tell whose a batch is; the sweep does more of it, also where an input file does."""
    with hosts(tmp_path, provider) as made:
        toll = disturb(
            made, random.Random(1), n_kills=6, n_sleeps=3, n_hosts=3, bound_s=40.0, sleep_max_s=SHORT_SLEEP_S
        )
        assert toll.n_kills
        assert toll.strange == []
        codes = made.finish()
        assert made.problems() == [], codes


def test_a_host_that_won_the_election_and_slept_sends_nothing_when_it_wakes(tmp_path: Path) -> None:
    """Another has taken over meanwhile, by a clock that both have; what the sleeper would record is refused too."""
    clock = tmp_path / "clock"
    clock.write_text("0 0")
    with hosts(tmp_path) as made:
        made.variables["BATCHPOND_TEST_CLOCK"] = str(clock)
        sleeper = made.start(1, "submit", STUDY, "--yes", BATCHPOND_FAILPOINT="S8.before:stop")
        sleeper.wait_until_stopped()
        for passed_s in range(90, 180, 10):
            clock.write_text(f"{passed_s} 0")
            assert made.here(2, "sync") in USUAL
        assert len(made.simulator.world.ledger.batches) == N_SHARDS
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait() == ExitCode.BUSY
        codes = made.finish()
        assert made.problems() == [], codes


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("denied", ExitCode.ACCESS, ("may not list what is there", "403 Forbidden: AccessDenied", "guide `remote`")),
        ("expired", ExitCode.ACCESS, ("may not list what is there", "400 Bad Request: ExpiredToken", "guide `remote`")),
        ("no_bucket", ExitCode.FAILED, ("404 Not Found: NoSuchBucket", "and its bucket is there")),
    ],
)
def test_what_a_store_refuses_is_told_by_its_own_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: str, code: int, told: tuple[str, ...]
) -> None:
    """A refused key is exit 4 as any other, and the lake is not called damaged."""
    with hosts(tmp_path) as made:
        made.shop.faults += [("LIST", "", fault)]
        assert made.here(1, "status") == code
        said = capfd.readouterr().err
        assert [text for text in told if text not in said] == []
        assert "xml" not in said


def test_a_watch_goes_on_after_a_store_that_did_not_answer(tmp_path: Path) -> None:
    """As after a provider that did not: what it waits for may come hours later."""
    with hosts(tmp_path) as made:
        assert made.here(1, "submit", STUDY, "--yes") == ExitCode.DONE
        made.shop.faults += [("LIST", "_leases", "no_bucket")] * 2
        assert made.here(1, "sync") == ExitCode.FAILED
        assert made.here(1, "sync", "--watch", "--interval", "1") == ExitCode.DONE
        assert made.is_complete()
