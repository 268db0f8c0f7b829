"""Live calls over real loopback HTTP: one POST, a whole answer or none, and what each answer comes to."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.clock import SystemClock
from batchpond.errors import AccessError, ProviderError, UsageError
from batchpond.model import ErrorClass, ResponseStatus
from batchpond.providers import registry
from batchpond.providers.base import Answered, Deferred, Doubtful, LiveAnswer
from batchpond.providers.http.client import HttpClient
from batchpond.providers.http.errors import RETRY_AFTER_MAX_S, Again, HttpError, answer_of
from batchpond.providers.shared.live import LiveClient, judge
from batchpond.text import Secret
from tests.rigs.hostile_server import HostileServer, drip, eof, hang, hostile, raw, reply, reset, until_left
from tests.rigs.http import CANARY, START

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m","messages":[{"role":"user","content":"A or B?"}]}'
GOOD = {"object": "chat.completion", "choices": [{"message": {"content": "A"}, "finish_reason": "stop"}]}
GOOD_BYTES = json.dumps(GOOD).encode()
HTML = b"<html><head><title>502 Bad Gateway</title></head></html>"


def wire(server: HostileServer, max_connections: int = 8) -> LiveClient:
    """Return OpenAI's live wire to a misbehaving server."""
    environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": CANARY}
    return registry.connect_live("openai", environ=environ, max_connections=max_connections)


def ask(server: HostileServer, deadline_s: float = 5.0) -> LiveAnswer:
    """Ask once; whatever comes of it, exactly one POST has left."""
    live = wire(server)
    try:
        return live.ask(CHAT, "gpt-x", BODY, deadline_s)
    finally:
        live.close()
        assert server.posts() <= 1


