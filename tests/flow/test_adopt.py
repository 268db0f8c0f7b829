"""Batches that the lake did not send: found in the account, taken in by a map, never twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import Adopted, AdoptedShard, Intent
from batchpond.run.adopt import Adoption, MapOrder, adopt_mapped
from batchpond.run.batch_map import COLUMNS
from batchpond.views import database
from tests.rigs.adopting import (
    Elsewhere,
    N,
    adopt,
    ask_elsewhere,
    finish,
    new_rig,
    planned,
    refused,
    write_map,
)
from tests.rigs.sim_study import STUDY, Rig
from tests.rigs.swept import every, some, sweep


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


def joined(rig: Rig) -> list[tuple[object, ...]]:
    return rig.rows("select custom_id, request_id from responses where match = 'matched' order by all", "responses")


# -- by a map -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "suffix"),
    [
        (["request_id"], ".csv"),
        (["slot"], ".jsonl"),
        (["slot"], ".parquet"),
        (["item_first", "item_second"], ".csv"),
        (["item_first", "item_second", "template_id", "rubric_id", "direction", "repeat_no"], ".jsonl"),
    ],
)
def test_a_foreign_batch_is_joined_by_the_ids_it_was_given(
    rig: Rig, elsewhere: Elsewhere, columns: list[str], suffix: str
) -> None:
    """Whatever names the requests: every answer stands at the request that its custom_id was mapped to."""
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows[::-1])
    adoption = adopt(rig, batch_id, write_map(rig, rows[3:] + rows[:3], columns, suffix))
    assert adoption is not None
    assert (adoption.is_new, adoption.attempt.phase, adoption.attempt.intent.origin) == (True, Phase.OPEN, "simulated")
    finish(rig)
    assert rig.only().phase is Phase.VERIFIED
    assert joined(rig) == sorted((row["custom_id"], row["request_id"]) for row in rows)
    assert rig.wire.n_create_posts == 0


def test_an_ended_batch_is_collected_by_the_next_sync_and_a_second_one_writes_nothing(
    rig: Rig, elsewhere: Elsewhere
) -> None:
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows)
    rig.clock.advance(1_000)
    adoption = adopt(rig, batch_id, write_map(rig, rows, ["request_id"]))
    assert adoption is not None
    assert adoption.attempt.phase is Phase.ENDED
    rig.sync()
    assert (rig.only().phase, len(rig.answers())) == (Phase.VERIFIED, N)
    before = rig.tree()
    rig.sync()
    rig.plan()
    assert rig.tree() == before


def test_every_view_knows_the_adopted_answers(tmp_path: Path) -> None:
    """Foreign custom_ids before and after the answers, the audit in balance, the metrics, and the fold in SQL."""
    rig = new_rig(tmp_path, with_lens=True)
    rig.plan()
    elsewhere = Elsewhere.of(rig)
    rows = planned(rig)
    adopt(rig, ask_elsewhere(elsewhere, rows), write_map(rig, rows, ["item_first", "item_second"]))
    given = sorted(row["custom_id"] for row in rows)
    state = "select custom_id, request_state, origin from results order by custom_id"
    with database.connect(rig.lake) as connection:
        assert connection.execute(state).fetchall() == [(name, "outstanding", "simulated") for name in given]
    finish(rig)
    with database.connect(rig.lake) as connection:
        assert connection.execute(state).fetchall() == [(name, "answered", "simulated") for name in given]
        audit = "select n_sent, n_succeeded, n_unmatched, is_balanced, is_provider_equal from audit"
        assert connection.execute(audit).fetchall() == [(N, N, 0, True, True)]
        pairs = "select study, n_pairs from metric_consistency"
        assert connection.execute(pairs).fetchall() == [(STUDY, N // 2)]
        folded = connection.execute("select attempt_id, attempt_state, batch_id, shard_kind from attempts").fetchall()
    attempt = rig.only()
    assert folded == [(attempt.attempt_id, attempt.phase, attempt.batch_id, "adopted")]
    rig.world.close()


def test_what_was_adopted_is_never_sent(rig: Rig, elsewhere: Elsewhere) -> None:
    """Submitting afterwards asks only the requests that the foreign batch did not."""
    rows = planned(rig)
    adopt(rig, ask_elsewhere(elsewhere, rows[:5]), write_map(rig, rows[:5], ["request_id"]))
    rig.submit()
    finish(rig, 2)
    assert rig.billed()[0] == len(rig.answers()) == N
    assert sorted(a.intent.n_requests or 0 for a in rig.attempts()) == [5, N - 5]


def test_a_shard_that_waits_is_given_up_for_the_answers_that_exist(tmp_path: Path) -> None:
    """Its other requests are sent in a shard of their own; nothing is asked twice."""
    rig = new_rig(tmp_path, max_requests=4)
    rig.plan()
    rig.world.add_fault("batches.create@2:status=429")
    rig.submit()
    assert sorted(a.phase for a in rig.attempts()) == [Phase.OPEN, Phase.REJECTED, Phase.UPLOADED]
    (refusal,) = [a for a in rig.attempts() if a.phase is Phase.REJECTED]
    waiting = [r for (r,) in rig.rows(f"select request_id from shard_requests where shard_id = '{refusal.shard_id}'",
                                  "shard_requests")]  # fmt: skip
    rows = [row for row in planned(rig) if row["request_id"] in waiting[:3]]
    elsewhere = Elsewhere.of(rig)
    rig.clock.advance(1_000)  # what was refused might have been made all the same, and show late
    adopt(rig, ask_elsewhere(elsewhere, rows), write_map(rig, rows, ["request_id"]))
    assert rig.lake_state().voided == {refusal.shard_id}
    finish(rig, 4)
    assert rig.billed()[0] == len(rig.answers()) == N
    rig.world.close()


def test_a_batch_that_fails_after_it_was_adopted_is_not_sent_again(rig: Rig, elsewhere: Elsewhere) -> None:
    """Not even for a full queue: batchpond never had its prompts to send."""
    rig.world.add_fault("batches.create@1:enqueued")
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows)
    path = write_map(rig, rows, ["request_id"])
    adopt(rig, batch_id, path)
    rig.submit()
    finish(rig, 4)
    assert rig.wire.n_create_posts == 0
    assert (rig.only().phase, rig.only().failure_code) == (Phase.VERIFIED, "token_limit_exceeded")


def test_ids_that_the_map_got_wrong_are_told_not_guessed(rig: Rig, elsewhere: Elsewhere) -> None:
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows)
    adopt(rig, batch_id, write_map(rig, [rows[0] | {"custom_id": "no such id"}, *rows[1:]], ["request_id"]))
    finish(rig, 2)
    assert (rig.only().phase, len(rig.answers())) == (Phase.MISMATCH, N - 1)
    assert any("1 lines belong to no request" in note for note in rig.notes)


# -- a map that cannot be ---------------------------------------------------------------------------------


def bad(rig: Rig, text: str, suffix: str = ".csv") -> Path:
    path = rig.path / f"bad{suffix}"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("custom_id,request_id\na,nonsense\n", ["line 2 has request_id 'nonsense', not planned"]),
        ("custom_id,slot\na,0\nb,0\n", ["line 3 names the same request as line 2"]),
        ("custom_id,slot\na,0\na,1\n", ["line 3 repeats the custom_id of line 2"]),
        ("custom_id,slot\n,0\n", ["line 2 has no custom_id"]),
        ("custom_id,slot\na,one\n", ["line 2 has slot 'one', not a whole number"]),
        ("custom_id,slot\na,\n", ["line 2 has a custom_id, but nothing that names its request"]),
        ("custom_id,item_first\na,i1\n", ["line 2 fits 3 requests; give also item_second, direction"]),
        ("custom_id,item_first,item_second\na,i1,i9\n", ["line 2 has item_second 'i9', not planned"]),
        ("custom_id,item_first,item_second\na,i1,i1\n", ["line 2 combines what is not planned together"]),
        ("custom_id,slot\na,99\nb,1,1\n", ["2 rows", "line 2 has slot '99'", "line 3 has 3 fields"]),
        ("custom_id,slot\n", ["has no rows"]),
        ("id,slot\n", ["unknown column 'id' (did you mean 'custom_id'?)"]),
        ("custom_id,model\n", ["unknown column 'model' (did you mean 'request_model'?)"]),
    ],
)
def test_a_bad_map_is_one_error_that_names_its_lines(
    rig: Rig, elsewhere: Elsewhere, text: str, problems: list[str]
) -> None:
    """And nothing is recorded."""
    batch_id = ask_elsewhere(elsewhere, planned(rig))
    before = rig.tree()
    message = refused(lambda: adopt(rig, batch_id, bad(rig, text)))
    assert all(problem in message for problem in problems), message
    assert rig.tree() == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is not a JSON object"),
        ('{"custom_id":"a","slot":[0]}', "line 1 has 'slot' that is neither text nor a number"),
        ('{"custom_id":"a","slto":0}', "line 1 has an unknown key 'slto' (did you mean 'slot'?)"),
        ('{"custom_id":"a","slot":0}\n{"custom_id":7,"slot":0.0}', "line 2 names the same request as line 1"),
    ],
)
def test_a_bad_line_of_json_is_named(rig: Rig, elsewhere: Elsewhere, line: str, problem: str) -> None:
    batch_id = ask_elsewhere(elsewhere, planned(rig))
    assert problem in refused(lambda: adopt(rig, batch_id, bad(rig, f"{line}\n\n", ".jsonl")))


def test_other_files_are_refused(rig: Rig, elsewhere: Elsewhere) -> None:
    batch_id = ask_elsewhere(elsewhere, planned(rig))
    message = refused(lambda: adopt(rig, batch_id, bad(rig, "", ".txt")))
    assert "neither a .csv, a .jsonl nor a .parquet file" in message
    assert COLUMNS.required == ("custom_id",)


def test_a_map_of_another_number_of_requests_is_refused(rig: Rig, elsewhere: Elsewhere) -> None:
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows)
    rig.clock.advance(100)
    path = write_map(rig, rows[:5], ["slot"])
    assert "has 12 requests, " in refused(lambda: adopt(rig, batch_id, path))


def test_a_batch_is_of_one_model(tmp_path: Path) -> None:
    rig = new_rig(tmp_path, models=("gpt-4.1-mini", "gpt-4o"))
    rig.plan()
    elsewhere = Elsewhere.of(rig)
    rows = planned(rig)
    batch_id = elsewhere.ask([str(row["slot"]) for row in rows], [rows[0]["body"]] * len(rows))
    path = write_map(rig, [row | {"custom_id": str(row["slot"])} for row in rows], ["slot"])
    assert "requests of gpt-4.1-mini, gpt-4o at" in refused(lambda: adopt(rig, batch_id, path))
    items = write_map(rig, rows[:1], ["item_first", "item_second"])
    assert "give also request_model" in refused(lambda: adopt(rig, batch_id, items))
    rig.world.close()


def test_a_batch_or_study_that_is_not_there_is_refused(rig: Rig, elsewhere: Elsewhere) -> None:
    rows = planned(rig)
    path = write_map(rig, rows, ["slot"])
    assert "knows no batch batch_nope" in refused(lambda: adopt(rig, "batch_nope", path))
    order = MapOrder(ask_elsewhere(elsewhere, rows), "openai", "other", path)
    call = lambda: adopt_mapped(rig.store(), order, providers=rig.providers(), confirm=lambda _: True)  # noqa: E731
    assert "no plan for study 'other'" in refused(call)


def test_without_a_yes_nothing_is_recorded(rig: Rig, elsewhere: Elsewhere) -> None:
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows)
    before = rig.tree()
    assert adopt(rig, batch_id, write_map(rig, rows, ["slot"]), is_right=False) is None
    assert rig.tree() == before


# -- requests that were asked before ------------------------------------------------------------------------


@pytest.mark.parametrize("is_ended", [False, True])
def test_requests_that_were_asked_need_force_and_the_first_answer_stays(
    rig: Rig, elsewhere: Elsewhere, is_ended: bool
) -> None:
    rig.submit()
    if is_ended:
        finish(rig)
    rows = planned(rig)
    first = rig.only()
    path = write_map(rig, rows[:2], ["slot"])
    batch_id = ask_elsewhere(elsewhere, rows[:2])
    before = rig.tree()
    message = refused(lambda: adopt(rig, batch_id, path))
    where = f"is answered in attempt {first.attempt_id}" if is_ended else f"is in batch {first.batch_id}, which is open"
    assert "2 requests were asked" in message
    assert f"line 2 {where}" in message
    assert rig.tree() == before
    adopt(rig, batch_id, path, is_forced=True)
    finish(rig, 2)
    assert [a.phase for a in rig.attempts()] == [Phase.VERIFIED] * 2
    database.build(rig.lake, database.listed(rig.lake))
    with database.connect(rig.lake) as connection:
        shown = connection.execute("select count(*), count(distinct request_id), min(attempt_id) from results")
        assert shown.fetchall() == [(N, N, first.attempt_id)]
        both = "select n_extra from coverage"
        assert connection.execute(both).fetchall() == [(2,)]


def test_requests_that_failed_elsewhere_are_free(rig: Rig, elsewhere: Elsewhere) -> None:
    """What ended without an answer may be answered by an adopted batch."""
    rig.world.add_fault("lines@1:error_rows=3")
    rig.submit()
    finish(rig)
    failed = {r for (r,) in rig.rows("select request_id from responses where status <> 'succeeded'", "responses")}
    rows = [row for row in planned(rig) if row["request_id"] in failed]
    assert len(rows) == 3
    adopt(rig, ask_elsewhere(elsewhere, rows), write_map(rig, rows, ["slot"]))
    finish(rig)
    assert len(rig.answers()) == N


# -- crashes, and doing it again ------------------------------------------------------------------------------


def assert_adopted_once(rig: Rig, batch_id: str) -> None:
    attempt = rig.only()
    assert attempt.batch_id == batch_id
    assert len(rig.lake_state().shards) == 1
    kinds = [type(event) for event in read(rig.store())]
    assert [kinds.count(kind) for kind in (AdoptedShard, Intent, Adopted)] == [1, 1, 1]
    assert len(rig.answers()) == N


@pytest.mark.parametrize("then", some("sync", swept=["adopt"]))
def test_a_crash_anywhere_leaves_nothing_or_what_can_be_finished(tmp_path: Path, planned_lake: Path, then: str) -> None:
    """Dying at each step in turn: adopting again, or the next sync alone, ends with exactly one attempt."""
    n_lost = 0
    for budget in every(3, range(100)):
        rig = new_rig(tmp_path / str(budget))
        shutil.copytree(planned_lake, rig.lake)
        elsewhere = Elsewhere.of(rig)
        rows = planned(rig)
        batch_id = ask_elsewhere(elsewhere, rows)
        path = write_map(rig, rows, ["slot"])
        rig.crash_in = budget
        has_lived = rig.survive(lambda: adopt(rig, batch_id, path))  # noqa: B023 - called at once
        finish(rig)
        if then == "adopt" or not rig.attempts():
            n_lost += not rig.attempts()
            adoption = adopt(rig, batch_id, path)
            assert adoption is not None
        finish(rig)
        assert_adopted_once(rig, batch_id)
        rig.world.close()
        if has_lived:
            break
    assert has_lived
    assert budget > n_lost > 0


@sweep
def test_a_submit_after_a_crash_does_not_buy_what_is_being_adopted(tmp_path: Path, planned_lake: Path) -> None:
    """Between the shard's file and its attempt, too, the requests are held."""
    for budget in range(100):
        rig = new_rig(tmp_path / str(budget))
        shutil.copytree(planned_lake, rig.lake)
        elsewhere = Elsewhere.of(rig)
        rows = planned(rig)
        batch_id = ask_elsewhere(elsewhere, rows)
        path = write_map(rig, rows, ["slot"])
        rig.crash_in = budget
        has_lived = rig.survive(lambda: adopt(rig, batch_id, path))  # noqa: B023 - called at once
        has_file = bool(rig.store().files("shard_requests"))
        rig.submit()
        finish(rig, 2)
        assert rig.billed()[0] == (N if has_file else 2 * N)
        assert len(rig.answers()) == N
        rig.world.close()
        if has_lived:
            break
    assert has_lived


def test_adopting_again_writes_nothing_and_another_map_is_refused(rig: Rig, elsewhere: Elsewhere) -> None:
    rows = planned(rig)
    batch_id = ask_elsewhere(elsewhere, rows)
    path = write_map(rig, rows, ["slot"])
    first = adopt(rig, batch_id, path)
    before = rig.tree()
    again = adopt(rig, batch_id, write_map(rig, rows[::-1], ["request_id"], ".jsonl"))
    assert first is not None
    assert again == Adoption(rig.only(), is_new=False)
    other = [row | {"custom_id": rows[n - 1]["custom_id"]} for n, row in enumerate(rows)]
    message = refused(lambda: adopt(rig, batch_id, write_map(rig, other, ["slot"], name="other"), is_forced=True))
    assert "by another map" in message
    assert rig.tree() == before
