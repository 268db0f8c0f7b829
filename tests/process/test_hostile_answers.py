"""What a provider sends is believed within bounds: figures, lines, compressed bodies."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode
from batchpond.lake.attempts import Phase
from batchpond.lake.store import Store
from batchpond.run.dispatch import Budget
from batchpond.run.session import Providers, Session
from tests.rigs.fake_openai import Answer, FakeOpenAI, fake_openai
from tests.rigs.program import N, Program

LINE_BYTES_MAX = 32 << 20
INFLATED_BYTES = 96 << 20
MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "batchpond", "sync"])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""
"""Runs `sync` and prints the most memory that it had, in KiB."""


@pytest.fixture(scope="module")
def account() -> Iterator[FakeOpenAI]:
    with fake_openai() as account:
        yield account


@pytest.fixture(scope="module")
def submitted(account: FakeOpenAI, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose batch has ended, and of which nothing is downloaded yet."""
    folder = tmp_path_factory.mktemp("submitted")
    program = Program(folder, account.url)
    program.prepare()
    assert program.submit().returncode == 0
    return folder


@pytest.fixture
def program(account: FakeOpenAI, submitted: Path, tmp_path: Path) -> Program:
    shutil.copytree(submitted, tmp_path / "copy")
    account.bodies = []
    return Program(tmp_path / "copy", account.url)


@pytest.fixture
def packed(account: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Let every download of results be sent as gzip, as it is given."""
    answered, bodies = account.answer, []

    def answer(method: str, path: str, body: bytes, kind: str) -> Answer:
        if bodies and path.endswith("/content"):
            return Answer(200, bodies[0], "application/octet-stream", (("Content-Encoding", "gzip"),))
        return answered(method, path, body, kind)

    monkeypatch.setattr(account, "answer", answer)
    return bodies.append


def test_usage_beyond_all_sense_is_unknown_and_costs_nothing(account: FakeOpenAI, program: Program) -> None:
    """Defect 2.7: 9,223,372,036,854,775,807 output tokens are no figure: the cost of that answer is unknown."""
    first, *rest = account.lines_of(account.batches[0])
    line = json.loads(first)
    line["response"]["body"]["usage"] |= {"completion_tokens": 2**63 - 1, "total_tokens": 2**63 - 1}
    account.bodies = [b"\n".join([json.dumps(line).encode(), *rest]) + b"\n"]
    program.sync()
    (cost,) = program.rows("select sum(cost_usd) as cost_usd, sum(n_cost_unknown) as n_cost_unknown from costs")
    assert cost["cost_usd"] < 1
    assert cost["n_cost_unknown"] == 1


def test_a_line_longer_than_any_answer_is_an_error_of_its_own(account: FakeOpenAI, program: Program) -> None:
    """Defect 4.4: it is cut where it is too long, and the others are read beside it."""
    first, *rest = account.lines_of(account.batches[0])
    giant = first.replace(account.text.encode(), account.text.encode() + b"x" * LINE_BYTES_MAX)
    account.bodies = [b"\n".join([giant, *rest]) + b"\n"] * 2
    program.sync()
    assert program.outcomes()["decided"] == N - 1
    assert unknown_costs(program) == {"costs": 1, "batches": 1}, "it was paid"


def unknown_costs(program: Program) -> dict[str, int]:
    """Return of how many answers the views say that nobody knows what they cost."""
    views = ("costs", "batches")
    return {name: program.rows(f"select sum(n_cost_unknown) as n from {name}")[0]["n"] for name in views}


def test_what_was_paid_and_cannot_be_read_counts_against_the_budget_at_worst(
    account: FakeOpenAI, program: Program
) -> None:
    """A success without a body has no usage either: nothing says that it was free."""
    first, *rest = account.lines_of(account.batches[0])
    line = json.loads(first)
    line["response"]["body"] = None
    account.bodies = [b"\n".join([json.dumps(line).encode(), *rest]) + b"\n"] * 2
    program.sync()
    assert unknown_costs(program) == {"costs": 1, "batches": 1}
    store = Store.open(program.folder / "lake")
    with store.lock("test"):
        session = Session.begin(store, Providers.of_environment(store.clock, store.path))
        (approval,) = session.lake_state.approvals.values()
        (attempt,) = session.lake_state.attempts.values()
        (cap,) = Budget.of(session, approval).caps
    assert (attempt.phase, cap.taken_usd) == (Phase.VERIFIED, attempt.intent.cost_max_usd)


def test_a_giant_line_is_never_held_whole(account: FakeOpenAI, program: Program) -> None:
    """Issue 13, bounds: the request of a line of 200 MB failed, exit 3; raw has its ends, and memory is bounded."""
    first, *rest = account.lines_of(account.batches[0])
    giant = first.replace(account.text.encode(), account.text.encode() + b"x" * 200_000_000)
    account.bodies = [b"\n".join([giant, *rest]) + b"\n"] * 2
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, cwd=program.folder, env=program.environment,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.ATTENTION, done.stderr
    assert f"the line has {len(giant):,} bytes" in done.stderr
    assert program.outcomes() == {"decided": N - 1, "error": 1}
    (kept,) = program.rows("select octet_length(line_bytes) as n from raw where line is null")
    assert kept["n"] < 1 << 20
    assert program.run("audit").returncode == 0
    assert program.run("doctor", "--deep").returncode == 0
    assert int(done.stdout) * 1024 < 500 << 20, f"{int(done.stdout) >> 10} MiB"


def test_a_body_that_inflates_beyond_all_sense_is_not_taken(
    account: FakeOpenAI, program: Program, packed: Callable[[bytes], None]
) -> None:
    """Defect 4.4: a few KB of gzip that become many MB are refused by their ratio, and nothing of them is kept."""
    packed(gzip.compress(b"\n".join(account.lines_of(account.batches[0])) + b"\n" * INFLATED_BYTES))
    told = program.sync()
    assert "gzip" in told.stderr
    assert program.rows("select count(*) as n from raw") == [{"n": 0}]


def test_a_gzip_body_of_several_members_is_one_body(
    account: FakeOpenAI, program: Program, packed: Callable[[bytes], None]
) -> None:
    """Defect 4.6: what is valid gzip is read to its end, whatever the number of its members."""
    lines = account.lines_of(account.batches[0])
    halves = (lines[:5], lines[5:])
    packed(b"".join(gzip.compress(b"".join(line + b"\n" for line in half)) for half in halves))
    assert program.sync().returncode == 0
    assert program.outcomes() == {"decided": N}
