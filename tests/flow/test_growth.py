"""What a pass costs follows what is open: counts of what it reads, however much was settled before."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from batchpond.lake import attempts, events, tables
from batchpond.lake.attempts import Phase, fold
from batchpond.lake.disk import is_merged
from batchpond.lake.events import EventLog, read
from batchpond.lake.records import DuplicateRemote, Planned, Rounds
from batchpond.lake.store import Store
from batchpond.run import due, sync
from batchpond.run.session import Session
from batchpond_sim.world.world import Settings
from tests.rigs import schedules
from tests.rigs.events import fact
from tests.rigs.sim_study import Rig
from tests.rigs.stage_study import StageRig, models, stage, use

ARCHIVE_ABOVE = 2
COMPACT_ABOVE = 6
NEVER_ASKED = (
    "select count(distinct request_id) from plan where study_version = '{}'"
    " and request_id not in (select request_id from shard_requests)"
)


@pytest.fixture(autouse=True)
def archived_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lake does after hundreds of batches happens after a few."""
    monkeypatch.setattr(attempts, "ARCHIVE_ABOVE", ARCHIVE_ABOVE)
    monkeypatch.setattr(events, "COMPACT_ABOVE_FILES", COMPACT_ABOVE)
    monkeypatch.setattr(tables, "FOLD_ABOVE", ARCHIVE_ABOVE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> schedules.Undisturbed:
    return schedules.Undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("seed", range(100, 104))
def test_any_history_ends_as_an_undisturbed_run_though_what_is_settled_is_archived_at_once(
    seed: int, tmp_path: Path, undisturbed: schedules.Undisturbed
) -> None:
    outcome = schedules.run(seed, tmp_path / str(seed), undisturbed)
    assert not outcome.problems, f"seed {seed}\n{outcome}"


def test_a_pass_reads_the_events_of_what_is_open_and_none_of_what_was_settled_before(tmp_path: Path) -> None:
    """Nor do the facts in its memo grow; and all that is archived comes back where somebody asks for it."""
    rig = Rig(tmp_path, max_requests=2, with_lens=False)
    rig.plan()
    rig.submit()
    opened: list[Path] = []
    read_files = events._read

    def counted(paths: Any) -> Any:
        opened.extend(paths)
        return read_files(paths)

    rig.sync()
    with patch.object(events, "_read", counted):
        n_pending = n_passes = 1
        while n_pending:
            rig.clock.advance(60)
            n_pending, n_passes = rig.sync().n_pending, n_passes + 1
            assert (opened, n_passes < 30) == ([], True)
        before = rig.tree()
        rig.sync()
        assert (opened, rig.tree()) == ([], before)
    log = EventLog(rig.store())
    verified = [one for one in rig.attempts() if one.phase is Phase.VERIFIED]
    n_open = len(fold(log.recent).attempts)
    assert len(verified) == len(rig.attempts()) > 5 * ARCHIVE_ABOVE
    assert (n_open <= ARCHIVE_ABOVE, log.archive.n_attempts) == (True, len(verified) - n_open)
    assert log.events == read(rig.store())
    assert fold(log.events) == rig.lake_state()


def test_requests_that_failed_are_counted_until_they_are_answered_though_their_batches_are_archived(
    tmp_path: Path,
) -> None:
    """One in each of three batches; what waits to be asked again counts no more, nor what was answered then."""
    rig = Rig(tmp_path, max_requests=2, with_lens=False)
    rig.world.add_fault("lines@1-3:error_rows=1")
    rig.plan()
    rig.submit()
    rig.clock.advance(1_000)
    report = rig.sync()
    archive = EventLog(rig.store()).archive
    assert (report.n_pending, report.n_failed, len(archive.short)) == (0, 3, 3)
    rig.retry()
    assert rig.sync().n_failed == 0
    rig.clock.advance(1_000)
    assert (rig.sync().n_failed, len(EventLog(rig.store()).archive.short)) == (0, 3)


def test_a_second_batch_of_an_archived_attempt_is_noticed_and_its_own_is_passed_over(tmp_path: Path) -> None:
    """From then on the attempt is one of those that a pass reads about, until a person knows of it."""
    rig = Rig(tmp_path, max_requests=2, with_lens=False)
    rig.settle()
    session = Session.begin(rig.store(), rig.providers())
    first = next(one for one in rig.attempts() if one.batch_id in session.log.archive.marks)
    assert first.attempt_id not in session.open_state.attempts
    provider = session.providers.get(first.client_name)
    (own,) = (batch for batch in provider.list_page(None).batches if batch.batch_id == first.batch_id)
    sync._check_unknown(session, first.client_name, own, {})
    assert (session.log.is_whole, isinstance(session.log.recent[-1], DuplicateRemote)) == (False, False)
    second = dataclasses.replace(own, batch_id="batch_second")
    sync._check_unknown(session, first.client_name, second, {})
    assert session.attempt(first.attempt_id).duplicates[0].batch_id == "batch_second"
    assert rig.sync().n_attention == 1
    session = Session.begin(rig.store(), rig.providers())
    assert session.log.is_whole is False
    assert session.open_state.attempts[first.attempt_id].duplicates
    assert {**rig.lake_state().attempts} == {**session.lake_state.attempts}


def test_files_of_events_stay_few_and_each_event_stands_once(tmp_path: Path) -> None:
    """Loose ones by the number from which on they are merged, merged ones by the logarithm of all that were written."""
    rig = Rig(tmp_path, max_requests=2, with_lens=False)
    store = rig.store()
    log = EventLog(store)
    n = 200
    for number in range(n):
        log.append(fact(Planned, study=f"s{number}", study_version="v"))
        log.compact(lambda: None)
        published = store.published("events")
        assert sum(not is_merged(path) for path in published) <= COMPACT_ABOVE
        assert sum(map(is_merged, published)) <= n.bit_length()
    assert [event.ord for event in read(store)] == [event.ord for event in log.events]
    assert len({event.event_id for event in log.events}) == n
    rows = [row for path in store.published("events") for row in events.read_rows(Path(path)).column(0).to_pylist()]
    assert len(rows) == len(set(rows)) == n


def test_what_nobody_approved_is_counted_once_however_many_passes_bring_answers(tmp_path: Path) -> None:
    """A pass in which a batch ends reads no plan and no shard for it; a plan, a shard or an approval asks anew."""
    rig = Rig(tmp_path, max_requests=2, with_lens=False, settings=Settings(seed=1, latency_s=(60.0, 6_000.0)))
    rig.plan()
    asked: list[object] = []
    unformed = due.unformed

    def counted(*arguments: Any) -> dict[str, int]:
        asked.append(arguments)
        return unformed(*arguments)

    with patch.object(due, "unformed", counted):
        assert (rig.sync().n_unapproved, len(asked)) == (24, 1)
        rig.submit(limit=12)
        asked.clear()
        report, n_ended = rig.sync(), 0
        assert (report.n_unapproved, len(asked)) == (12, 1)
        while report.n_pending:
            rig.clock.advance(600)
            report = rig.sync()
            n_ended += bool(report.counts.n_verified)
            assert (report.n_unapproved, len(asked)) == (12, 1)
        assert n_ended > 1
        rig.submit(limit=18)
        assert (rig.sync().n_unapproved, len(asked)) == (6, 2)
        rig.change()
        ((n_new,),) = rig.rows(NEVER_ASKED.format(rig.lake_state().current_versions["demo"]), "plan", "shard_requests")
        assert (rig.sync().n_unapproved, len(asked)) == (n_new, 3)
        rig.submit()
        assert (rig.sync().n_unapproved, len(asked)) == (0, 3)


def test_a_further_part_of_a_study_opens_few_files_of_what_was_asked_and_answered_before(tmp_path: Path) -> None:
    """Whatever is asked of shards and responses: the file of all that was, and those that came since."""
    rig = Rig(tmp_path, max_requests=1, with_lens=False)
    rig.plan()
    rig.submit(limit=16)
    rig.clock.advance(100_000)
    rig.sync()
    rig.submit(limit=18)
    opened: dict[str, int] = {}
    select = tables._select

    def counted(store: Store, name: str) -> str:
        sql = select(store, name)
        opened[name] = max(opened.get(name, 0), sql.count(f"'{store.path}/"))
        return sql

    with patch.object(tables, "_select", counted):
        rig.submit(limit=20)
    store = rig.store()
    n_files = {name: len(store.files(name)) for name in tables.FOLDED}
    assert n_files == {"shard_requests": 20, "responses": 16}
    n_new = 2
    assert opened["shard_requests"] <= 1 + ARCHIVE_ABOVE + n_new
    assert opened["responses"] == 1
    rig.settle(is_begun=True)
    assert rig.violations() == []


def test_a_study_whose_answers_lead_to_no_further_question_is_never_looked_at_for_one(tmp_path: Path) -> None:
    """It has the one fact of rounds that planning writes, however many of its batches end, and planned anew as well."""
    rubrics, items = '[stages.rubrics]\npath = "statements.jsonl"\n', 'path = "inputs.csv"\nrubric = "statement"'
    tail = f"---{rubrics}{use('question')}{models('gpt-4o')}"
    toml = 'study = "demo"\n[shards]\nmax_requests = 4\n' + stage("answers", "generation", items, tail)
    rig = StageRig(tmp_path, toml=toml)
    rig.plan()
    rig.submit()
    rig.finish()
    rig.plan()
    assert rig.ask("select count(*) as n from results where outcome = 'decided'") == [{"n": rig.n_inputs}]
    found = [event for event in read(rig.store()) if isinstance(event, Rounds)]
    assert [(event.is_final, event.is_complete) for event in found] == [(True, True)]
