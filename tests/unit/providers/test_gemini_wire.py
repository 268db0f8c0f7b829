"""Google's Gemini batches on the wire: what is sent, what odd answers come to, a whole life."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchpond import ids
from batchpond.errors import AccessError, ProviderError, UsageError
from batchpond.model import (
    BatchError,
    BatchState,
    Created,
    CreateSpec,
    FileRole,
    PricedModel,
    RemoteBatch,
    ResponseStatus,
)
from batchpond.providers import registry
from batchpond.providers.gemini.batch import GeminiClient
from batchpond.providers.gemini.dialect import DIALECT
from batchpond.providers.http.errors import retry_after_s
from batchpond.providers.shared.dialect import ModelSettings
from batchpond.study.prices import Prices
from tests.rigs import simulator
from tests.rigs.clock import ManualClock
from tests.rigs.gemini_script import (
    BAD_KEY,
    HOST,
    KEY,
    NOT_THERE,
    QUOTA,
    RETRY,
    SPEC,
    TOKEN,
    Script,
    ok,
    operation,
    refusal,
)
from tests.rigs.wire_script import START


def read(value: Any) -> RemoteBatch:
    got = Script(ok(value)).wire.get("batches/b1")
    assert got is not None
    return got


def test_batch_prices_are_known_under_googles_name() -> None:
    """The price data call this provider `google`."""
    prices = Prices(now=START)
    names = ("gemini-2.5-flash", "gemini-3.8-flash", "gemini-4-argon")
    found = {name: prices.unit(PricedModel("gemini", name)) for name in names}
    assert all(found.values()), found


# --- where calls go -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, f"{HOST}/v1beta/batches?pageSize=1"),
        ({"GOOGLE_GENAI_API_VERSION": "beta"}, f"{HOST}/v1beta/batches?pageSize=1"),
        ({"GOOGLE_GENAI_API_VERSION": "v1"}, f"{HOST}/v1/batches?pageSize=1"),
        (
            {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/gemini"},
            "http://127.0.0.1:9/gemini/v1beta/batches?pageSize=1",
        ),
        (
            {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/gemini/v1/", "GOOGLE_GENAI_API_VERSION": "beta"},
            "http://127.0.0.1:9/gemini/v1/batches?pageSize=1",
        ),
    ],
)
def test_the_base_url_and_the_version_follow_the_environment(environ: dict[str, str], url: str) -> None:
    """The base URL's own version goes before the variable's, and that before v1beta."""
    script = Script(ok({}), **environ)
    script.wire.check()
    assert str(script.requests[0].url) == url


def test_a_version_that_is_none_is_refused() -> None:
    """It would become part of every path."""
    with pytest.raises(UsageError, match="GOOGLE_GENAI_API_VERSION"):
        Script(ok({}), GOOGLE_GENAI_API_VERSION="../v1")


def test_the_key_is_the_first_variable_that_is_set_and_travels_in_its_header() -> None:
    """GOOGLE_API_KEY goes before GEMINI_API_KEY; no URL and no representation shows it."""
    other = "AIza-canary-other-0123456789"
    script = Script(ok({}), GOOGLE_API_KEY=other)
    assert script.wire.check() == "gemini/generativelanguage.googleapis.com/-"
    assert script.requests[0].headers["x-goog-api-key"] == other
    assert other not in str(script.requests[0].url)
    shown = repr(script.wire) + repr(vars(script.wire)) + repr(vars(vars(script.wire._http)["_auth"]))
    assert other not in shown
    assert KEY not in shown


def test_a_key_that_is_not_valid_names_the_variable() -> None:
    """Google answers 400 for it, which is a refused key all the same, also where a 400 means too late."""
    for call in (GeminiClient.check, lambda wire: wire.get("b1"), lambda wire: wire.cancel("b1")):
        with pytest.raises(AccessError, match="GEMINI_API_KEY"):
            call(Script(BAD_KEY).wire)


# --- create ---------------------------------------------------------------------------------------


def test_create_sends_one_post_with_the_token_as_display_name() -> None:
    """The documented body at the model's own URL, and an acknowledgement with the batch's name."""
    script = Script(ok(operation()))
    answer = script.wire.create(SPEC)
    assert isinstance(answer, Created)
    assert answer.scope == "gemini/generativelanguage.googleapis.com/-"
    assert (answer.batch.batch_id, answer.batch.token, answer.batch.state) == ("batches/b1", TOKEN, BatchState.QUEUED)
    assert answer.batch.input_file_id == "files/in1"
    assert len(script.requests) == 1
    assert str(script.requests[0].url) == f"{HOST}/v1beta/models/gemini-2.5-flash:batchGenerateContent"
    assert json.loads(script.requests[0].content) == {
        "batch": {"displayName": TOKEN, "inputConfig": {"fileName": "files/in1"}}
    }


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("models/gemini-2.5-pro", b"/v1beta/models/gemini-2.5-pro:batchGenerateContent"),
        ("tunedModels/mine-1", b"/v1beta/tunedModels/mine-1:batchGenerateContent"),
        ("../files?x#y", b"/v1beta/models/..%2Ffiles%3Fx%23y:batchGenerateContent"),
    ],
)
def test_a_models_name_stays_in_its_place_in_the_path(model: str, path: bytes) -> None:
    """With or without its collection, and whatever is in it."""
    script = Script(ok(operation()))
    script.wire.create(CreateSpec(TOKEN, "generateContent", model, "files/in1", Path("unused"), 1, ()))
    assert script.requests[0].url.raw_path == path


def test_a_call_that_is_safe_to_repeat_waits_as_long_as_google_asks() -> None:
    """RetryInfo of the body, where there is no header; a header goes first. A long wait is told and not slept on."""
    limited = refusal(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY)
    script = Script(httpx.Response(429, content=limited.content, headers={"retry-after": "3"}), ok({}))
    script.wire.check()
    assert 3 <= script.clock.monotonic_s() - ManualClock(START).monotonic_s() <= 5
    assert len(script.requests) == 2
    script = Script(httpx.Response(429, content=limited.content), ok({}))
    with pytest.raises(ProviderError, match="asks to wait 34 s") as caught:
        script.wire.check()
    assert (caught.value.retry_after_s, len(script.requests)) == (34, 1)


@pytest.mark.parametrize(
    ("headers", "asked", "expected_s"),
    [
        ({}, "34s", 34.0),
        ({}, "0.5s", 0.5),
        ({}, " 7 s", 7.0),
        ({}, "-3s", 0.0),
        ({}, "21599.96s", 21_599.96),
        ({}, "soon", None),
        ({}, "nans", None),
        ({}, None, None),
        ({"retry-after": "3"}, "34s", 3.0),
        ({"retry-after": "nonsense"}, "34s", 34.0),
    ],
)
def test_a_delay_in_the_body_is_bounded_and_comes_after_the_headers(
    headers: dict[str, str], asked: str | None, expected_s: float | None
) -> None:
    """google.rpc.RetryInfo: seconds with an `s`; nonsense is no answer."""
    assert retry_after_s(headers, START, asked) == expected_s


# --- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", BatchState.QUEUED),
        ("QUEUED", BatchState.QUEUED),
        ("RUNNING", BatchState.RUNNING),
        ("PAUSED", BatchState.RUNNING),
        ("CANCELLING", BatchState.CANCELLING),
        ("SUCCEEDED", BatchState.COMPLETED),
        ("PARTIALLY_SUCCEEDED", BatchState.COMPLETED),
        ("FAILED", BatchState.FAILED),
        ("CANCELLED", BatchState.CANCELLED),
        ("EXPIRED", BatchState.EXPIRED),
        ("ARCHIVING", BatchState.RUNNING),
    ],
)
def test_state_words_count_by_their_end_and_unknown_ones_never_end_a_batch(word: str, state: BatchState) -> None:
    """BATCH_STATE_ on the wire, JOB_STATE_ in documents; `done` need not be there."""
    for written in (f"BATCH_STATE_{word}", f"JOB_STATE_{word}", f"batch_state_{word.lower()}"):
        got = read(operation(written))
        assert (got.state, got.provider_status) == (state, written)


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, BatchState.RUNNING),
        ({"done": False}, BatchState.RUNNING),
        ({"done": True}, BatchState.RUNNING),
        ({"done": "true", "response": {}}, BatchState.RUNNING),
        ({"done": True, "response": {"responsesFile": "files/x"}}, BatchState.COMPLETED),
        ({"done": True, "error": {"code": 13, "message": "m"}}, BatchState.FAILED),
        ({"done": True, "error": {"code": 1, "message": "m"}}, BatchState.CANCELLED),
    ],
)
@pytest.mark.parametrize("state_word", [None, "BATCH_STATE_UNSPECIFIED", ""])
def test_without_a_state_only_what_is_beside_done_ends_a_batch(
    more: dict[str, Any], state: BatchState, state_word: str | None
) -> None:
    """Proto3 leaves out an unspecified state."""
    assert read(operation(state_word, **more)).state is state


def test_a_batch_object_is_made_uniform() -> None:
    """Counts are text and zeros are left out; expiry is 48 hours after creation."""
    done = operation(
        "BATCH_STATE_SUCCEEDED",
        {
            "batchStats": {"requestCount": "3", "successfulRequestCount": "3"},
            "endTime": "2026-11-21T10:20:00Z",
            "output": {"responsesFile": "files/batch-b1"},
        },
        done=True,
    )
    got = read(done)
    created_at = datetime(2026, 11, 21, 10, 0, 0, 100_000, tzinfo=UTC)
    assert (got.n_total, got.n_completed, got.n_failed) == (3, 3, 0)
    assert (got.created_at, got.expires_at) == (created_at, created_at + timedelta(hours=48))
    assert got.ended_at == datetime(2026, 11, 21, 10, 20, tzinfo=UTC)
    assert (got.token, got.input_file_id, got.errors) == (TOKEN, "files/in1", ())
    assert Script().wire.result_files(got) == ((FileRole.OUTPUT, "files/batch-b1"),)
    assert got.seen == done


@pytest.mark.parametrize("name", ["", "lb-r1-0003", "batchpond2-x", None, 7, [TOKEN]])
def test_only_a_name_of_ours_is_a_token(name: Any) -> None:
    """Other people's display names are never taken for one."""
    assert read(operation(meta={"displayName": name})).token is None


