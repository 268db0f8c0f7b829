"""Batches of this lake are taken in by their own token; what an account has is listed with whose it seems."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from batchpond import ids
from batchpond.cli.frame import Invocation, root
from batchpond.cli.resolve import LISTED as COLUMNS_SHOWN
from batchpond.errors import AccessError, AttentionError, ExitCode, UsageError
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Resolution
from batchpond.providers.registry import providers_of_batch
from batchpond.run.adopt import Adoption
from batchpond.run.resolve import resolve
from batchpond.run.unknown import AccountReport, Ownership, providers_with_keys, unknown_batches
from batchpond_sim.host.server import running
from batchpond_sim.world.world import Settings
from tests.rigs import forked
from tests.rigs.adopting import (
    Elsewhere,
    N,
    adopt,
    ask_elsewhere,
    finish,
    new_rig,
    no_lens,
    own,
    planned,
    refused,
    write_map,
)
from tests.rigs.sim_providers import SIMULATED, one_model_each, provider_of
from tests.rigs.sim_study import START, STUDY, Rig, Wire


@pytest.fixture(scope="module")
def planned_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rig = new_rig(tmp_path_factory.mktemp("planned"))
    rig.plan()
    rig.world.close()
    return rig.lake


@pytest.fixture
def rig(tmp_path: Path, planned_lake: Path) -> Iterator[Rig]:
    """One model and twelve requests, planned and never submitted."""
    rig = new_rig(tmp_path)
    shutil.copytree(planned_lake, rig.lake)
    yield rig
    rig.world.close()


@pytest.fixture
def elsewhere(rig: Rig) -> Elsewhere:
    """The other tool."""
    return Elsewhere.of(rig)


# -- batches of this lake ---------------------------------------------------------------------------------------


def call_absent(rig: Rig) -> None:
    with no_lens(rig):
        resolve(rig.store(), rig.only().attempt_id, Resolution.ABSENT, providers=rig.providers())


def lose_sight(rig: Rig) -> str:
    """Submit one batch whose creation is not acknowledged and not listed for a while; return its id."""
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=600")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    (batch_id,) = rig.world.ledger.batches
    return batch_id


def test_a_batch_with_this_lakes_token_goes_to_its_attempt(rig: Rig) -> None:
    batch_id = lose_sight(rig)
    adoption = own(rig, batch_id)
    assert (adoption.is_new, adoption.attempt.batch_id) == (True, batch_id)
    assert own(rig, batch_id) == Adoption(rig.only(), is_new=False)
    finish(rig)
    assert len(rig.answers()) == N
    assert rig.violations() == []


def test_a_batch_called_absent_too_soon_is_adopted_while_nothing_was_sent_again(rig: Rig) -> None:
    batch_id = lose_sight(rig)
    call_absent(rig)
    assert own(rig, batch_id).attempt.phase is Phase.OPEN
    finish(rig)
    assert len(rig.answers()) == N
    assert rig.violations() == []


def test_a_batch_that_was_refused_and_made_all_the_same_is_adopted(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:status_after=400")
    rig.submit()
    assert rig.only().phase is Phase.REJECTED
    (batch_id,) = rig.world.ledger.batches
    assert own(rig, batch_id).attempt.phase is Phase.OPEN
    finish(rig)
    assert len(rig.answers()) == N
    assert rig.violations() == []


def test_a_second_batch_of_an_attempt_is_no_attempts(rig: Rig) -> None:
    batch_id = lose_sight(rig)
    call_absent(rig)
    rig.submit()
    before = rig.tree()
    assert "is absent" in refused(lambda: own(rig, batch_id))
    assert rig.tree() == before


def test_a_map_never_takes_a_batch_of_this_lake(rig: Rig) -> None:
    """Its attempt would be called absent and sent again."""
    batch_id = lose_sight(rig)
    path = write_map(rig, planned(rig), ["slot"])
    assert "it needs no map" in refused(lambda: adopt(rig, batch_id, path, is_forced=True))
    own(rig, batch_id)
    assert "is in this lake already" in refused(lambda: adopt(rig, batch_id, path, is_forced=True))


def test_results_alone_name_the_attempt(rig: Rig, elsewhere: Elsewhere) -> None:
    """A copy of a payload, sent by hand in the provider's console, has no token but our custom_ids."""
    rig.world.add_fault("batches.create@1:reset_before")
    rig.submit()
    attempt = rig.only()
    lines = [json.loads(line) for line in rig.store().payload_path(attempt.attempt_id).read_text().splitlines()]
    batch_id = elsewhere.ask([line["custom_id"] for line in lines], [json.dumps(line["body"]) for line in lines])
    assert "carries no token of this lake" in refused(lambda: own(rig, batch_id))
    rig.clock.advance(700)
    path = write_map(rig, planned(rig), ["slot"])
    assert "it needs no map" in refused(lambda: adopt(rig, batch_id, path, is_forced=True))
    assert own(rig, batch_id).attempt.attempt_id == attempt.attempt_id
    finish(rig)
    assert (rig.only().phase, len(rig.answers())) == (Phase.VERIFIED, N)


