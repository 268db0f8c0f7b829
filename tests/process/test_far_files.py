"""Mode `files` at an address, from `submit` to `results`: a lake's machines and its workers share nothing but a store.

Store, server and workers are on the loopback; a machine is a folder of mirrors and the commands that run over it.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from batchpond import Lake
from batchpond.cli import main
from batchpond.clock import SystemClock
from batchpond.errors import ExitCode, ProviderError
from batchpond.lake.attempts import Phase, fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from batchpond_remote.bucket import Bucket
from batchpond_remote.exchange import Exchange
from batchpond_remote.lease import locked
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from batchpond_work.__main__ import main as worker
from tests.rigs import forked, s3
from tests.rigs.files_study import FilesRig
from tests.rigs.files_worker import answer_rows
from tests.rigs.sim_study import STUDY, write_study
from tests.rigs.swept import IS_ALL

AT = "bucket-one/judging"
LAKE = "s3://bucket-one/lake"
N_REQUESTS, N_BATCHES = 12, 2


@dataclass
class Far:
    """A lake, at an address or in a folder, whose files are at another, and machines by number."""

    folder: Path
    lake: str
    shop: s3.Shop
    simulator: server.Running
    variables: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def machine(self, number: int) -> Iterator[None]:
        more = {"BATCHPOND_MIRRORS": f"{self.folder}/machine-{number}", "BATCHPOND_LAKE": self.lake}
        with patch.dict(os.environ, self.shop.environ | more | self.variables):
            yield

    def run(self, number: int, *words: str) -> int:
        with self.machine(number):
            return main(words)

    def together(self, *words: str) -> set[int]:
        """Run a command on three machines at once; returns their exit codes."""
        started = []
        for number in (1, 2, 3):
            with self.machine(number):
                started.append(forked.start(*words, env=dict(os.environ)))
        return {command.wait(60.0) for command in started}

    def work(self, *words: str) -> int:
        url = self.simulator.base_url_of("compatible")
        with self.machine(9):
            return worker([f"s3://{AT}", "--engine", url, "--concurrency", "2", *words])

    def age(self) -> None:
        """Let all that is there have been put a minute ago."""
        for key, (data, changed) in self.shop.objects.items():
            self.shop.objects[key] = data, changed - timedelta(minutes=1)

    def files(self, side: str) -> dict[str, bytes]:
        start = f"{AT}/{side}/"
        return {key.removeprefix(start): one[0] for key, one in self.shop.objects.items() if key.startswith(start)}

    def verdicts(self, number: int) -> int:
        with self.machine(number):
            rows = (
                Lake(self.lake).sql("SELECT count(*), count(DISTINCT request_id), count(verdict) FROM results").rows()
            )
        assert rows[0][0] == rows[0][1]
        return int(rows[0][2])

    def phases(self, number: int) -> Counter[Phase]:
        with self.machine(number):
            return Counter(attempt.phase for attempt in fold(read(Store.open(Path(self.lake)))).attempts.values())


@contextmanager
def far(folder: Path, lake: str) -> Iterator[Far]:
    with s3.served() as shop, server.running(Settings(seed=1), folder / "server") as simulator:
        made = Far(folder, lake, shop, simulator)
        study = write_study(folder / "study", max_requests=6, models=("gpt-4.1-mini",))
        study.write_text(study.read_text().replace("max_output_tokens", 'mode = "files"\nmax_output_tokens'))
        with made.machine(0):
            store = Store.init(Path(lake))
            config = f'[files]\nfolder = "s3://{AT}"\n'
            if store.mirror is None:
                (store.path / "config.toml").write_text(config)
            else:
                shop.objects[f"{lake.removeprefix('s3://')}/config.toml"] = config.encode(), s3.now()
            plan_study(Store.open(Path(lake)), load(study))
        yield made


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Far]:
    """A lake in a folder, which any machine may write to: it is quicker than one at an address."""
    with far(tmp_path, str(tmp_path / "lake")) as found:
        yield found


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Far]:
    """A lake at an address too."""
    with far(tmp_path, LAKE) as found:
        yield found


def test_one_machine_submits_workers_answer_and_others_take_it(shared: Far, capfd: pytest.CaptureFixture[str]) -> None:
    """Each request is asked once, each batch is one, and what a machine is told names the address."""
    made = shared
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    assert f"2 files of requests wait to be answered in s3://{AT}/outbox (12 requests)" in capfd.readouterr().err
    assert len([name for name in made.files("outbox") if name.endswith(".batch")]) == N_BATCHES
    manifests = [json.loads(made.files("outbox")[f"{token}.manifest.json"]) for token in tokens(made)]
    assert [manifest["n_requests"] for manifest in manifests] == [6, 6]
    assert made.work("--flush", "3") == ExitCode.DONE
    assert made.simulator.world.ledger.live.n_asked == N_REQUESTS
    made.age()
    assert made.run(2, "sync") == ExitCode.DONE
    assert made.phases(2) == {Phase.VERIFIED: N_BATCHES}
    before = dict(made.shop.objects)
    for machine in (1, 3):
        assert made.run(machine, "sync") == ExitCode.DONE
        assert made.verdicts(machine) == N_REQUESTS
        assert made.run(machine, "audit") == ExitCode.DONE
    assert {key: data for key, (data, _) in made.shop.objects.items() if AT in key} == {
        key: data for key, (data, _) in before.items() if AT in key
    }
    assert "machine-" not in capfd.readouterr().err


def test_machines_that_come_at_once_make_each_batch_once(shared: Far) -> None:
    """One of them writes to the lake, and whoever comes meanwhile is told so; what it left is anyone's."""
    usual = {ExitCode.DONE, ExitCode.BUSY}
    assert shared.together("submit", STUDY, "--yes") <= usual
    assert shared.run(4, "submit", STUDY, "--yes") == ExitCode.DONE
    assert len(tokens(shared)) == N_BATCHES
    assert shared.work() == ExitCode.DONE
    shared.age()
    assert shared.together("sync") <= usual
    for machine in (1, 4):
        assert shared.run(machine, "sync") == ExitCode.DONE
        assert (shared.verdicts(machine), shared.phases(machine)) == (N_REQUESTS, {Phase.VERIFIED: N_BATCHES})