@pytest.mark.parametrize("stats", [None, {}, [], "x"])
def test_counts_that_google_does_not_give_are_unknown(stats: Any) -> None:
    """Not zero."""
    got = read(operation(meta={"batchStats": stats}))
    assert (got.n_total, got.n_completed, got.n_failed) == (None, None, None)


@pytest.mark.parametrize(
    ("state", "place", "files"),
    [
        ("SUCCEEDED", {"response": {"responsesFile": "files/o"}}, ["files/o"]),
        ("SUCCEEDED", {"meta": {"output": {"responsesFile": "files/o"}}}, ["files/o"]),
        ("SUCCEEDED", {"response": {"inlinedResponses": {"inlinedResponses": []}}}, ["inline:batches/b1"]),
        ("SUCCEEDED", {}, ["inline:batches/b1"]),
        ("CANCELLED", {"error": {"code": 13, "message": "cancelled"}}, ["inline:batches/b1"]),
        ("CANCELLED", {"meta": {"output": {"responsesFile": "files/o"}}}, ["files/o"]),
        ("RUNNING", {"meta": {"output": {"responsesFile": "files/o"}}}, []),
        ("FAILED", {"error": {"code": 3, "message": "m"}}, []),
        ("EXPIRED", {"meta": {"batchStats": {"requestCount": "9", "successfulRequestCount": "4"}}}, []),
    ],
)
def test_what_a_batch_gives_up_depends_on_how_it_ended(state: str, place: dict[str, Any], files: list[str]) -> None:
    """A listing hides inline answers, so they are looked for; an expired batch has no results at all."""
    got = read(operation(f"BATCH_STATE_{state}", **place))
    assert Script().wire.result_files(got) == tuple((FileRole.OUTPUT, name) for name in files)