@pytest.mark.parametrize("model", one_model_each())
def test_a_batch_of_another_lake_needs_a_map(tmp_path: Path, model: str) -> None:
    """A lake that was lost: its batch is adopted into a new one by the ids that it gave, at every provider."""
    provider = provider_of(model)
    lost, rig = new_rig(tmp_path / "lost", lake_seed=7, models=(model,)), new_rig(tmp_path / "new", models=(model,))
    lost.plan()
    lost.submit()
    rig.plan()
    rig.world.close()
    rig.world, rig.clock = lost.world, lost.clock
    rig.wire = Wire(rig)
    (batch_id,) = rig.world.ledger.batches
    message = refused(lambda: own(rig, batch_id, provider))
    assert ("another lake" if SIMULATED[provider].has_token else "carries no token of this lake") in message
    assert "--map FILE" in message
    (old,) = lost.attempts()
    rows = [row | {"custom_id": ids.custom_id(old.attempt_id, row["request_id"])} for row in planned(rig)]
    adopt(rig, batch_id, write_map(rig, rows, ["request_id"]), provider=provider)
    finish(rig)
    assert (rig.only().phase, len(rig.answers())) == (Phase.VERIFIED, N)
    lost.world.close()


def test_at_an_opaque_provider_a_map_waits_until_the_results_say_whose_a_batch_is(tmp_path: Path) -> None:
    """No token tells an attempt's own batch from another of its size: taking the wrong one would buy it twice."""
    rig = new_rig(tmp_path, models=("claude-haiku-4-5",))
    rig.plan()
    rig.world.add_fault("batches.create@1:reset_after")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    (ours,) = rig.world.ledger.batches
    rows = [row | {"custom_id": f"row-{row['slot']}"} for row in planned(rig)]
    path = write_map(rig, rows, ["slot"])
    for call in (
        lambda: own(rig, ours, "anthropic"),
        lambda: adopt(rig, ours, path, is_forced=True, provider="anthropic"),
    ):
        with pytest.raises(AttentionError, match="only its results will tell"):
            call()
    requests = [{"custom_id": row["custom_id"], "params": json.loads(row["body"])} for row in rows]
    headers = {"x-api-key": rig.key, "anthropic-version": "2023-06-01"}
    with httpx.Client(transport=rig.wire._inner, headers=headers) as http:
        made = http.post("http://127.0.0.1:1/anthropic/v1/messages/batches", json={"requests": requests})
    theirs = made.json()["id"]
    rig.clock.advance(1_000)
    assert "it needs no map" in refused(lambda: adopt(rig, ours, path, is_forced=True, provider="anthropic"))
    assert "carries no token" in refused(lambda: own(rig, theirs, "anthropic"))
    adopt(rig, theirs, path, is_forced=True, provider="anthropic")
    assert own(rig, ours, "anthropic").is_new
    finish(rig)
    assert sorted(a.batch_id or "" for a in rig.attempts()) == sorted([ours, theirs])
    assert {a.phase for a in rig.attempts()} == {Phase.VERIFIED}
    rig.world.close()


