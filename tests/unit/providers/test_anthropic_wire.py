"""Anthropic's Message Batches on the wire: what is sent, what odd answers come to, and a whole life."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond import ids
from batchpond.clock import SystemClock
from batchpond.errors import LakeError, ProviderError, UsageError
from batchpond.model import (
    BatchState,
    Created,
    CreateSpec,
    ErrorClass,
    FileRole,
    Rejected,
    RemoteBatch,
    Response,
    ResponseStatus,
    Unclear,
)
from batchpond.providers import registry
from batchpond.providers.anthropic.batch import AnthropicClient
from batchpond.providers.anthropic.dialect import DIALECT, FAMILIES
from batchpond.providers.http.client import HttpClient, HttpError, JsonStream
from batchpond.providers.http.errors import AckRule, judge_create
from batchpond.providers.shared.dialect import ModelSettings
from batchpond.text import Secret
from batchpond_sim.host.server import PROVIDERS
from tests.rigs import wire_script
from tests.rigs.batch_wires import KEY
from tests.rigs.batch_wires import anthropic_batch as batch
from tests.rigs.batch_wires import anthropic_no as refusal
from tests.rigs.clock import ManualClock
from tests.rigs.hostile_server import hostile, reply
from tests.rigs.simulator import api
from tests.rigs.wire_script import START, Answer

NEW, OLD = DIALECT.DESCRIPTOR.endpoints
IDS = {"request-id": "req_1", "anthropic-organization-id": "org-7", "anthropic-workspace-id": "wrkspc_7"}


@pytest.fixture
def payload_path(tmp_path: Path) -> Path:
    """Two requests."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"custom_id":"a","params":{"n":1}}\n{"custom_id":"b","params":{"n":2}}\n')
    return path


def spec(path: Path, endpoint: str = NEW, n: int = 2) -> CreateSpec:
    return CreateSpec("batchpond1-x", endpoint, "claude-haiku-4-5", None, path, n, (("batchpond", "batchpond1-x"),))


class Script(wire_script.Script):
    """A scripted Anthropic."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(*answers)
        environ = {"ANTHROPIC_API_KEY": KEY}
        self.wire = registry.connect("anthropic", self.clock, transport=self.transport, environ=environ)


def ok(body: Any, **headers: str) -> httpx.Response:
    return httpx.Response(
        200, json=body, headers=IDS | {name.replace("_", "-"): each for name, each in headers.items()}
    )


def counts(**more: int) -> dict[str, int]:
    return {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0} | more


def ended(**more: Any) -> dict[str, Any]:
    evil = "https://evil.example/v1/messages/batches/msgbatch_9/results"
    return batch(processing_status="ended", ended_at="2026-11-21T11:00:00Z", results_url=evil) | more


# --- create -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("endpoint", "version"), [(NEW, "2026-10-21"), (OLD, "2023-06-01")])
def test_create_sends_one_post_with_the_payload_and_keeps_the_scope(
    payload_path: Path, endpoint: str, version: str
) -> None:
    """The payload's lines are the documented body; the endpoint says the version; nothing else travels."""
    script = Script(ok(batch()))
    answer = script.wire.create(spec(payload_path, endpoint))
    assert isinstance(answer, Created)
    assert answer.scope == "anthropic/api.anthropic.com/org-7/wrkspc_7"
    assert (answer.batch.batch_id, answer.batch.token, answer.batch.n_total) == ("msgbatch_1", None, 2)
    assert len(script.requests) == 1
    request = script.requests[0]
    assert (request.method, str(request.url)) == ("POST", "https://api.anthropic.com/v1/messages/batches")
    assert request.headers.get_list("anthropic-version") == [version]
    assert (request.headers["x-api-key"], request.headers["content-type"]) == (KEY, "application/json")
    assert "authorization" not in request.headers
    assert int(request.headers["content-length"]) == len(request.content)
    assert "transfer-encoding" not in request.headers
    assert json.loads(request.content) == {
        "requests": [{"custom_id": "a", "params": {"n": 1}}, {"custom_id": "b", "params": {"n": 2}}]
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=5), st.booleans())
def test_any_payload_becomes_one_json_document_of_the_size_announced(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[str], has_last_line_feed: bool
) -> None:
    """With and without a last line feed, empty ones too: the entries in order, and no byte more or less."""
    path = tmp_path_factory.mktemp("payload") / "p.jsonl"
    lines = [DIALECT.payload_line("a", NEW, json.dumps({"x": prompt}).encode()) for prompt in prompts]
    path.write_bytes(b"\n".join(lines) + (b"\n" if lines and has_last_line_feed else b""))
    script = Script(ok(batch()))
    script.wire.create(spec(path))
    sent = script.requests[0].content
    assert int(script.requests[0].headers["content-length"]) == len(sent)
    assert [entry["params"]["x"] for entry in json.loads(sent)["requests"]] == prompts