def tokens(made: Far) -> list[str]:
    """Return the batches that workers see."""
    end = ".manifest.json"
    return sorted(name.removesuffix(end) for name in made.files("outbox") if name.endswith(end))


def test_answers_so_far_are_not_taken_and_an_end_is_seen_by_all(made: Far) -> None:
    """A batch waits until each request has a row, or somebody says that no more will come."""
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    token = tokens(made)[0]
    row = {"custom_id": "x", "response": None, "error": {"code": "c", "message": "m"}}
    asked = [json.loads(line) for line in made.files("outbox")[f"{token}.jsonl"].splitlines()]
    rows = b"".join(json.dumps(row | {"custom_id": one["custom_id"]}).encode() + b"\n" for one in asked[:5])
    made.shop.objects[f"{AT}/inbox/{token}-p0000-g1-0001.jsonl"] = rows, s3.now()
    made.age()
    assert made.run(2, "sync", "--json") == ExitCode.DONE
    assert Phase.VERIFIED not in made.phases(2)
    assert made.run(1, "cancel", token, "--yes") in {ExitCode.DONE, ExitCode.ATTENTION}
    assert f"{token}.cancelled" in made.files("outbox")
    made.age()
    assert made.run(2, "sync") in {ExitCode.DONE, ExitCode.ATTENTION}
    assert made.phases(2)[Phase.VERIFIED] == 1


@pytest.mark.parametrize(
    ("piece", "fault"),
    [
        (".jsonl", "lost_ack"),
        (".batch", "lost_ack"),
        (".batch", "conflict"),
        (".manifest.json", "lost_ack"),
    ],
)
def test_a_put_whose_answer_is_lost_makes_no_second_batch(made: Far, piece: str, fault: str) -> None:
    made.shop.faults += [("PUT", piece, fault)] * 2
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    assert len(tokens(made)) == len([name for name in made.files("outbox") if name.endswith(".batch")]) == N_BATCHES
    assert made.work() == ExitCode.DONE
    made.age()
    assert made.run(1, "sync") == ExitCode.DONE
    assert (made.verdicts(1), made.phases(1)) == (N_REQUESTS, {Phase.VERIFIED: N_BATCHES})


def test_a_manifest_that_its_maker_owes_is_put_by_whoever_looks(made: Far) -> None:
    """The record makes a batch; requests and manifest that were tidied away after that stay away."""
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    owed, tidied = tokens(made)
    manifest = made.shop.objects.pop(f"{AT}/outbox/{owed}.manifest.json")[0]
    for end in (".manifest.json", ".jsonl"):
        made.shop.objects.pop(f"{AT}/outbox/{tidied}{end}")
    assert made.run(2, "sync") == ExitCode.DONE
    assert tokens(made) == [owed]
    assert made.files("outbox")[f"{owed}.manifest.json"] == manifest
    assert f"{tidied}.jsonl" not in made.files("outbox")