# -- the account ---------------------------------------------------------------------------------------------------


def listed(rig: Rig, names: Sequence[str] = ("openai",), days: int = 30) -> AccountReport:
    return unknown_batches(rig.store(), names, rig.clock.now() - timedelta(days=days), providers=rig.providers())


def test_the_list_shows_what_the_lake_does_not_know_and_whose_it_seems(rig: Rig, elsewhere: Elsewhere) -> None:
    rows = planned(rig)
    theirs = ask_elsewhere(elsewhere, rows[:3])
    lake = elsewhere.ask(["a"], [rows[0]["body"]], batchpond="batchpond1-otherlake-attempt-mac")
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=600")
    rig.submit()
    maybe = elsewhere.ask([f"x{n}" for n in range(N)], [rows[0]["body"]] * N)
    rig.clock.advance(650)
    (ours,) = set(rig.world.ledger.batches) - {theirs, lake, maybe}
    report = listed(rig)
    attempt_id = rig.only().attempt_id
    assert {(s.batch.batch_id, s.ownership, s.attempt_id, s.batch.n_total) for s in report.unknown_batches} == {
        (theirs, Ownership.FOREIGN, None, 3),
        (lake, Ownership.OTHER_LAKE, None, 1),
        (maybe, Ownership.MAYBE, attempt_id, N),
        (ours, Ownership.IN_DOUBT, attempt_id, N),
    }
    assert next(s.name for s in report.unknown_batches if s.batch.batch_id == theirs) == "job=pilot"
    created = [s.batch.created_at for s in report.unknown_batches]
    assert created == sorted(created, key=lambda at: at or START, reverse=True)
    own(rig, ours)
    adopt(rig, theirs, write_map(rig, rows[:3], ["slot"]), is_forced=True)
    assert {s.batch.batch_id for s in listed(rig).unknown_batches} == {lake, maybe}
    assert report.exit_code is ExitCode.DONE


def test_the_list_goes_back_as_far_as_asked(rig: Rig, elsewhere: Elsewhere) -> None:
    old = ask_elsewhere(elsewhere, planned(rig))
    rig.clock.advance(40 * 86_400)
    new = ask_elsewhere(elsewhere, planned(rig))
    assert [s.batch.batch_id for s in listed(rig).unknown_batches] == [new]
    assert [s.batch.batch_id for s in listed(rig, days=60).unknown_batches] == [new, old]


def test_an_account_that_cannot_be_asked_hides_no_other(rig: Rig, elsewhere: Elsewhere) -> None:
    batch_id = ask_elsewhere(elsewhere, planned(rig))
    rig.world.add_fault("batches.list@1:status=401")
    with pytest.raises(AccessError):
        listed(rig)
    report = listed(rig, ["nonsense", "openai"])
    assert [s.batch.batch_id for s in report.unknown_batches] == [batch_id]
    assert (len(report.notes), report.exit_code) == (1, ExitCode.USAGE)


def test_a_listing_that_breaks_off_is_said_to(rig: Rig, elsewhere: Elsewhere) -> None:
    ask_elsewhere(elsewhere, planned(rig))
    rig.world.add_fault("batches.list@*:has_more_lies=true")
    report = listed(rig, ["openai", "openai"])
    assert report.exit_code in {ExitCode.ATTENTION, ExitCode.FAILED}
    assert report.notes


def test_accounts_are_those_whose_key_or_address_is_set() -> None:
    assert providers_with_keys({}) == []
    assert providers_with_keys({"OPENAI_API_KEY": "k"}) == ["openai"]
    assert providers_with_keys({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}) == ["openai"]


# -- the command -----------------------------------------------------------------------------------------------------