class Sink(httpx.BaseTransport):
    """Takes a request's body as it comes and keeps only its sizes and digest."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.declared = 0
        self.peak_bytes = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.declared = int(request.headers["content-length"])
        assert isinstance(request.stream, Iterable)
        tracemalloc.start()
        self.sizes = [len(part) for part in request.stream]
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return ok(batch())


def test_a_large_create_never_stands_in_memory(tmp_path: Path) -> None:
    """48 MB pass in pieces of at most 1 MiB."""
    line = DIALECT.payload_line("a", NEW, json.dumps({"x": "y" * 4_000}).encode()) + b"\n"
    path = tmp_path / "large.jsonl"
    path.write_bytes(line * (48_000_000 // len(line)))
    sink = Sink()
    wire = registry.connect("anthropic", ManualClock(START), transport=sink, environ={"ANTHROPIC_API_KEY": KEY})
    assert isinstance(wire.create(spec(path)), Created)
    assert sum(sink.sizes) == sink.declared > 47_000_000
    assert max(sink.sizes) <= 1 << 20
    assert sink.peak_bytes < 6 << 20


def test_create_streams_over_a_real_socket(payload_path: Path) -> None:
    """A loopback server receives one POST, whole, with its length told beforehand."""
    payload_path.write_bytes(payload_path.read_bytes() * 20_000)
    with hostile(reply(batch(), request_id="req_1")) as server:
        environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.port}/anthropic"}
        wire = registry.connect("anthropic", SystemClock(), environ=environ)
        answer = wire.create(spec(payload_path, n=40_000))
    assert isinstance(answer, Created)
    assert answer.scope == f"anthropic/127.0.0.1:{server.port}/-/-"
    assert [seen.path for seen in server.requests] == ["/anthropic/v1/messages/batches"]
    assert len(json.loads(server.requests[0].body)["requests"]) == 40_000


def test_a_payload_that_cannot_be_read_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    """A lost file, a wrong endpoint: nothing was created, and the caller knows it."""
    script = Script(ok(batch()))
    with pytest.raises(LakeError, match=r"gone\.jsonl"):
        script.wire.create(spec(tmp_path / "gone.jsonl"))
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(UsageError):
        script.wire.create(spec(path, "/v1/complete"))
    assert script.requests == []


@pytest.mark.parametrize(("parts", "size"), [((b"abc",), 5), ((b"abc", b"def"), 5)])
def test_a_body_of_another_size_than_announced_is_never_whole(parts: tuple[bytes, ...], size: int) -> None:
    """A payload that changes while it is sent comes to an unclear answer, not to another batch."""
    with hostile(reply(batch(), request_id="req_1")) as server:
        http = HttpClient(server.url, {"x-api-key": Secret(KEY)}, SystemClock())
        answer = judge_create(http.ask("/x", JsonStream(size, lambda: parts), 2.0), AckRule())
        http.close()
    assert isinstance(answer, Unclear)
    assert all(len(seen.body) < size for seen in server.requests)


def test_what_making_a_body_raises_comes_out_as_it_is() -> None:
    """A disk that fails halfway is not a network fault, and the key is not in the error."""

    def parts() -> Iterable[bytes]:
        yield b"abc"
        raise LakeError("the disk is gone")

    with hostile(reply(batch())) as server:
        http = HttpClient(server.url, {"x-api-key": Secret(KEY)}, SystemClock())
        with pytest.raises(LakeError, match="the disk is gone") as caught:
            http.ask("/x", JsonStream(9, parts), 5.0)
        http.close()
    assert KEY not in repr(caught.value) + repr(caught.value.__context__)


def test_a_413_is_a_clear_no_whoever_says_it(payload_path: Path) -> None:
    """What a gateway would not take in was not executed, and sending it again would come to the same."""
    script = Script(httpx.Response(413, html="<html>too large</html>"))
    answer = script.wire.create(spec(payload_path))
    assert isinstance(answer, Rejected)
    assert answer.error_class is ErrorClass.PERMANENT
    assert "too large" in answer.message


# --- batch objects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "tally", "state"),
    [
        ("in_progress", counts(processing=2), BatchState.RUNNING),
        ("in_progress", counts(processing=1, expired=1), BatchState.RUNNING),
        ("canceling", counts(processing=1, canceled=1), BatchState.CANCELLING),
        ("ended", counts(succeeded=2), BatchState.COMPLETED),
        ("ended", counts(errored=2), BatchState.COMPLETED),
        ("ended", counts(succeeded=1, canceled=1), BatchState.CANCELLED),
        ("ended", counts(succeeded=1, expired=1), BatchState.EXPIRED),
        ("ended", counts(canceled=1, expired=1), BatchState.CANCELLED),
        ("ended", None, BatchState.COMPLETED),
        ("Ended", counts(succeeded=2), BatchState.COMPLETED),
        ("archiving", counts(succeeded=2), BatchState.RUNNING),
        (None, counts(), BatchState.RUNNING),
        (7, counts(), BatchState.RUNNING),
    ],
)
def test_status_and_counts_become_states_and_unknown_ones_never_end_a_batch(
    status: Any, tally: Any, state: BatchState
) -> None:
    """`ended` says nothing of success: the counts do. The provider's own word is kept beside."""
    got = Script(ok(batch(processing_status=status, request_counts=tally))).wire.get("msgbatch_1")
    assert got is not None
    assert got.state is state
    assert got.provider_status == ("" if status is None else str(status))