def test_what_nobody_will_read_is_told_and_a_fence_is_not(made: Far, capfd: pytest.CaptureFixture[str]) -> None:
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    assert made.work() == ExitCode.DONE
    made.age()
    assert made.run(1, "sync") == ExitCode.DONE
    for name, data in ((f"{tokens(made)[0]}-p0000-g1-0009.jsonl", b""), ("notes.jsonl", b"{}\n")):
        made.shop.objects[f"{AT}/inbox/{name}"] = data, s3.now()
    capfd.readouterr()
    made.run(2, "doctor")
    said = "".join(capfd.readouterr())
    assert f"in s3://{AT}/inbox, notes.jsonl answers no batch that is open" in said


def test_rows_that_were_put_again_are_read_again(made: Far) -> None:
    """A copy on this machine is no more than that."""
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    assert made.work() == ExitCode.DONE
    whole = {key: one for key, one in made.shop.objects.items() if f"{AT}/inbox/" in key}
    for key, (data, _) in whole.items():
        made.shop.objects[key] = data[:-20], s3.now()
    made.age()
    assert made.run(1, "sync") == ExitCode.ATTENTION
    assert Phase.VERIFIED not in made.phases(1)
    made.shop.objects |= {key: (data, s3.now() - timedelta(seconds=30)) for key, (data, _) in whole.items()}
    assert made.run(1, "sync") == ExitCode.DONE
    assert made.verdicts(1) == N_REQUESTS


def copied(made: Far, number: int) -> list[Path]:
    """Return the files of a machine's copy that are not the records of batches."""
    found = (made.folder / f"machine-{number}").glob("*-files-*/*box/*")
    return sorted(path for path in found if not path.name.endswith(".batch"))


def age_copy(made: Far, number: int) -> None:
    """Let nobody have looked at a machine's copy for two days."""
    for path in copied(made, number):
        stood = path.stat()
        os.utime(path, ns=(stood.st_atime_ns - 2 * 86_400 * 10**9, stood.st_mtime_ns))


def test_a_copy_keeps_what_was_looked_at_within_a_day(made: Far) -> None:
    """Requests, results and what a killed process left go; a batch whose answers went is read again, and taken."""
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    assert made.work() == ExitCode.DONE
    assert made.run(1, "sync") == ExitCode.DONE  # too early to take them
    outbox = copied(made, 1)[-1].parent.with_name("outbox")
    (outbox / ".0123456789ab.part").write_bytes(b"half")
    kept = copied(made, 1)
    assert {path.parent.name for path in kept} == {"outbox", "inbox"}
    with made.machine(1):
        Exchange(f"s3://{AT}")
    assert copied(made, 1) == kept
    age_copy(made, 1)
    with made.machine(1):
        Exchange(f"s3://{AT}")
    assert copied(made, 1) == []
    made.age()
    assert made.run(1, "sync") == ExitCode.DONE
    assert (made.verdicts(1), made.phases(1)) == (N_REQUESTS, {Phase.VERIFIED: N_BATCHES})