def test_a_failed_batch_says_why() -> None:
    """A number of google.rpc.Code becomes its word."""
    got = read(operation("BATCH_STATE_FAILED", error={"code": 3, "message": "bad line"}))
    assert got.errors == (BatchError("INVALID_ARGUMENT", "bad line"),)


def test_what_is_kept_of_a_batch_is_without_its_answers_and_requests() -> None:
    """They may be millions of tokens, and their place is the raw table."""
    answers = {"inlinedResponses": {"inlinedResponses": [{"response": {"x": "answer"}}]}}
    meta = {"output": answers, "inputConfig": {"requests": {"requests": [{"x": "question"}]}}}
    seen = read(operation("BATCH_STATE_SUCCEEDED", meta, response=answers)).seen
    assert "answer" not in json.dumps(seen)
    assert "question" not in json.dumps(seen)
    assert seen["metadata"]["displayName"] == TOKEN


def test_a_plain_403_is_about_the_key() -> None:
    """Only Google's 403 for what may not exist is no refusal."""
    with pytest.raises(AccessError):
        Script(refusal(403, "PERMISSION_DENIED", "Requests to this API are blocked.")).wire.get("batches/b1")


def test_an_id_with_its_collection_stays_in_its_place_in_the_path() -> None:
    """An id from a provider is data: slashes, dots and queries do not address anything else."""
    script = Script(refusal(404, "NOT_FOUND"))
    script.wire.get("batches/../files?x=1#y")
    assert script.requests[0].url.raw_path == b"/v1beta/batches/..%2Ffiles%3Fx%3D1%23y"
    for bad in ("batches/..", "batches/"):
        with pytest.raises(ProviderError):
            script.wire.get(bad)