def test_counts_and_times_are_read() -> None:
    """All requests are the sum of the counts; only errors count as failed."""
    tally = counts(processing=1, succeeded=20, errored=300, canceled=4_000, expired=50_000)
    got = Script(ok(ended(request_counts=tally))).wire.get("msgbatch_1")
    assert got is not None
    assert (got.n_total, got.n_completed, got.n_failed) == (54_321, 20, 300)
    assert got.created_at == datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)
    assert got.expires_at == datetime(2026, 11, 22, 10, 0, 0, 123456, tzinfo=UTC)
    assert got.ended_at == datetime(2026, 11, 21, 11, tzinfo=UTC)
    assert got.seen["results_url"] == "https://evil.example/v1/messages/batches/msgbatch_9/results"


@pytest.mark.parametrize(
    ("tally", "n_total"),
    [
        (None, None),
        ({}, None),
        ([], None),
        ({"succeeded": 2}, 2),
        ({"succeeded": "2", "novel": 3}, 5),
        ({"succeeded": None, "errored": 1}, None),
        ({"succeeded": -1}, None),
        ({"succeeded": 2**63 - 1, "errored": 1}, None),
    ],
)
def test_a_total_is_known_only_when_every_count_is(tally: Any, n_total: int | None) -> None:
    """A new kind of count is part of the whole; nonsense makes the whole unknown."""
    got = Script(ok(batch(request_counts=tally))).wire.get("msgbatch_1")
    assert got is not None
    assert got.n_total == n_total