def error(message: str = "no", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": None, "code": None} | more}


# --- what is sent ---------------------------------------------------------------------------------


def test_one_post_with_the_body_as_it_is() -> None:
    """The path below the base URL, the key, and the bytes that were handed over."""
    with hostile(reply(GOOD, x_request_id="req_1")) as server:
        answer = ask(server)
    assert answer == Answered(200, GOOD_BYTES, "req_1")
    (seen,) = server.requests
    assert (seen.method, seen.path, seen.body) == ("POST", CHAT, BODY)
    assert seen.headers["authorization"] == f"Bearer {CANARY}"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["user-agent"].startswith("batchpond/")


# --- bodies that are cut short are no answers ---------------------------------------------------------


def head(more: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}\r\n".encode()


@pytest.mark.parametrize(
    "act",
    [
        eof,
        reset,
        raw(head("Content-Length: 500\r\n") + GOOD_BYTES),
        raw(head("Transfer-Encoding: chunked\r\n") + b"%x\r\n%b\r\n" % (len(GOOD_BYTES), GOOD_BYTES)),
        raw(head() + GOOD_BYTES[:-2]),
        raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
        raw(b"not http at all\r\n\r\n"),
        reply(GOOD_BYTES[:-2]),
        reply(b""),
        reply(HTML, content_type="text/html"),
        reply([GOOD]),
        reply(b'"a text"'),
        reply(gzip.compress(GOOD_BYTES)[:-12], content_encoding="gzip"),
        reply(b"\xff\xfe"),
    ],
    ids=["eof", "reset", "short", "unended", "unframed", "head", "garbage", "json", "empty", "html", "list", "text",
         "gzip", "bytes"],
)  # fmt: skip
def test_what_is_not_whole_is_doubtful(act: Any) -> None:
    """The call may have been computed and charged: it is neither an answer nor simply asked again."""
    with hostile(act) as server:
        answer = ask(server)
    assert isinstance(answer, Doubtful)
    assert CANARY not in answer.reason
    assert server.posts() == 1


def test_a_silent_server_is_left_at_the_deadline() -> None:
    """The deadline is of the whole call, and a server that drips bytes does not stretch it."""
    for act in (until_left, drip(head(), b" ", 0.02, 60)):
        with hostile(act) as server:
            answer = ask(server, 0.4)
            assert isinstance(answer, Doubtful)
        assert server.n_left == 1


def test_a_slow_answer_is_waited_for() -> None:
    """Silence within the deadline is a model that thinks."""

    def late(connection: Any) -> None:
        time.sleep(0.5)
        reply(GOOD)(connection)

    with hostile(late) as server:
        assert isinstance(ask(server), Answered)


def test_an_answer_without_a_length_is_whole_when_its_json_is() -> None:
    """HTTP/1.0 style: the connection's end is the body's."""
    with hostile(raw(head() + GOOD_BYTES)) as server:
        assert ask(server) == Answered(200, GOOD_BYTES)


def test_keep_alive_lines_before_an_answer_are_kept_and_skipped() -> None:
    """DeepSeek sends blank lines and comments while a call waits in its queue."""
    body = b"\n\n: keep-alive\n\n\r\n" + GOOD_BYTES
    with hostile(reply(body)) as server:
        answer = ask(server)
    assert answer == Answered(200, body)
    assert registry.module("openai").read_answer(200, body).text == "A"


def test_a_compressed_answer_is_kept_as_what_it_says() -> None:
    """A server that compresses though it was asked not to."""
    with hostile(reply(gzip.compress(GOOD_BYTES), content_encoding="gzip")) as server:
        assert ask(server) == Answered(200, GOOD_BYTES)


def test_where_nothing_was_sent_the_call_is_put_off() -> None:
    """A refused connection and an unknown host: the same call may be made again."""
    with hostile(eof) as server:
        pass
    for url in (server.url, "https://no-such-host.invalid/v1"):
        environ = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": CANARY}
        live = registry.connect_live("openai", environ=environ)
        answer = live.ask(CHAT, "m", BODY, 5.0)
        assert isinstance(answer, Deferred)
        assert (answer.status_code, answer.is_shared) == (None, True)
        live.close()


# --- statuses -------------------------------------------------------------------------------------

OPENAI_LIMIT = {
    "x_ratelimit_limit_requests": "60",
    "x_ratelimit_remaining_requests": "0",
    "x_ratelimit_reset_requests": "1s",
}


@pytest.mark.parametrize(
    ("status", "body", "is_shared"),
    [
        (429, error("Rate limit reached", code="rate_limit_exceeded"), True),
        (429, HTML, True),
        (529, error("Overloaded", type="overloaded_error"), True),
        (503, error("The engine is overloaded", type="server_error"), True),
        (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}, True),
        (500, error("The server had an error", type="server_error"), False),
        (500, {"detail": "CUDA out of memory"}, False),
        (408, {}, False),
        (409, error("conflict"), False),
        (425, b"", False),
        (498, error("flex tier capacity exceeded", code="capacity_exceeded"), False),
        (403, b"error code: 1010", False),
        (402, error("in-flight", code=402, metadata={"limit_source": "openrouter_in_flight_budget"}), True),
    ],
)
def test_not_now(status: int, body: Any, is_shared: bool) -> None:
    """Nothing was computed: the call is put off, and the others with it where the account or server is meant."""
    with hostile(reply(body, status, retry_after_ms="250", **OPENAI_LIMIT)) as server:
        answer = ask(server)
    assert isinstance(answer, Deferred)
    assert (answer.status_code, answer.is_shared, answer.retry_after_s) == (status, is_shared, 0.25)
    assert answer.hints.request_limit == 60
    assert answer.hints.requests_reset_s == 1.0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error("Invalid 'temperature'", type="invalid_request_error")),
        (413, HTML),
        (422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}),
        (429, error("Request too large for gpt-x on tokens per min: Limit 30000, Requested 45000.", type="tokens")),
        (403, error("The input token count plus max_tokens must be less than the context length of the model.")),
        (403, error("flagged", code=403, metadata={"reasons": ["violence"], "flagged_input": "..."})),
        (451, error("unavailable for legal reasons")),
    ],
)
def test_a_no_to_this_request_alone_is_its_answer(status: int, body: Any) -> None:
    """Asking again would not change it, and says nothing about other requests."""
    with hostile(reply(body, status)) as server:
        answer = ask(server)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert answer == Answered(status, content)
    read = registry.module("openai").read_answer(status, content)
    assert (read.status, read.error_class) == (ResponseStatus.ERRORED, ErrorClass.PERMANENT), "nor does a later retry"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, HTML),
        (504, HTML),
        (503, HTML),
        (500, HTML),
        (500, {"message": "Internal server error"}),
        (502, error("Provider returned error", code=502)),
        (504, error("deadline", type="timeout_error")),
        (520, HTML),
        (501 + 6, b""),
    ],
)
def test_what_something_in_between_says_is_doubtful(status: int, body: Any) -> None:
    """A gateway speaks when the API has not answered in time: it may have computed all the same."""
    with hostile(reply(body, status)) as server:
        assert isinstance(ask(server), Doubtful)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, error("Incorrect API key provided", type="invalid_request_error", code="invalid_api_key")),
        (401, b"Unauthorized"),
        (403, error("denied", type="permission_error")),
        (400, error("Organization has been restricted.", code="organization_restricted")),
        (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: sk-****"}),
        (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.", "details": []}}),
        (400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid."}}]),
    ],
)
def test_a_refused_key_stops_the_run(status: int, body: Any) -> None:
    """AccessError names the variable, and never shows the key."""
    with hostile(reply(body, status)) as server, pytest.raises(AccessError) as caught:
        ask(server)
    assert "OPENAI_API_KEY was refused" in caught.value.message
    assert CANARY not in caught.value.message
    assert caught.value.__context__ is None


# xAI's (continuedev/continue#10373, Anantys-oss/koan#2412).
SPENT = {
    "code": "Some resource has been exhausted",
    "error": "Your team 1 has either used all available credits or reached its monthly spending limit. To continue"
    " making API requests, please purchase more credits or raise your spending limit.",
}
NO_CREDITS = "Your newly created team doesn't have any credits or licenses yet."


@pytest.mark.parametrize(
    ("status", "body", "error_class", "said"),
    [
        (429, error("You exceeded your current quota", code="insufficient_quota"), ErrorClass.BILLING, "quota"),
        (402, error("Insufficient Balance"), ErrorClass.BILLING, "Balance"),
        (429, error("m", details={"error_code": "enforced_spend_limit_reached"}), ErrorClass.BILLING, "429"),
        (400, error("Your credit balance is too low to access the API"), ErrorClass.BILLING, "credit"),
        (429, error("m", code="credit_balance_exhausted"), ErrorClass.BILLING, "429"),
        (429, error("m", code="project_spend_limit_exceeded"), ErrorClass.BILLING, "429"),
        (400, error("m", code="blocked_api_access"), ErrorClass.BILLING, "400"),
        (429, SPENT, ErrorClass.BILLING, "credits"),
        (403, SPENT, ErrorClass.BILLING, "credits"),
        (403, {"code": "permission-denied", "error": NO_CREDITS}, ErrorClass.BILLING, "credits"),
        (403, error("Key limit exceeded (total limit)", code=403), ErrorClass.BILLING, "limit"),
        (404, error("The model `gpt-x` does not exist", code="model_not_found"), ErrorClass.MODEL_GONE, "'gpt-x'"),
        (404, HTML, ErrorClass.MODEL_GONE, "'gpt-x'"),
        (404, {"detail": "Not Found"}, ErrorClass.MODEL_GONE, "'gpt-x'"),
        (400, error("m", code="model_not_available"), ErrorClass.MODEL_GONE, "'gpt-x'"),
        (400, error("The model `gpt-x` is gone", code="model_decommissioned"), ErrorClass.MODEL_GONE, "'gpt-x'"),
        (400, {"object": "error", "message": "Invalid model: m", "type": "invalid_model", "code": "1500"},
         ErrorClass.MODEL_GONE, "'gpt-x'"),
        (400, error("Model Not Exist", type="invalid_request_error"), ErrorClass.MODEL_GONE, "'gpt-x'"),
        (400, error("acme/gpt-x is not a valid model ID", code=400), ErrorClass.MODEL_GONE, "'gpt-x'"),
        (402, error("too large", code=402, metadata={"limit_source": "openrouter_credits"}), ErrorClass.BILLING, "402"),
        (405, {"detail": "Method Not Allowed"}, ErrorClass.MODEL_GONE, "'gpt-x'"),
        (308, b"", ErrorClass.PERMANENT, "not followed"),
    ],
)  # fmt: skip
def test_what_every_call_would_meet_stops_the_run(status: int, body: Any, error_class: ErrorClass, said: str) -> None:
    """An empty account or a missing model would fail ten thousand requests: one error says what to do."""
    act = reply(body, status, location="https://elsewhere.example/v1")
    with hostile(act) as server, pytest.raises(HttpError) as caught:
        ask(server)
    assert caught.value.error_class is error_class
    assert said in caught.value.message
    assert caught.value.hint
    assert isinstance(caught.value, ProviderError)
    assert server.posts() == 1


bodies = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["error", "message", "code", "type", "detail", "object", "metadata"]), inner
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(
    st.integers(100, 999), bodies, st.dictionaries(st.sampled_from(["retry-after", "location"]), st.text(max_size=9))
)
def test_any_answer_is_judged(status: int, body: bytes, headers: dict[str, str]) -> None:
    """Total: and only a 2xx or a 4xx is ever an answer, with exactly the bytes that came."""
    found = judge(answer_of(status, headers, body), START)
    assert isinstance(found, Answered | Deferred | Doubtful | ErrorClass)
    if isinstance(found, Answered):
        assert 200 <= status <= 299 or 400 <= status <= 499
        assert found.body == body
    if isinstance(found, Deferred) and found.retry_after_s is not None:
        assert 0 <= found.retry_after_s <= RETRY_AFTER_MAX_S


