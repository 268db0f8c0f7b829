"""Batches that the lake did not send: found in the account, taken in by a map or by their own token, never twice."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import openai
import polars as pl
import pytest
from click.testing import CliRunner, Result

from batchpond import ids
from batchpond.cli.frame import Invocation, root
from batchpond.cli.resolve import LISTED as COLUMNS_SHOWN
from batchpond.errors import AccessError, AttentionError, ExitCode, UsageError
from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import Adopted, AdoptedShard, Intent, Resolution
from batchpond.providers.registry import providers_of_batch
from batchpond.run.adopt import Adoption, MapOrder, adopt_mapped, adopt_own
from batchpond.run.batch_map import COLUMNS
from batchpond.run.resolve import resolve
from batchpond.run.unknown import AccountReport, Ownership, providers_with_keys, unknown_batches
from batchpond.views import database
from batchpond_sim.host.server import running
from batchpond_sim.world.world import Settings
from tests.rigs import forked
from tests.rigs.sim_providers import SIMULATED, one_model_each, provider_of
from tests.rigs.sim_study import START, STUDY, Rig, Wire
from tests.rigs.swept import every, some, sweep

N = 12
CHAT = "/v1/chat/completions"
MODEL = "gpt-4.1-mini"
Row = dict[str, Any]


class Elsewhere:
    """Another tool in the same account: the official SDK, with ids of its own making."""

    def __init__(self, base_url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(transport=transport)
        self._sdk = openai.OpenAI(api_key="sk-test", base_url=base_url, http_client=self._http, max_retries=0)

    @classmethod
    def of(cls, rig: Rig) -> Elsewhere:
        """Return a tool that talks to a rig's simulator, past the wire that counts the lake's own calls."""
        return cls(SIMULATED["openai"].base_url, rig.wire._inner)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def ask(self, custom_ids: Sequence[str], bodies: Sequence[str], **metadata: str) -> str:
        """Send bodies as one batch and return its id."""
        lines = (
            f'{{"custom_id":{json.dumps(custom_id)},"method":"POST","url":"{CHAT}","body":{body}}}\n'
            for custom_id, body in zip(custom_ids, bodies, strict=True)
        )
        file = self._sdk.files.create(file=("theirs.jsonl", "".join(lines).encode()), purpose="batch")
        batch = self._sdk.batches.create(
            input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata=metadata or None
        )
        return batch.id


def new_rig(path: Path, **more: Any) -> Rig:
    return Rig(path, **({"max_requests": 50, "models": (MODEL,), "with_lens": False} | more))


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


def planned(rig: Rig) -> list[Row]:
    """Return the plan's rows with their prompts, and a custom_id for each that another tool might give."""
    columns = "slot, request_id, template_id, rubric_id, request_model, item_first, item_second, direction, repeat_no"
    sql = f"select {columns}, body from plan join requests using (request_id) order by slot"
    names = [*columns.replace("request_model", "p_model").split(", "), "body"]
    rows = rig.rows(sql.replace("request_model", "plan.request_model").replace(", repeat_no", ", plan.repeat_no"),
                    "plan", "requests")  # fmt: skip
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [row | {"custom_id": f"judge/{row['item_first']} vs {row['item_second']}"} for row in found]


def ask_elsewhere(elsewhere: Elsewhere, rows: Sequence[Row]) -> str:
    return elsewhere.ask([row["custom_id"] for row in rows], [row["body"] for row in rows], job="pilot")


def write_map(rig: Rig, rows: Sequence[Row], columns: Sequence[str], suffix: str = ".csv", name: str = "map") -> Path:
    """Write some columns of the rows as a map."""
    path = rig.path / f"{name}{suffix}"
    kept = [{column: row.get(column) for column in ("custom_id", *columns)} for row in rows]
    match suffix:
        case ".csv":
            with path.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, ("custom_id", *columns))
                writer.writeheader()
                writer.writerows(kept)
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in kept))
        case ".parquet":
            pl.DataFrame(kept).write_parquet(path)
    return path


@contextmanager
def no_lens(rig: Rig) -> Iterator[None]:
    """Leave the views as they are, which saves most of the time, where the rig does so in other verbs."""
    with ExitStack() as patches:
        for module in () if rig.with_lens else ("batchpond.run.adopt", "batchpond.run.resolve"):
            patches.enter_context(patch(f"{module}.refresh", lambda _: False))
        yield


def adopt(
    rig: Rig, batch_id: str, path: Path, *, is_forced: bool = False, is_right: bool = True, provider: str = "openai"
) -> Adoption | None:
    """Run `adopt BATCH --map --yes` as a new process."""
    order = MapOrder(batch_id, provider, STUDY, path, is_forced)
    with rig._points(), no_lens(rig):
        return adopt_mapped(rig.store(), order, providers=rig.providers(), confirm=lambda _: is_right)


def finish(rig: Rig, n_passes: int = 1) -> None:
    for _ in range(n_passes):
        rig.clock.advance(1_000)
        rig.sync()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    return f"{caught.value.message}\n{caught.value.hint}"


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


# -- batches of this lake ---------------------------------------------------------------------------------------


def own(rig: Rig, batch_id: str, provider: str = "openai") -> Adoption:
    """Run `adopt BATCH` as a new process."""
    with no_lens(rig):
        return adopt_own(rig.store(), batch_id, provider_name=provider, providers=rig.providers())


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
