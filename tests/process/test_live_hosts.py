"""Live calls and files of a lake at an address: hosts share what is due, none asks what another has or has asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from tests.rigs import forked
from tests.rigs.live_study import STUDY, Asked, LiveRig, live_rig, write_live_study

N = 12
N_SHARD = 4


@dataclass
class Hosts:
    """One lake and one provider; a host has a mirror of its own."""

    rig: LiveRig

    def environment(self, host: int, failpoint: str = "") -> dict[str, str]:
        named = {"BATCHPOND_FAILPOINT": failpoint} if failpoint else {}
        address = {"BATCHPOND_LAKE": f"file://{self.rig.folder}/shared"}
        return {**os.environ, **self.rig.environ, **named, **address, "BATCHPOND_MIRRORS": f"{self.rig.folder}/{host}"}

    def start(self, host: int, *arguments: str, failpoint: str) -> forked.Started:
        return forked.start(*arguments, env=self.environment(host, failpoint))

    def run(self, host: int, *arguments: str, failpoint: str = "") -> tuple[int, str]:
        done = forked.run_text(*arguments, env=self.environment(host, failpoint))
        return done.returncode, done.stdout + done.stderr

    def query(self, host: int, sql: str) -> str:
        code, said = self.run(host, "query", sql, "--format", "csv")
        assert code == ExitCode.DONE, said
        return said.splitlines()[1]

    def attempt_of(self, host: int) -> str:
        """Return the live attempt that is open."""
        return self.query(host, "SELECT attempt_id FROM attempts WHERE verified_at IS NULL")

    @property
    def n_billed(self) -> int:
        return self.rig.simulator.world.ledger.live.n_billed


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Plan and approve three live shards."""
    with live_rig(tmp_path) as rig:
        made = Hosts(rig)
        path = write_live_study(tmp_path / "study", N, shards=f"[shards]\nmax_requests = {N_SHARD}")
        for arguments in (("plan", str(path)), ("submit", STUDY, "--yes")):
            code, said = made.run(1, *arguments)
            assert code == ExitCode.DONE, said
        yield made


def all_is_answered_once(hosts: Hosts) -> None:
    """And nothing says any more that a machine has something to hand in."""
    assert [path for path in (hosts.rig.folder / "shared" / "_live").rglob("*") if path.is_file()] == []
    for host in (1, 2, 3):
        assert hosts.query(host, "SELECT count(*), count(DISTINCT request_id), count(verdict) FROM results") == (
            f"{N},{N},{N}"
        )
        assert hosts.query(host, "SELECT bool_and(is_balanced), sum(n_duplicate), sum(n_conflict) FROM audit") == (
            "true,0,0"
        )


def test_hosts_share_what_is_due_and_ask_nothing_twice(hosts: Hosts) -> None:
    """While one asks its shard, the other asks the rest, and says who has what is left."""
    asking = hosts.start(1, "live", failpoint="L3:stop:2")
    asking.wait_until_stopped()
    code, said = hosts.run(2, "live")
    assert code == ExitCode.DONE, said
    assert f"has the calls of {N_SHARD} requests" in said
    assert f"{N - N_SHARD} answered; {N_SHARD} requests left" in said
    asking.send_signal(signal.SIGCONT)
    assert asking.wait() == ExitCode.DONE
    assert hosts.n_billed == N
    all_is_answered_once(hosts)


def test_what_a_dead_process_has_asked_waits_for_its_own_machine(hosts: Hosts) -> None:
    """Nobody else may cancel it; there, `sync` brings in its answers, and then anyone asks what is left."""
    hosts.run(1, "live", failpoint="L0:kill")
    assert hosts.n_billed == N_SHARD
    code, said = hosts.run(2, "live")
    assert f"has the calls of {N_SHARD} requests" in said
    assert hosts.n_billed == N
    code, said = hosts.run(2, "cancel", hosts.attempt_of(2), "--yes")
    assert code == ExitCode.BUSY
    assert "sync` there" in said
    assert hosts.run(1, "sync")[0] == ExitCode.DONE
    assert hosts.n_billed == N
    all_is_answered_once(hosts)


def test_what_a_dead_process_has_not_asked_is_anyones_once_its_machine_has_looked(hosts: Hosts) -> None:
    hosts.run(1, "live", failpoint="L1:kill")
    assert hosts.n_billed == 0
    hosts.run(1, "sync")
    assert hosts.run(2, "live")[0] == ExitCode.DONE
    assert hosts.n_billed == N
    all_is_answered_once(hosts)


def test_a_machine_that_is_gone_is_given_up_by_a_person_and_its_answers_count_when_it_comes_back(hosts: Hosts) -> None:
    """Its requests are asked again, which is paid twice: the audit says of how many, and each has one result."""
    hosts.run(1, "live", failpoint="L0:kill")
    hosts.run(2, "live")
    attempt = hosts.attempt_of(2)
    assert hosts.run(2, "resolve", attempt, "--lost", "--yes")[0] == ExitCode.DONE
    assert hosts.query(2, "SELECT count(*), count(verdict) FROM results") == f"{N},{N - N_SHARD}"
    code, said = hosts.run(2, "retry", STUDY, "--only", "cancelled", "--yes")
    assert code == ExitCode.DONE, said
    code, said = hosts.run(2, "live")
    assert code == ExitCode.DONE, said
    assert hosts.n_billed == N + N_SHARD
    assert hosts.run(1, "sync")[0] == ExitCode.DONE
    for host in (1, 2, 3):
        assert hosts.query(host, "SELECT count(*), count(verdict) FROM results") == f"{N},{N}"
        told = hosts.query(host, "SELECT bool_and(is_balanced), sum(n_succeeded), sum(n_conflict) FROM audit")
        assert told == f"true,{N + N_SHARD},0"
    assert hosts.run(2, "live")[1].startswith("note: no live call is due")