@settings(max_examples=60)
@given(st.binary(max_size=80) | st.just(GOOD_BYTES), st.integers(0, 200))
def test_no_beginning_of_an_answer_is_an_answer(body: bytes, cut: int) -> None:
    """A prefix of a JSON object is never taken for the whole."""
    if cut < len(GOOD_BYTES):
        assert not isinstance(judge(answer_of(200, {}, GOOD_BYTES[:cut]), START), Answered)
    found = judge(answer_of(200, {}, body), START)
    assert isinstance(found, Answered) is isinstance(_object(body), dict)


def _object(body: bytes) -> object:
    try:
        return json.loads(body.strip(b" \t\r\n"))
    except ValueError:
        return None


# --- many threads ---------------------------------------------------------------------------------


class _Echo(BaseHTTPRequestHandler):
    """Answers with what it was asked, over connections that stay open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:  # type: ignore[attr-defined]
            self.server.asked.append(asked["n"])  # type: ignore[attr-defined]
            self.server.connections.add(self.client_address)  # type: ignore[attr-defined]
        content = json.dumps({"n": asked["n"]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _EchoServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def echo() -> Iterator[Any]:
    """Run a server that answers with each call's own number."""
    server: Any = _EchoServer(("127.0.0.1", 0), _Echo)
    server.asked, server.connections, server.lock = [], set(), threading.Lock()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(2)