def test_results_exist_from_the_end_until_the_archive() -> None:
    """Running batches have none, ended ones one stream, archived ones none, with a reason."""
    wire = Script(ok({})).wire

    def seen(value: dict[str, Any]) -> RemoteBatch:
        got = Script(ok(value)).wire.get("msgbatch_1")
        assert got is not None
        return got

    assert wire.result_files(seen(batch())) == ()
    assert wire.result_files(seen(batch(processing_status="canceling"))) == ()
    for tally in (counts(succeeded=1), counts(expired=1), counts(canceled=1)):
        assert wire.result_files(seen(ended(request_counts=tally))) == ((FileRole.OUTPUT, "msgbatch_1"),)
    archived = seen(ended(archived_at="2026-12-20T10:00:00Z"))
    assert archived.state is BatchState.COMPLETED
    assert wire.result_files(archived) == ()
    assert "2026-12-20" in archived.errors[0].message


def test_a_batch_of_the_official_type_is_read() -> None:
    """What these tests call a batch is one to the official SDK too."""
    messages = pytest.importorskip("anthropic.types.messages", reason="NOT CHECKED: the official SDK is not installed")
    for value in (batch(), ended(request_counts=counts(succeeded=2))):
        assert messages.MessageBatch.model_validate_json(json.dumps(value), strict=True).id == value["id"]


def test_an_address_for_an_id_stays_in_its_place_in_the_path(tmp_path: Path) -> None:
    """An id from a provider is data."""
    script = Script(refusal(404, "not_found_error"))
    script.wire.download("https://evil.example/x", tmp_path / "x")
    (request,) = script.requests
    assert request.url.raw_path == b"/v1/messages/batches/https%3A%2F%2Fevil.example%2Fx/results"


# --- the other calls ----------------------------------------------------------------------------------


def test_overload_is_waited_out_and_a_spend_limit_is_not() -> None:
    """529 and rate limits are tried again; a limit of money without `retry-after` ends at once."""
    rate = refusal(429, "rate_limit_error", headers={"retry-after": "3"})
    script = Script(refusal(529, "overloaded_error"), rate, ok(batch()))
    assert script.wire.get("msgbatch_1") is not None
    assert len(script.requests) == 3
    assert script.clock.monotonic_s() >= 3
    spent = refusal(429, "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"})
    script = Script(spent, ok(batch()))
    with pytest.raises(HttpError) as caught:
        script.wire.get("msgbatch_1")
    assert caught.value.error_class is ErrorClass.BILLING
    assert len(script.requests) == 1


def test_results_come_from_the_keys_own_host(tmp_path: Path) -> None:
    """Without a content type and in pieces; a redirect is not followed, 404 is None, HTML is no result."""
    lines = b'{"custom_id":"a","result":{"type":"expired"}}\n'
    script = Script(httpx.Response(200, content=lines))
    got = script.wire.download("msgbatch_1", tmp_path / "out")
    assert got is not None
    assert (got.size_bytes, got.sha256) == (len(lines), hashlib.sha256(lines).hexdigest())
    assert (tmp_path / "out").read_bytes() == lines
    assert script.wire.peek("msgbatch_1", 14) == lines[:14]
    assert {str(request.url) for request in script.requests} == {
        "https://api.anthropic.com/v1/messages/batches/msgbatch_1/results"
    }
    early = refusal(404, "not_found_error", "Message Batch msgbatch_1 has no available results.")
    assert Script(early).wire.download("msgbatch_1", tmp_path / "early") is None
    assert Script(early).wire.peek("msgbatch_1", 9) is None
    for answer in (httpx.Response(302, headers={"location": "https://evil.example/"}), httpx.Response(200, html="<p>")):
        script = Script(answer)
        with pytest.raises(ProviderError):
            script.wire.download("msgbatch_1", tmp_path / "bad")
        assert {request.url.host for request in script.requests} == {"api.anthropic.com"}
        assert not (tmp_path / "bad").exists()


def test_there_is_no_file_to_upload_or_to_find(tmp_path: Path) -> None:
    """Requests travel inside create."""
    wire = Script(ok({})).wire
    assert wire.find_uploads("x", START) == []
    with pytest.raises(ProviderError, match="no batch files"):
        wire.upload(tmp_path / "p", "x")


