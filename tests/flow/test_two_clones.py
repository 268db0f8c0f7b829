"""Two copies of one lake that both send: what they do, what they notice, and what it is said to cost.

The locks of two copies know nothing of each other, and everything that names a batch is made from the
lake: so both make the same attempts with the same tokens. That is how the second finds what the first
sent and takes it in; only where it is not listed yet are batches bought twice, and then both say so.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from batchpond.errors import AttentionError, ExitCode
from batchpond.ids import TOKEN_PREFIX
from batchpond.lake.events import read
from batchpond.lake.records import DuplicateRemote, Event
from batchpond.run.dispatch import Budget
from batchpond.run.recover import adopt_by_lines
from batchpond.run.session import Session
from batchpond.run.told import refused
from batchpond.run.unknown import waive
from batchpond_sim.world.world import Settings
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import LATENCY_S, STUDY, Rig
from tests.rigs.swept import some

N_REQUESTS = 12


@pytest.fixture(params=("openai", "together"))
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Rig:
    """A lake of two shards, planned, at a provider whose batches carry a token, or nothing but their input file."""
    models = SIMULATED[request.param].models[:1]
    rig = Rig(tmp_path / "first", Settings(seed=1, latency_s=LATENCY_S), max_requests=6, models=models, with_lens=False)
    rig.plan()
    return rig


def copy_of(rig: Rig, name: str = "second") -> Rig:
    """Copy the lake; both work with one account, at one time."""
    twin = Rig(
        rig.path.parent / name, rig.settings, max_requests=6, models=rig.models, with_lens=False, clock=rig.clock
    )
    twin.world.close()
    twin.world, twin.wire = rig.world, type(rig.wire)(twin)
    twin.wire._inner = rig.wire._inner  # one provider, which knows what it was sent by either
    shutil.copytree(rig.lake, twin.lake, copy_function=shutil.copy2)
    return twin


def hide_from_each_other(rig: Rig) -> None:
    """Let batches appear in lists later than two copies send one after the other."""
    rig.world.add_fault("batches.list@*:stale_list=30")


def duplicates(rig: Rig) -> list[Event]:
    return [event for event in read(rig.store()) if isinstance(event, DuplicateRemote)]


def n_batches_per_mark(rig: Rig) -> Counter[str]:
    """Count batches by their token, or by their input file."""
    batches = rig.world.ledger.batches.values()
    return Counter((entry.metadata or {}).get("batchpond", entry.input_file_id) for entry in batches)


def test_copies_of_a_lake_whose_batches_are_on_their_way_both_collect_them(rig: Rig) -> None:
    """The harmless kind of copy: nothing is left to send, so nothing is sent twice."""
    rig.submit()
    twin = copy_of(rig)
    for each in (rig, twin):
        each.clock.advance(1_000)
        assert each.sync().exit_code is ExitCode.DONE
        assert len(each.answers()) == N_REQUESTS
        assert each.violations() == []
    assert set(n_batches_per_mark(rig).values()) == {1}


UNLISTED = ("html=200", "status=500", "reset_before", "cursor_loop", "empty_page", "has_more_lies=true")


@pytest.mark.parametrize("name", some("openai", "xai", "gemini", swept=["together", "groq", "mistral", "vertex"]))
@pytest.mark.parametrize("fault", UNLISTED)
def test_what_a_copy_sent_is_not_bought_again_where_the_listing_does_not_come_to_its_end(
    tmp_path: Path, name: str, fault: str
) -> None:
    """A login page, no answer at all, or pages that go round in circles: nothing is sent until a listing is whole."""
    models = SIMULATED[name].models[:1]
    settings = Settings(seed=1, latency_s=LATENCY_S)
    first = Rig(tmp_path / "first", settings, max_requests=6, models=models, with_lens=False)
    first.plan()
    twin = copy_of(first)
    first.submit()
    n_posts = first.wire.n_create_posts
    first.world.add_fault(f"batches.list@*:{fault}")
    twin.submit()
    assert twin.wire.n_create_posts == 0
    first.world.clear_faults()
    for _ in range(3):
        twin.clock.advance(1_000)
        twin.sync()
    assert (first.wire.n_create_posts, twin.wire.n_create_posts) == (n_posts, 0)
    assert set(n_batches_per_mark(first).values()) == {1}
    assert len(twin.answers()) == N_REQUESTS


@pytest.mark.parametrize("name", ["openai", "gemini", "xai"])
def test_where_no_listing_ever_comes_to_its_end_a_person_may_send_without_one(tmp_path: Path, name: str) -> None:
    """The refusal says how, and it is not asked again."""
    models = SIMULATED[name].models[:1]
    rig = Rig(tmp_path, Settings(seed=1, latency_s=LATENCY_S), max_requests=6, models=models, with_lens=False)
    rig.world.add_fault("batches.list@*:cursor_loop")
    rig.plan()
    report = rig.submit()
    assert rig.wire.n_create_posts == 0
    assert report.exit_code is not ExitCode.DONE
    assert any(f"submit {STUDY} --fresh" in (note.hint or "") for note in report.notes)
    waive(rig.store(), STUDY)
    rig.submit()
    rig.clock.advance(1_000)
    rig.sync()
    rig.clock.advance(1_000)
    rig.sync()
    assert rig.wire.n_create_posts == 2
    assert len(rig.answers()) == N_REQUESTS


def test_a_copy_made_while_a_create_was_in_doubt_finds_the_same_batch(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1-2:reset_after")
    rig.crash_at = "S8.after"
    assert not rig.survive(rig.submit)
    twin = copy_of(rig)
    for each in (twin, rig):
        each.sync(submit_due=False)
        assert [a.batch_id for a in each.attempts()] == list(rig.world.ledger.batches)
    assert set(n_batches_per_mark(rig).values()) == {1}


def test_a_copy_takes_in_what_the_other_has_sent_instead_of_sending_it_again(rig: Rig) -> None:
    """A clone, or a backup brought back: nothing is bought twice, all answers arrive in both, exit code 3."""
    twin = copy_of(rig)
    rig.submit()
    rig.clock.advance(5)
    report = twin.submit()
    assert (report.counts.n_created, report.counts.n_adopted, report.exit_code) == (0, 2, ExitCode.ATTENTION)
    assert sum("was taken in and nothing was sent again" in note for note in twin.notes) == 2
    assert set(n_batches_per_mark(rig).values()) == {1}
    for each in (rig, twin):
        each.clock.advance(1_000)
        assert each.sync().exit_code is ExitCode.DONE
        assert len(each.answers()) == N_REQUESTS
        assert each.violations() == []
        assert duplicates(each) == []
    tree = twin.tree()
    twin.sync()
    assert twin.tree() == tree


def test_a_backup_takes_in_ended_batches_and_sends_the_rest(rig: Rig) -> None:
    """The first shard was sent and has ended when the backup is brought back: it is collected, the other sent."""
    rig.world.add_fault("batches.create@2:status=429")
    backup = copy_of(rig)
    rig.submit()
    assert len(rig.world.ledger.batches) == 1
    rig.clock.advance(40_000)
    report = backup.submit()
    assert (report.counts.n_created, report.counts.n_adopted) == (1, 1)
    rig.clock.advance(1_000)
    backup.sync()
    assert len(backup.answers()) == N_REQUESTS
    assert len(rig.world.ledger.batches) == 2


@pytest.mark.parametrize("rig", ["anthropic"], indirect=True)
def test_where_batches_carry_nothing_their_results_tell(rig: Rig) -> None:
    """Once they have ended, a copy takes them in by their custom_ids; before that, it says what it cannot know."""
    late, early = copy_of(rig), copy_of(rig, "third")
    rig.submit()
    n_batches = len(rig.world.ledger.batches)
    rig.clock.advance(5)
    assert early.submit(limit=6).counts.n_created == 1
    assert any("if another copy of this lake sent it" in note for note in early.notes)
    rig.clock.advance(90_000)
    assert late.submit().counts.n_adopted == n_batches
    rig.clock.advance(1_000)
    assert late.sync().exit_code is ExitCode.DONE
    assert len(late.answers()) == N_REQUESTS
    assert len(rig.world.ledger.batches) == n_batches + 1


@pytest.mark.parametrize("rig", ["anthropic"], indirect=True)
def test_what_was_asked_again_after_the_backup_is_not_asked_once_more_where_batches_carry_nothing(rig: Rig) -> None:
    """The retry was another shard then, as another study had been sent: its results tell of its requests all the same.

    It is held until a person has taken the batch in, and then there is nothing left to ask.
    """
    rig.world.add_fault("lines@1:error_rows=2")
    rig.submit()
    rig.clock.advance(1_000)
    rig.sync()
    backup = copy_of(rig)
    text = rig.study_path.read_text()
    rig.study_path.write_text(text.replace(f'study = "{STUDY}"', 'study = "other"'))
    items = rig.study_path.parent / "items.csv"
    items.write_text(items.read_text().replace("text number", "other text number"))
    rig.plan()
    rig.submit(study="other")
    rig.retry()
    rig.clock.advance(1_000)
    rig.sync()
    n_batches = len(rig.world.ledger.batches)
    backup.retry()
    assert len(rig.world.ledger.batches) == n_batches
    (told,) = {note for note in backup.notes if "answered requests that study" in note}
    backup.sync()
    batch_id = re.search(r"batch (\S+) answered", told)
    assert batch_id is not None
    adopt_by_lines(backup.store(), batch_id.group(1), STUDY, provider_name="anthropic", providers=backup.providers())
    assert backup.sync().exit_code is ExitCode.DONE
    assert len(backup.answers()) == N_REQUESTS
    assert len(rig.world.ledger.batches) == n_batches


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_batches_that_were_cut_otherwise_hold_the_study_until_it_is_submitted_in_the_same_steps(rig: Rig) -> None:
    """A part was sent first: the backup, asked for all at once, sends nothing; asked step by step, it takes all in."""
    backup, other = copy_of(rig), copy_of(rig, "third")
    rig.submit(limit=6)
    rig.clock.advance(5)
    rig.submit()
    n_batches = len(rig.world.ledger.batches)
    report = other.submit()
    assert (report.counts.n_created, report.exit_code) == (0, ExitCode.ATTENTION)
    assert any("was made by this lake, which does not know of it" in note for note in other.notes)
    (told,) = refused(other.lake_state())  # whoever only looks is told, too
    assert (told.exit_code, f"study {STUDY} is not sent on since" in told.message) == (ExitCode.ATTENTION, True)
    assert backup.submit(limit=6).counts.n_adopted == 1
    assert backup.submit().counts.n_adopted == n_batches - 1
    rig.clock.advance(1_000)
    assert backup.sync().exit_code is ExitCode.DONE
    assert len(backup.answers()) == N_REQUESTS
    assert len(rig.world.ledger.batches) == n_batches


def test_what_a_copy_sent_of_a_plan_that_is_given_up_here_is_not_bought_again(tmp_path: Path) -> None:
    """Both meant to send it, so that its token is on record here; then it is cut otherwise here."""
    models = SIMULATED["openai"].models[:1]
    rig = Rig(
        tmp_path / "first", Settings(seed=1, latency_s=LATENCY_S), max_requests=50, models=models, with_lens=False
    )
    rig.plan()
    rig.world.add_fault("files.create@1:status=400")
    rig.submit()
    twin = copy_of(rig)
    twin.sync()
    (batch_id,) = rig.world.ledger.batches
    rig.change()
    rig.submit()
    rig.clock.advance(1_000)
    assert rig.sync().exit_code is ExitCode.ATTENTION
    assert (rig.wire.n_create_posts, list(rig.world.ledger.batches)) == (0, [batch_id])
    assert any(f"{batch_id} was made of requests of study {STUDY} that were given up" in note for note in rig.notes)


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_what_a_copy_sent_for_another_study_that_asks_the_same_is_not_bought_again(rig: Rig) -> None:
    """Cut otherwise, and named after the other study: nothing is sent until its batches are taken in, then the rest."""
    text = rig.study_path.read_text()
    rig.study_path.write_text(text.replace(f'study = "{STUDY}"', 'study = "other"').replace("= 6", "= 4"))
    rig.plan()
    twin = copy_of(rig)
    twin.submit()
    n_batches = len(rig.world.ledger.batches)
    rig.clock.advance(1_000)
    report = rig.submit(study="other")
    assert (report.counts.n_created, report.exit_code) == (0, ExitCode.ATTENTION)
    assert any(f"of study {STUDY} was made by this lake, which does not know of it" in note for note in rig.notes)
    assert [one.exit_code for one in refused(rig.lake_state())] == [ExitCode.ATTENTION]
    assert len(rig.recover().batches) == n_batches
    rig.submit(study="other")
    assert [*refused(rig.lake_state())] == []
    rig.clock.advance(1_000)
    assert rig.sync().exit_code is ExitCode.DONE
    assert len(rig.answers()) == N_REQUESTS
    assert len(rig.world.ledger.batches) == n_batches


def test_looking_for_copies_takes_one_listing_a_pass(rig: Rig) -> None:
    """However many shards are sent; and a pass that sends nothing does not look."""
    rig.submit()
    n_lists = sum(n for call, n in rig.wire.calls.items() if call.startswith("GET") and call.endswith("/batches"))
    assert n_lists == 1
    rig.clock.advance(1_000)
    rig.sync()
    before = dict(rig.wire.calls)
    rig.sync()
    assert dict(rig.wire.calls) == before


def test_two_copies_that_cannot_see_each_other_buy_twice_and_both_say_so_with_the_cost(rig: Rig) -> None:
    """Not prevented, but never silent: every second batch is an event with its cost, and the exit code is 3."""
    hide_from_each_other(rig)
    twin = copy_of(rig)
    rig.submit()
    rig.clock.advance(5)
    twin.submit()
    assert set(n_batches_per_mark(rig).values()) == {2}
    rig.clock.advance(35)
    for each in (rig, twin):
        report = each.sync()
        assert report.exit_code is ExitCode.ATTENTION
        found = duplicates(each)
        own = {attempt.batch_id for attempt in each.attempts() if not attempt.is_duplicate}
        assert {event.batch_id for event in found} == set(rig.world.ledger.batches) - own
        assert all(event.cost_max_usd for event in found)
        assert sum("is a second one for attempt" in note and "more" in note for note in each.notes) == len(found) == 2
    tree = rig.tree()
    rig.sync()
    assert rig.tree() == tree, "what was said once is not recorded again"


def test_both_copies_advise_to_cancel_the_same_batches(rig: Rig) -> None:
    """If each advised to cancel the other's, whoever follows both would be left with none."""
    hide_from_each_other(rig)
    twin = copy_of(rig)
    rig.submit()
    rig.clock.advance(5)
    twin.submit()
    rig.clock.advance(35)
    advised = []
    for each in (rig, twin):
        hints = [note.hint or "" for note in each.sync().notes if "is a second one" in note.message]
        advised.append({found.group(1) for hint in hints if (found := re.search(r"batchpond cancel (\S+)`", hint))})
    assert advised[0] == advised[1] == {attempt.batch_id for attempt in twin.attempts() if not attempt.is_duplicate}