def test_threads_share_a_wire_and_each_gets_its_own_answer() -> None:
    """600 calls from 32 threads: none lost, none twice, none mixed up, and connections are used again."""
    with echo() as server:
        environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY": CANARY}
        live = registry.connect_live("openai", environ=environ, max_connections=16)

        def call(n: int) -> bool:
            answer = live.ask(CHAT, "m", json.dumps({"n": n}).encode(), 30.0)
            return isinstance(answer, Answered) and json.loads(answer.body) == {"n": n}

        with ThreadPoolExecutor(32) as pool:
            assert all(pool.map(call, range(600)))
        assert sorted(server.asked) == list(range(600))
        assert len(server.connections) <= 16
        live.close()


def test_a_call_that_gets_no_connection_in_time_was_never_sent() -> None:
    """More callers than connections: the one that waits past its deadline is put off, not doubtful."""
    with hostile(hang(1.5)) as server:
        live = wire(server, max_connections=1)
        first = threading.Thread(target=live.ask, args=(CHAT, "m", BODY, 2.0))
        first.start()
        while not server.requests:
            time.sleep(0.01)
        answer = live.ask(CHAT, "m", BODY, 0.2)
        assert isinstance(answer, Deferred)
        assert not answer.is_shared
        first.join()
        assert server.posts() == 1
        live.close()


def test_each_thread_has_its_own_deadline() -> None:
    """A short call beside a long one: neither takes the other's time."""
    is_over = threading.Event()
    with hostile(lambda _: is_over.wait(60)) as server:
        live = wire(server)
        with ThreadPoolExecutor(2) as pool:
            long = pool.submit(live.ask, CHAT, "m", BODY, 50.0)
            assert isinstance(pool.submit(live.ask, CHAT, "m", BODY, 0.2).result(), Doubtful)
            assert not long.done()
            is_over.set()
            assert isinstance(long.result(), Doubtful)
        live.close()


