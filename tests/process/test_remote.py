"""Hosts that share a lake in a bucket, as processes: what is killed, sleeps, or comes at once buys nothing twice."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from tests.rigs.hosts import N_SHARDS, USUAL, disturb, hosts
from tests.rigs.sim_study import STUDY

SHORT_SLEEP_S = 3.0
"""More than a lease, and so far below the settle time that no busy machine makes up the difference."""


def test_one_host_plans_another_submits_and_a_third_collects(tmp_path: Path) -> None:
    with hosts(tmp_path) as made:
        assert made.here(1, "submit", STUDY, "--yes") == ExitCode.DONE
        assert made.here(2, "sync") == ExitCode.DONE
        assert made.problems() == []


@pytest.mark.parametrize("provider", ["openai", "together", "anthropic"])
def test_hosts_that_die_and_sleep_at_any_moment_buy_nothing_twice(tmp_path: Path, provider: str) -> None:
    """A token, an input file, or results alone tell whose a batch is; the sweep does more of it."""
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