def run(lake: Path, *arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(
        root, ["--lake", str(lake), *arguments], obj=Invocation(), standalone_mode=False, catch_exceptions=False
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say one of the three"),
        (["b", "--list"], "say one of the three"),
        (["b", "--all", "--study", "s"], "say one of the three"),
        (["--all"], "need --study"),
        (["--list", "--study", "s"], "not for --list"),
        (["b", "--since", "2026-01-01"], "--since is for --list"),
        (["b", "--map", __file__], "need --study"),
        (["--all", "--study", "s", "--map", __file__], "--map is for one BATCH"),
        (["b", "--force"], "--force is for --map"),
        (["b", "--provider", "opnai"], "did you mean 'openai'?"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(rig: Rig, arguments: list[str], message: str) -> None:
    assert message in refused(lambda: run(rig.lake, "adopt", *arguments))


@pytest.mark.parametrize(
    ("batch_id", "whose"),
    [("batch_6920", ["openai", "groq", "xai"]), ("msgbatch_01", ["anthropic"]), ("batches/x7", ["gemini"]),
     ("projects/1/locations/l/batchPredictionJobs/2", ["vertex"])],
)  # fmt: skip
def test_a_batchs_id_says_whose_it_is(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, batch_id: str, whose: list[str]
) -> None:
    """Where it does not, or may be of several, and their keys are set, the provider must be named."""
    for provider in SIMULATED.values():
        monkeypatch.setenv(provider.key_env, "key")
    assert providers_of_batch(batch_id) == whose
    if len(whose) > 1:
        with pytest.raises(UsageError, match=f"called {batch_id}, and it may be of any of {', '.join(whose)}"):
            run(rig.lake, "adopt", batch_id)
    with pytest.raises(UsageError, match="called x7, and it may be of any of openai, anthropic"):
        run(rig.lake, "adopt", "x7")


def test_a_name_that_no_batch_has_is_said_to_be_none(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D10 of people: not that a key lacks comes first. A batch of the lake needs no provider's name to be found."""
    for provider in SIMULATED.values():
        monkeypatch.delenv(provider.key_env, raising=False)
    message = refused(lambda: run(rig.lake, "adopt", "nope"))
    assert message.startswith("no batch of this lake is called nope")
    assert "`batchpond query batches`" in message
    rig.plan()
    rig.submit()
    batch_id = str(rig.attempts()[0].batch_id)
    with pytest.raises(AccessError, match="no key for openai"):  # though several have ids that begin like this one
        run(rig.lake, "adopt", batch_id)


def test_the_command_lists_adopts_and_needs_a_yes(rig: Rig, tmp_path: Path) -> None:
    """As processes, over real HTTP."""
    rows = planned(rig)
    path = write_map(rig, rows, ["item_first", "item_second"])
    with running(Settings(latency_s=(1_000.0, 1_000.0)), tmp_path / "sim") as sim:
        elsewhere = Elsewhere(sim.base_url)
        batch_id = ask_elsewhere(elsewhere, rows)
        elsewhere.close()
        sim.world.advance(500)

        def call(*arguments: str) -> subprocess.CompletedProcess[str]:
            environment = os.environ | {"OPENAI_BASE_URL": sim.base_url, "OPENAI_API_KEY": "sk-test"}
            return forked.run_text("--lake", str(rig.lake), "adopt", *arguments, env=environment)

        (row,) = json.loads(call("--list", "--provider", "openai", "--json").stdout)
        assert tuple(row) == COLUMNS_SHOWN
        assert (row["batch_id"], row["n_requests"], row["ownership"], row["name"]) == (
            batch_id,
            N,
            "foreign",
            "job=pilot",
        )
        arguments = [batch_id, "--provider", "openai", "--study", STUDY, "--map", str(path)]
        unconfirmed = call(*arguments)
        assert (unconfirmed.returncode, unconfirmed.stdout) == (ExitCode.USAGE, "")
        assert "For one: judge/" in unconfirmed.stderr
        assert "add `--yes`" in unconfirmed.stderr
        assert rig.attempts() == []
        done = call(*arguments, "--yes", "--json")
    attempt = rig.only()
    assert json.loads(done.stdout) == {
        "attempt_id": attempt.attempt_id, "phase": "open", "batch_id": batch_id, "study": STUDY, "n_requests": N,
        "is_new": True,
    }  # fmt: skip