def test_cancel_asks_and_looks() -> None:
    """Google answers `{}`; the state is the batch's own. Cancelling twice is cancelling once."""
    script = Script(httpx.ReadTimeout("x"), ok({}), ok(operation("BATCH_STATE_CANCELLED")))
    got = script.wire.cancel("batches/b1")
    assert got is not None
    assert got.state is BatchState.CANCELLED
    assert [(each.method, each.url.path) for each in script.requests] == [
        ("POST", "/v1beta/batches/b1:cancel"),
        ("POST", "/v1beta/batches/b1:cancel"),
        ("GET", "/v1beta/batches/b1"),
    ]


def page(*names: str, token: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {"operations": [operation(name=f"batches/{name}") for name in names]} if names else {}
    return found | ({} if token is None else {"nextPageToken": token})


def test_a_listing_goes_on_by_its_token_over_empty_pages() -> None:
    """100 a page; a page without rows has no `operations`; "" is the end."""
    script = Script(ok(page("b3", token="t1")), ok(page(token="t2")), ok(page("b1", token="")), ok({}))
    first = script.wire.list_page(None)
    assert ([each.batch_id for each in first.batches], first.next_cursor) == (["batches/b3"], "t1")
    second = script.wire.list_page("t1")
    assert ([each.batch_id for each in second.batches], second.next_cursor) == (["batches/b1"], None)
    assert script.wire.list_page(None).batches == ()
    asked = [dict(request.url.params) for request in script.requests[:3]]
    assert asked == [{"pageSize": "100"} | ({"pageToken": token} if token else {}) for token in ("", "t1", "t2")]


# --- downloads ------------------------------------------------------------------------------------


def test_a_result_file_is_downloaded_from_its_own_address(tmp_path: Path) -> None:
    """`/download/...:download?alt=media`, byte for byte; the id stays in its place."""
    script = Script(httpx.Response(200, content=b'{"key":"a"}\n'))
    got = script.wire.download("files/batch-b1", tmp_path / "out")
    assert got is not None
    assert got.sha256 == hashlib.sha256(b'{"key":"a"}\n').hexdigest()
    assert str(script.requests[0].url) == f"{HOST}/download/v1beta/files/batch-b1:download?alt=media"
    assert script.wire.peek("files/batch-b1", 5) == b'{"key'
    script.wire.download("files/../batches?x", tmp_path / "out")
    assert script.requests[-1].url.raw_path == b"/download/v1beta/files/..%2Fbatches%3Fx:download?alt=media"


@pytest.mark.parametrize("file_id", ["files/batch-b1", "inline:batches/b1"])
@pytest.mark.parametrize("answer", [refusal(404, "NOT_FOUND"), refusal(403, "PERMISSION_DENIED", NOT_THERE)])
def test_a_file_that_may_be_gone_is_none(tmp_path: Path, file_id: str, answer: httpx.Response) -> None:
    """Google answers 403 for what is not there; a plain 403 is the key's."""
    assert Script(answer).wire.download(file_id, tmp_path / "out") is None
    assert Script(answer).wire.peek(file_id, 9) is None
    assert not (tmp_path / "out").exists()
    with pytest.raises(AccessError):
        Script(refusal(403, "PERMISSION_DENIED")).wire.download(file_id, tmp_path / "out")


def inline(*rows: Any) -> dict[str, Any]:
    return {"inlinedResponses": {"inlinedResponses": list(rows)}}


ROWS = (
    {"response": {"candidates": [{"content": {"parts": [{"text": "Grüße\u2028"}]}}]}, "metadata": {"key": "a-1"}},
    {"metadata": {"key": "a-2"}, "error": {"message": "m", "code": 3}},
    {"response": {"responseId": "r"}},
)


@pytest.mark.parametrize(
    "place",
    [{"response": inline(*ROWS)}, {"meta": {"output": inline(*ROWS)}}, {"response": {"inlinedResponses": list(ROWS)}}],
)
def test_inline_answers_become_lines_with_their_keys(tmp_path: Path, place: dict[str, Any]) -> None:
    """Wherever Google puts them; the same answer gives the same bytes, whatever the order of members."""
    body = operation("BATCH_STATE_SUCCEEDED", **place)
    script = Script(ok(body))
    got = script.wire.download("inline:batches/b1", tmp_path / "out")
    data = (tmp_path / "out").read_bytes()
    assert got is not None
    assert (got.size_bytes, got.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    lines = data.split(b"\n")
    assert lines.pop() == b""
    assert [DIALECT.read_line(line).custom_id for line in lines] == ["a-1", "a-2", None]
    assert json.loads(lines[0]) == {"key": "a-1", **ROWS[0]}
    assert script.wire.peek("inline:batches/b1", 40) == data[:40]
    turned = json.loads(json.dumps(body), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    again = Script(ok(turned)).wire.download("inline:batches/b1", tmp_path / "again")
    assert again == got


def test_a_batch_that_turns_out_to_name_a_file_gives_that_file(tmp_path: Path) -> None:
    """A listing may have been behind."""
    named = operation("BATCH_STATE_SUCCEEDED", response={"responsesFile": "files/batch-b1"})
    script = Script(ok(named), httpx.Response(200, content=b"row\n"))
    got = script.wire.download("inline:batches/b1", tmp_path / "out")
    assert got is not None
    assert (tmp_path / "out").read_bytes() == b"row\n"
    assert Script(ok(named), httpx.Response(200, content=b"row\n")).wire.peek("inline:batches/b1", 2) == b"ro"


def test_a_batch_without_any_answers_gives_an_empty_file(tmp_path: Path) -> None:
    """A cancelled batch that ran nothing: its end is known, so there is nothing to wait for."""
    got = Script(ok(operation("BATCH_STATE_CANCELLED"))).wire.download("inline:batches/b1", tmp_path / "out")
    assert got is not None
    assert got.size_bytes == 0


def test_inline_answers_with_odd_text_are_not_lost(tmp_path: Path) -> None:
    """Lone surrogates and numbers that no double holds do not cost the others their answers."""
    body = json.dumps(operation("BATCH_STATE_SUCCEEDED", response=inline(*ROWS, {"metadata": {"key": "@"}, "n": "%"})))
    odd = body.replace('"@"', '"a-4\\ud83d"').replace('"%"', "9" * 400)
    got = Script(httpx.Response(200, content=odd.encode())).wire.download("inline:batches/b1", tmp_path / "out")
    assert got is not None
    lines = (tmp_path / "out").read_bytes().split(b"\n")
    assert [DIALECT.read_line(line).custom_id for line in lines if line] == ["a-1", "a-2", None, "a-4\ufffd"]


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b"{"])
def test_an_inline_answer_that_is_no_batch_is_an_error(tmp_path: Path, content: bytes) -> None:
    """It must not look like a batch without answers."""
    with pytest.raises(ProviderError):
        Script(httpx.Response(200, content=content)).wire.download("inline:batches/b1", tmp_path / "out")


# --- a whole life over the simulator --------------------------------------------------------------


def payload(path: Path, n: int, settings: ModelSettings) -> list[str]:
    custom_ids = [ids.custom_id("attempt234", ids.digest("request", number)) for number in range(n)]
    prompt = "SAMPLE 1:\n[[quality=0.9]] a\n\nSAMPLE 2:\n[[quality=0.1]] b\n"
    body = json.dumps(DIALECT.build_body(prompt, settings).body).encode()
    path.write_bytes(b"".join(DIALECT.payload_line(each, "generateContent", body) + b"\n" for each in custom_ids))
    return custom_ids


@pytest.mark.parametrize(
    ("fault", "state", "n_rows", "n_known"),
    [
        ("batches.create:inline_results", BatchState.COMPLETED, 12, 12),
        ("batches.create:inline_results=reordered", BatchState.COMPLETED, 12, 12),
        ("batches.create:inline_results=no_metadata", BatchState.COMPLETED, 12, 0),
        ("batches.create:output_at=metadata", BatchState.COMPLETED, 12, 12),
        ("batches.create:output_at=response", BatchState.COMPLETED, 12, 12),
        ("batches.create:job_state", BatchState.COMPLETED, 12, 12),
        ("batches.create:empty_output", BatchState.COMPLETED, 0, 0),
        ("batches.create:expire=0.5", BatchState.EXPIRED, 0, 0),
        ("batches.create:fail", BatchState.FAILED, 0, 0),
        ("files.upload@1:cut_upload=1000", BatchState.COMPLETED, 12, 12),
        ("files.upload@1:reset_after", BatchState.COMPLETED, 12, 12),
        ("lines:lone_surrogate=2", BatchState.COMPLETED, 12, 12),
        ("lines:nan=2", BatchState.COMPLETED, 12, 12),
        ("lines:error_rows=3", BatchState.COMPLETED, 12, 12),
    ],
)
def test_what_simulated_faults_leave_of_a_batch_is_read(
    tmp_path: Path, fault: str, state: BatchState, n_rows: int, n_known: int
) -> None:
    """Each place and shape that answers were seen in; a row without its key is kept, and is nobody's."""
    with simulator.api(tmp_path / "world", fault) as api:
        environ = {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1/gemini", "GEMINI_API_KEY": KEY}
        wire = registry.connect("gemini", api.clock, transport=api.transport, environ=environ)
        model = "gemini-2.5-flash"
        custom_ids = payload(tmp_path / "p.jsonl", 12, ModelSettings(model, "generateContent", thinking="low"))
        remote = wire.upload(tmp_path / "p.jsonl", f"{TOKEN}.jsonl")
        spec = CreateSpec(TOKEN, "generateContent", model, remote.file_id, Path("unused"), 12, ())
        assert isinstance(wire.create(spec), Created)
        api.clock.advance(50 * 3600)
        (listed,) = wire.list_page(None).batches
        assert listed.state is state
        seen = []
        for _, file_id in wire.result_files(listed):
            assert wire.download(file_id, tmp_path / "out") is not None
            lines = (tmp_path / "out").read_bytes().split(b"\n")
            seen += [DIALECT.read_line(each) for each in lines if each]
        assert len(seen) == n_rows
        assert len({each.custom_id for each in seen} & set(custom_ids)) == n_known
        assert not any(each.status is ResponseStatus.UNREADABLE for each in seen)