def test_a_second_batch_counts_against_the_budget(rig: Rig) -> None:
    hide_from_each_other(rig)
    twin = copy_of(rig)
    for each in (rig, twin):
        each.submit()
        each.clock.advance(5)
    rig.clock.advance(30)
    taken_usd = []
    for _ in range(2):
        with rig.store().lock("test"):
            session = Session.begin(rig.store(), rig.providers())
            (cap,) = Budget.of(session, session.lake_state.approvals[STUDY]).caps
            taken_usd.append(cap.taken_usd)
        rig.sync(submit_due=False)
    assert taken_usd[0] > 0
    assert taken_usd[1] == pytest.approx(2 * taken_usd[0])


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_an_old_copy_that_is_brought_back_says_that_it_has_forgotten_batches(rig: Rig) -> None:
    """A backup from before a batch was sent: the batch carries the lake's name, and the lake does not know it."""
    rig.submit(limit=6)
    backup = copy_of(rig)
    rig.submit()
    rig.clock.advance(5)
    report = backup.sync()
    forgotten = set(rig.world.ledger.batches) - {attempt.batch_id for attempt in backup.attempts()}
    assert report.exit_code is ExitCode.ATTENTION
    assert [
        batch for batch in forgotten if any(batch in note and "does not know of it" in note for note in backup.notes)
    ]


@pytest.mark.parametrize("rig", ["openai"], indirect=True)
def test_tokens_of_other_lakes_in_the_account_are_nobodys_business(rig: Rig, tmp_path: Path) -> None:
    other = Rig(tmp_path / "other", rig.settings, max_requests=6, models=rig.models, with_lens=False, lake_seed=7,
                clock=rig.clock)  # fmt: skip
    other.world.close()
    other.world, other.wire = rig.world, type(rig.wire)(other)
    other.wire._inner = rig.wire._inner
    other.plan()
    rig.submit()
    with pytest.raises(AttentionError, match="was asked before, though not from this lake: 2 batches"):
        other.submit()
    waive(other.store(), STUDY)
    other.submit()
    assert len({token.split("-")[1] for token in n_batches_per_mark(rig) if token.startswith(TOKEN_PREFIX)}) == 2
    for each in (rig, other):
        each.clock.advance(10)
        assert each.sync().exit_code is ExitCode.DONE
        assert duplicates(each) == []