def test_what_a_process_reads_no_other_drops(made: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that went while they were read would be asked, and paid, again."""
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    assert made.work() == ExitCode.DONE
    assert made.run(1, "sync") == ExitCode.DONE
    age_copy(made, 1)
    with made.machine(1):
        reads = Exchange(f"s3://{AT}")
        made.run(1, "sync")  # brings them again
        age_copy(made, 1)
        for token in tokens(made):
            reads.bring(token)
        read = [path for path in copied(made, 1) if path.parent.name == "inbox"]
        Exchange(f"s3://{AT}")
        assert read
        assert copied(made, 1) == read
        with locked(reads.copy / ".tidying", SystemClock(), 0.0) as is_mine:
            assert is_mine  # by one that sleeps while it tidies
            monkeypatch.setattr("batchpond_remote.exchange._TIDY_WAIT_S", 0.0)
            with pytest.raises(ProviderError, match="another process tidies"):
                reads.bring(tokens(made)[0])


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [("denied", ExitCode.ACCESS, "may not list"), ("no_bucket", ExitCode.FAILED, "404 Not Found: NoSuchBucket")],
)
def test_what_a_store_refuses_is_told_in_a_line(
    made: Far, capfd: pytest.CaptureFixture[str], fault: str, code: int, text: str
) -> None:
    """Nothing is lost of it: the next pass goes on."""
    assert made.run(1, "submit", STUDY, "--yes") == ExitCode.DONE
    capfd.readouterr()
    made.shop.faults += [("LIST", "judging", fault)] * 9
    assert made.run(1, "sync") == code
    said = capfd.readouterr().err
    assert text in said
    assert "Traceback" not in said
    made.shop.faults.clear()
    assert made.run(1, "sync") == ExitCode.DONE


def test_without_obstore_files_at_an_address_are_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with far(tmp_path, str(tmp_path / "lake")) as made:
        for name in [name for name in sys.modules if name.startswith("batchpond_remote")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "obstore", None)
        assert made.run(1, "submit", STUDY, "--yes") == ExitCode.USAGE
        assert f"`files at s3://{AT}` needs obstore" in capfd.readouterr().err


CALLS = ("put", "put_new", "get", "fetch", "listed")
LONG_AGO = datetime(2026, 11, 20, tzinfo=UTC)


@dataclass
class FarRig(FilesRig):
    """A user whose files are at an address, and whose process may die before and after each call to it too."""

    n_passed: int = 0

    def pass_point(self, name: str) -> None:
        self.n_passed += 1
        super().pass_point(name)

    @contextmanager
    def _points(self) -> Iterator[None]:
        def cut(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*words: Any) -> Any:
                self.pass_point("before http")
                found = call(*words)
                self.pass_point("after http")
                return found

            return called

        with super()._points(), ExitStack() as every:
            for name in CALLS:
                every.enter_context(patch.object(Bucket, name, cut(getattr(Bucket, name))))
            yield


@contextmanager
def far_rig(folder: Path, mirrors: str = "here") -> Iterator[tuple[FarRig, s3.Shop]]:
    with s3.served() as shop, patch.dict(os.environ, shop.environ | {"BATCHPOND_MIRRORS": f"{folder}/{mirrors}"}):
        environment = {"BATCHPOND_FILES": f"s3://{AT}"}
        rig = FarRig(folder, max_requests=6, models=("gpt-4.1-mini",), with_lens=False, environment=environment)
        rig.plan()
        rig.n_passed = 0
        yield rig, shop


def answer(shop: s3.Shop) -> None:
    """Answer each batch whose manifest is there, a while ago."""
    out = {key.removeprefix(f"{AT}/outbox/"): one[0] for key, one in shop.objects.items()}
    for name in [name for name in out if name.endswith(".manifest.json")]:
        token = name.removesuffix(".manifest.json")
        asked = [json.loads(line) for line in out[f"{token}.jsonl"].splitlines()]
        rows = b"".join(json.dumps(row).encode() + b"\n" for row in answer_rows(asked))
        shop.objects[f"{AT}/inbox/{token}.jsonl"] = rows, LONG_AGO


def n_points(folder: Path) -> int:
    """Return how many moments a whole submit has at which it may die."""
    with far_rig(folder) as (rig, _):
        rig.submit()
        return rig.n_passed


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_submit_that_dies_at_any_moment_makes_each_batch_once(tmp_path: Path, is_elsewhere: bool) -> None:
    """Whichever machine goes on, with the copy that the dead one left or without; nothing is lost or asked twice."""
    n_moments = n_points(tmp_path / "whole")
    for moment in range(n_moments) if IS_ALL else range(11, n_moments, 24 if is_elsewhere else 48):
        with far_rig(tmp_path / f"rig-{moment}") as (rig, shop):
            rig.crash_in = moment
            assert not rig.survive(rig.submit)
            if is_elsewhere:
                os.environ["BATCHPOND_MIRRORS"] = f"{tmp_path}/rig-{moment}/there"
            for _ in range(3):
                rig.clock.advance(100.0)
                rig.sync()
                rig.submit()
            answer(shop)
            rig.sync()
            made = [key for key in shop.objects if key.endswith(".batch")]
            attempts = [one for one in rig.attempts() if one.phase is not Phase.ABSENT]
            assert (len(made), [one.phase for one in attempts]) == (N_BATCHES, [Phase.VERIFIED] * N_BATCHES), moment
            assert len(rig.answers()) == N_REQUESTS, moment
            before = rig.tree()
            rig.sync()
            assert rig.tree() == before