@pytest.mark.parametrize("is_planned_anew", [False, True])
def test_what_was_forgotten_meanwhile_does_not_come_back_with_a_machine_that_was_given_up(
    hosts: Hosts, tmp_path: Path, is_planned_anew: bool
) -> None:
    """Its answers to a study that was forgotten are deleted with it, and it says so."""
    hosts.run(1, "live", failpoint="L0:kill")
    hosts.run(2, "live")
    assert hosts.run(2, "resolve", hosts.attempt_of(2), "--lost", "--yes")[0] == ExitCode.DONE
    code, said = hosts.run(2, "forget", "--study", STUDY, "--yes")
    assert code == ExitCode.DONE, said
    if is_planned_anew:
        assert hosts.run(2, "plan", str(write_live_study(tmp_path / "study", N)))[0] == ExitCode.DONE
    code, said = hosts.run(1, "sync")
    assert f"their study {STUDY} was forgotten" in said
    if not is_planned_anew:
        assert code == ExitCode.DONE, said
        assert hosts.run(1, "sync") == (ExitCode.DONE, "note: nothing new; nothing pending\n")
    for host in (1, 2):
        assert hosts.query(host, "SELECT count(*), count(nullif(text, '')) FROM responses") == f"{N - N_SHARD},0"


def test_of_an_item_that_was_forgotten_meanwhile_nothing_comes_back_either(hosts: Hosts) -> None:
    """The machine that was given up hands in what it has, but for the answers about it, and says so."""
    hosts.run(1, "live", failpoint="L0:kill")
    hosts.run(2, "live")
    attempt = hosts.attempt_of(2)
    assert hosts.run(2, "resolve", attempt, "--lost", "--yes")[0] == ExitCode.DONE
    mine = f"(SELECT request_id FROM shard_requests JOIN attempts USING (shard_id) WHERE attempt_id = '{attempt}')"
    shown = f"SELECT unnest([item_first, item_second]) AS item FROM plan WHERE request_id IN {mine}"
    item = hosts.query(2, f"SELECT item FROM ({shown}) GROUP BY item ORDER BY count(*), item LIMIT 1")
    code, said = hosts.run(2, "forget", "--item", item, "--yes")
    assert code == ExitCode.DONE, said
    n_left = int(hosts.query(2, f"SELECT count(DISTINCT request_id) FROM plan WHERE request_id IN {mine}"))
    assert 0 < n_left < N_SHARD
    code, said = hosts.run(1, "sync")
    assert code == ExitCode.DONE, said
    assert f"answers of requests that were forgotten are deleted: {N_SHARD - n_left}" in said
    for host in (1, 2):
        told = hosts.query(host, f"SELECT count(*), count(text) FROM responses WHERE attempt_id = '{attempt}'")
        assert told == f"{n_left},{n_left}"
        assert hosts.query(host, f"SELECT count(*) FROM raw WHERE attempt_id = '{attempt}'") == str(n_left)


def test_what_is_asked_anew_after_it_was_forgotten_is_kept_though_its_process_is_killed(tmp_path: Path) -> None:
    """The same requests are planned, and paid, once more: only what an attempt of before has of them is deleted."""
    with live_rig(tmp_path) as rig:
        hosts, study = Hosts(rig), str(write_live_study(tmp_path / "study", N))
        for arguments in (("plan", study), ("submit", STUDY, "--yes"), ("live",)):
            assert hosts.run(1, *arguments)[0] == ExitCode.DONE
        item = hosts.query(1, "SELECT min(item_first) FROM plan")
        assert hosts.run(1, "forget", "--item", item, "--yes")[0] == ExitCode.DONE
        study = str(write_live_study(tmp_path / "study", N, shards="[shards]\nmax_requests = 1000"))
        for arguments in (("plan", study), ("submit", STUDY, "--again", "--yes")):
            code, said = hosts.run(1, *arguments)
            assert code == ExitCode.DONE, said
        hosts.run(1, "live", failpoint="L0:kill")
        code, said = hosts.run(1, "sync")
        assert code == ExitCode.DONE, said
        assert "forgotten" not in said
        hosts.run(1, "live")
        assert hosts.query(1, "SELECT count(DISTINCT request_id) FROM responses WHERE text <> ''") == f"{N}"


def test_a_folder_that_other_hosts_do_not_see_gets_no_requests(tmp_path: Path) -> None:
    """To another host's `sync` the batches in it would be missing; in one that all have they are pending."""
    with live_rig(tmp_path) as rig:
        hosts = Hosts(rig)
        assert (
            hosts.run(1, "plan", str(write_live_study(tmp_path / "study", N, [Asked(mode="files")])))[0]
            == ExitCode.DONE
        )
        code, said = hosts.run(1, "submit", STUDY, "--yes")
        assert code == ExitCode.USAGE, said
        assert "of this machine alone" in said
        assert "folder` in config.toml" in said
        (tmp_path / "seen by all").mkdir()
        (tmp_path / "shared" / "config.toml").write_text(f'[files]\nfolder = "{tmp_path}/seen by all"\n')
        assert hosts.run(1, "submit", STUDY, "--yes")[0] == ExitCode.DONE
        for _ in range(7):
            code, said = hosts.run(2, "sync")
            assert (code, "1 batch pending" in said) == (ExitCode.DONE, True), said