def test_check_asks_under_the_newest_version() -> None:
    """One row of the listing, which is free."""
    script = Script(httpx.Response(200, json={"data": [], "has_more": False}))
    script.wire.check()
    assert [dict(request.url.params) for request in script.requests] == [{"limit": "1"}]
    assert script.requests[0].headers["anthropic-version"] == "2026-10-21"


def test_limits_hold_the_envelope_and_the_settle_time_two_deadlines() -> None:
    """256 MB is the whole body; an absence is believed only after a late create could have shown."""
    assert DIALECT.DESCRIPTOR.max_bytes + len(b'{"requests":[]}') <= 256_000_000
    assert DIALECT.DESCRIPTOR.create_deadline_s * 2 + 300 <= DIALECT.DESCRIPTOR.settle_s
    assert not DIALECT.DESCRIPTOR.takes_files
    assert not DIALECT.DESCRIPTOR.has_token


# --- a whole life over the simulator ------------------------------------------------------------------


def payload(path: Path, n: int, endpoint: str, **more: Any) -> list[str]:
    custom_ids = [ids.custom_id("attempt234", ids.digest("request", number)) for number in range(n)]
    case = ModelSettings("claude-haiku-4-5", endpoint, max_output_tokens=4000, **more)
    prompt = "SAMPLE 1:\n[[quality=0.9]] a\n\nSAMPLE 2:\n[[quality=0.1]] b\n"
    body = json.dumps(DIALECT.build_body(prompt, case).body).encode()
    path.write_bytes(b"".join(DIALECT.payload_line(each, endpoint, body) + b"\n" for each in custom_ids))
    return custom_ids


@contextmanager
def simulated(path: Path, *faults: str) -> Iterator[tuple[AnthropicClient, ManualClock]]:
    """Run a simulated Anthropic for the length of the block, and yield the wire to it and its clock."""
    if "anthropic" not in PROVIDERS:
        pytest.skip("NOT CHECKED: there is no simulated Anthropic")
    with api(path, *faults) as world:
        environ = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1/anthropic", "ANTHROPIC_API_KEY": KEY}
        yield registry.connect("anthropic", world.clock, transport=world.transport, environ=environ), world.clock


def rows_of(wire: AnthropicClient, batch_id: str, path: Path) -> list[Response]:
    """Return an ended batch's results, read."""
    remote = wire.get(batch_id)
    assert remote is not None
    [(_, file_id)] = wire.result_files(remote)
    got = wire.download(file_id, path)
    data = path.read_bytes()
    assert got is not None
    assert got.sha256 == hashlib.sha256(data).hexdigest()
    head = wire.peek(file_id, 1000)
    assert head is not None
    assert data.startswith(head)
    return [DIALECT.read_line(each) for each in data.split(b"\n") if each.strip()]


@pytest.mark.parametrize("endpoint", [NEW, OLD])
def test_every_body_of_the_thinking_table_is_accepted(tmp_path: Path, endpoint: str) -> None:
    """Family by word, with thoughts and a temperature wished for: the other side refuses none of them."""
    lines = []
    for family in FAMILIES.rows:
        words = (None, *family.words, *(("4096",) if family.takes_budget else ()))
        for number, word in enumerate(words):
            case = ModelSettings(family.prefix, endpoint, word, include_thoughts=True, temperature=0.5)
            body = json.dumps(DIALECT.build_body("SAMPLE 1:\na\n\nSAMPLE 2:\nb\n", case).body).encode()
            lines.append(DIALECT.payload_line(f"{family.prefix}_{number}", endpoint, body))
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with simulated(tmp_path / "world") as (wire, clock):
        created = wire.create(spec(path, endpoint, len(lines)))
        assert isinstance(created, Created)
        clock.advance(3600)
        seen = rows_of(wire, created.batch.batch_id, tmp_path / "out")
    # The simulator makes some requests fail for other reasons; nothing may be refused as invalid.
    assert len(seen) == len(lines)
    refused = [f"{each.custom_id}: {each.error_message}" for each in seen if each.error_class is ErrorClass.PERMANENT]
    assert refused == []
    thoughts = {each.custom_id for each in seen if each.thoughts}
    assert any("opus-5-5" in (custom_id or "") for custom_id in thoughts)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("batches.create@1:reset_after", Unclear),
        ("batches.create@1:status_after=504", Unclear),
        ("batches.create@1:html_after", Unclear),
        ("batches.create@1:reset_before", Unclear),
        ("batches.create@1:status=529", Rejected),
        ("batches.create@1:status=400", Rejected),
        ("batches.create@1:billing", Rejected),
    ],
)
def test_a_faulty_create_is_told_as_what_it_is(tmp_path: Path, fault: str, outcome: type) -> None:
    """In doubt or refused; only after an executed one does the listing show a batch, of the right size."""
    payload(tmp_path / "p.jsonl", 3, NEW)
    with simulated(tmp_path / "world", fault) as (wire, _):
        got = wire.create(spec(tmp_path / "p.jsonl", n=3))
        assert isinstance(got, outcome)
        listed = wire.list_page(None).batches
        assert [each.n_total for each in listed] == ([3] if "_after" in fault else [])
        if isinstance(got, Rejected):
            expected = ErrorClass.BILLING if "billing" in fault else ErrorClass.TRANSIENT
            assert got.error_class is (ErrorClass.PERMANENT if "400" in fault else expected)