def test_connections_that_failed_are_not_used_again() -> None:
    """After a reset and a cut answer the next calls get whole answers."""
    with hostile(reset, raw(head("Content-Length: 99\r\n") + b"{"), reply(GOOD), reply(GOOD)) as server:
        live = wire(server, max_connections=1)
        found = [live.ask(CHAT, "m", BODY, 3.0) for _ in range(4)]
        assert [type(answer) for answer in found] == [Doubtful, Doubtful, Answered, Answered]
        live.close()


# --- the key --------------------------------------------------------------------------------------


def test_a_key_goes_over_http_to_this_machine_alone() -> None:
    """Without a key, another machine may be asked over http; with one, it may not."""
    clock = SystemClock()
    HttpClient("http://gpu-1:8000/v1", {}, clock).close()
    with pytest.raises(UsageError, match="https"):
        HttpClient("http://gpu-1:8000/v1", {"Authorization": Secret(f"Bearer {CANARY}")}, clock)


def test_the_key_never_leaves_in_a_failure() -> None:
    """What a transport raises may quote a header; what is told does not."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError(f"lost: {request.headers}, {CANARY}", request=request)

    asker = HttpClient(
        "https://api.example/v1", {"x-api-key": Secret(CANARY)}, SystemClock(), httpx.MockTransport(fail)
    )
    found = asker.ask("/x", BODY, 1.0)
    assert isinstance(found, Again)
    assert CANARY not in found.text


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.ConnectError("refused"), Deferred),
        (httpx.ConnectTimeout("late"), Deferred),
        (httpx.PoolTimeout("full"), Deferred),
        (httpx.ReadTimeout("late"), Doubtful),
        (httpx.WriteError("gone"), Doubtful),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), Doubtful),
    ],
)
def test_only_what_comes_before_the_first_byte_is_unsent(failure: Exception, kind: type) -> None:
    """A write that failed half-way may have left the whole request at the server; a full house is nobody else's."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise failure

    live = registry.connect_live("openai", environ={"OPENAI_API_KEY": CANARY}, transport=httpx.MockTransport(fail))
    found = live.ask(CHAT, "m", BODY, 1.0)
    assert isinstance(found, kind)
    assert getattr(found, "is_shared", False) == isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout)


def test_an_invalid_certificate_stops_the_run() -> None:
    """No other call would fare better."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    environ = {"OPENAI_API_KEY": CANARY}
    live = registry.connect_live("openai", environ=environ, transport=httpx.MockTransport(fail))
    with pytest.raises(ProviderError, match="certificate"):
        live.ask(CHAT, "m", BODY, 1.0)


# --- the first call -------------------------------------------------------------------------------


def test_the_first_call_says_whose_key_it_is() -> None:
    """A list of models is free; a server that is not a simulator does not pass for one, loopback or not."""
    with hostile(reply({"object": "list", "data": []}, openai_organization="org-7")) as server:
        live = wire(server)
        start = live.start("gpt-x")
        live.close()
    assert (start.scope, start.is_simulated) == (f"openai/127.0.0.1:{server.port}/org-7/-", False)
    assert [(seen.method, seen.path) for seen in server.requests] == [("GET", "/v1/models")]


def test_a_server_without_a_list_of_models_is_taken_as_it_is() -> None:
    """Few compatible servers have all of the API."""
    with hostile(reply({"detail": "Not Found"}, 404)) as server:
        live = wire(server)
        assert not live.start("m").is_simulated
        live.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, error("bad key", code="invalid_api_key")),
        (400, {"code": "invalid argument", "error": "Incorrect API key"}),
    ],
)
def test_a_refused_key_is_known_at_the_first_call(status: int, body: Any) -> None:
    """Before anything is asked; xAI says it with a 400."""
    with hostile(reply(body, status)) as server:
        live = wire(server)
        with pytest.raises(AccessError, match="OPENAI_API_KEY was refused"):
            live.start("m")
        live.close()


def test_a_server_that_wants_a_key_where_none_is_set_says_so() -> None:
    """The message names the variable to set."""
    with hostile(reply({"error": "Unauthorized"}, 401)) as server:
        live = registry.connect_live("vllm", environ={"VLLM_BASE_URL": server.url})
        for call in (lambda: live.start("m"), lambda: live.ask(CHAT, "m", BODY, 5.0)):
            with pytest.raises(AccessError, match="VLLM_API_KEY is not set"):
                call()
        live.close()
