"""Workers of mode `files` as programs, at an address of an object store on the loopback.

`python -m tests.sweeps.workers --far` kills them a hundred times.
"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

import pytest

from batchpond.cli import main
from batchpond_work import ACCESS, USAGE
from batchpond_work.__main__ import main as worker
from tests.rigs.files_study import FilesRig
from tests.rigs.live_study import wait_for
from tests.rigs.workers import BOUND_S, HOSTS, FarWorkers, Size, far_workers, kill_at_random, submitted

SIZE = Size(n_items=11, max_requests=70, part_requests=20)
SMALL = Size(n_items=4, max_requests=50, part_requests=50)
SLOW = {"live_latency_s": (0.05, 0.1)}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> FilesRig:
    """110 requests in two batches and six parts."""
    return submitted(tmp_path_factory.mktemp("submitted"), SIZE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FilesRig:
    """Twelve requests in one part."""
    return submitted(tmp_path_factory.mktemp("small"), SMALL)


def test_workers_on_two_hosts_ask_each_request_once(tmp_path: Path, lake: FilesRig) -> None:
    """Without a coordinator: every part is one worker's; then there is nothing left to ask, or to read again."""
    with far_workers(tmp_path, lake, SIZE, **SLOW) as made:
        started = [
            made.start("--concurrency", "4", "--flush", "5", "--lease", "4", host=HOSTS[n % 2]) for n in range(2)
        ]
        said = [process.communicate(timeout=BOUND_S)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0], said
        assert (made.n_asked, made.n_again) == (SIZE.n_requests, 0), said
        assert set(made.rows().values()) == {1}
        made.shop.log.clear()
        code, last = made.run()
        assert (code, made.n_asked) == (0, SIZE.n_requests)
        assert f"asked 0, answered 0 (0 errors), {SIZE.n_requests} had answers already, 0 left" in last
        assert made.shop.fetched("/inbox/") == [f"{made.at}/inbox/{name}.done" for name in batches(made)]
        made.check_whole()


def batches(made: FarWorkers) -> list[str]:
    return [name.removesuffix(".manifest.json") for name in made.files("outbox") if name.endswith(".manifest.json")]


def test_killed_and_put_to_sleep_at_any_moment(tmp_path: Path, lake: FilesRig) -> None:
    """At most the calls under way and one part are asked again, by the server's ledger; `sync` finds all of it once."""
    with far_workers(tmp_path, lake, SIZE, live_latency_s=(0.1, 0.3)) as made:
        toll = kill_at_random(made, random.Random(7), n_kills=3, concurrency=3, lease_s=2.0)
        assert toll.n_kills + toll.n_sleeps >= 1  # how many, a busy machine decides


def test_who_slept_through_a_takeover_adds_nothing_when_it_wakes(tmp_path: Path, small: FilesRig) -> None:
    """It has rows that are not written yet, and the part's next name is taken; no request has two rows."""
    with far_workers(tmp_path, small, SMALL, live_latency_s=(0.4, 0.5)) as made:
        words = ("--concurrency", "2", "--lease", "2", "--flush")
        sleeper = made.start(*words, "5", host="sleeper")
        wait_for(lambda: made.n_asked >= 8 and len(made.files("inbox")) == 1)
        sleeper.send_signal(signal.SIGSTOP)
        code, said = made.run(*words, "1", host="other")
        assert code == 0, said
        assert "left by sleeper-" in said
        there = made.files("inbox")
        assert [data for name, data in there.items() if "-g1-" in name][1:] == [b""]
        sleeper.send_signal(signal.SIGCONT)
        assert " answers too late" in sleeper.communicate(timeout=BOUND_S)[1]
        assert made.files("inbox") == there
        made.check_whole()


@pytest.mark.parametrize(
    ("method", "piece", "fault"),
    [
        ("PUT", ".claim", "lost_ack"),
        ("PUT", "-g1-0001", "lost_ack"),
        ("PUT", "-g1-0002", "lost_ack"),
        ("PUT", "-g1-0001", "conflict"),
        ("PUT", ".answered", "lost_ack"),
        ("PUT", "-g1-0001", "slow_down"),
        ("LIST", "inbox", "slow_down"),
    ],
)
def test_an_answer_of_the_store_that_does_not_come_is_no_loss_and_no_double(
    tmp_path: Path, small: FilesRig, method: str, piece: str, fault: str
) -> None:
    with far_workers(tmp_path, small, SMALL, **SLOW) as made:
        made.shop.faults += [(method, piece, fault)] * 2
        code, said = made.run("--flush", "4", "--concurrency", "2", "--lease", "2")
        assert code == 0, said
        assert (made.n_asked, made.n_again) == (12, 0)
        made.check_whole()


def test_what_a_store_refuses_is_one_line_and_an_exit_code(tmp_path: Path, small: FilesRig) -> None:
    """No bucket, no requests there, no leave to write, with the store's own word for why; nothing was asked."""
    with far_workers(tmp_path, small, SMALL) as made:
        wrong = (
            ("denied", ACCESS, "403 Forbidden: AccessDenied"),
            ("expired", ACCESS, "ExpiredToken"),
            ("no_bucket", USAGE, "there is no such bucket"),
            ("", USAGE, "has no outbox"),
        )
        for fault, expected, text in wrong:
            made.at = "bucket-two/elsewhere"
            made.shop.faults += [("LIST", "elsewhere", fault)] if fault else []
            code, said = made.run()
            assert (code, text in said, said.count("\n")) == (expected, True, 1), said
        made.at = "bucket-one/judging"
        made.shop.faults.append(("PUT", ".claim", "denied"))
        code, said = made.run()
        assert (code, "could not write claims/" in said, "Traceback" in said) == (ACCESS, True, False), said
        assert made.n_asked == 0


def test_without_obstore_an_address_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "batchpond_work.address", raising=False)
    for run in (worker, main):
        arguments = ["s3://bucket/judging", "--engine", "http://127.0.0.1:1/v1"]
        assert run(arguments if run is worker else ["work", *arguments]) == USAGE
        said = capsys.readouterr().err
        assert "s3://bucket/judging needs obstore" in said
        assert "pip install" in said