def test_a_cancelled_batch_gives_up_what_it_has(tmp_path: Path) -> None:
    """Running, cancelling, cancelled: each request has one row, answered or not."""
    custom_ids = payload(tmp_path / "p.jsonl", 30, NEW)
    with simulated(tmp_path / "world") as (wire, clock):
        created = wire.create(spec(tmp_path / "p.jsonl", n=30))
        assert isinstance(created, Created)
        clock.advance(40)
        cancelling = wire.cancel(created.batch.batch_id)
        assert cancelling is not None
        assert cancelling.state is BatchState.CANCELLING
        clock.advance(3600)
        done = wire.get(created.batch.batch_id)
        assert done is not None
        assert (done.state, done.n_total) == (BatchState.CANCELLED, 30)
        seen = rows_of(wire, created.batch.batch_id, tmp_path / "out")
        assert sorted(each.custom_id or "" for each in seen) == sorted(custom_ids)
        assert sum(each.status is ResponseStatus.CANCELLED for each in seen) > 0
        assert sum(each.status is ResponseStatus.SUCCEEDED for each in seen) == done.n_completed


def test_an_expired_batch_gives_up_what_it_has(tmp_path: Path) -> None:
    """Half done: the others are rows that never ran."""
    payload(tmp_path / "p.jsonl", 10, NEW)
    with simulated(tmp_path / "world", "batches.create@1:expire=0.5") as (wire, clock):
        created = wire.create(spec(tmp_path / "p.jsonl", n=10))
        assert isinstance(created, Created)
        clock.advance(90_000)
        done = wire.get(created.batch.batch_id)
        assert done is not None
        assert (done.state, done.n_total) == (BatchState.EXPIRED, 10)
        seen = rows_of(wire, created.batch.batch_id, tmp_path / "out")
        assert sum(each.status is ResponseStatus.EXPIRED for each in seen) == 5
        clock.advance(30 * 86_400)
        archived = wire.get(created.batch.batch_id)
        assert archived is not None
        assert wire.result_files(archived) == ()
        assert wire.download(created.batch.batch_id, tmp_path / "late") is None


def test_pages_of_a_thousand_hold_every_batch_once(tmp_path: Path) -> None:
    """The listing goes on by its cursor, newest first."""
    payload(tmp_path / "p.jsonl", 1, NEW)
    with simulated(tmp_path / "world") as (wire, clock):
        made = []
        for _ in range(5):
            created = wire.create(spec(tmp_path / "p.jsonl", n=1))
            assert isinstance(created, Created)
            made.append(created.batch.batch_id)
            clock.advance(1)
        listed = [each.batch_id for each in wire.list_page(None).batches]
        assert listed == made[::-1]
        assert [each.batch_id for each in wire.list_page(made[2]).batches] == made[1::-1]
