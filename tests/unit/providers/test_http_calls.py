"""The HTTP client's calls against servers that reset, hang, drip and redirect, on real sockets; and its key."""

from __future__ import annotations

import logging
import time
import traceback
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.clock import SystemClock
from batchpond.errors import AccessError, BatchpondError, ProviderError, UsageError
from batchpond.model import ErrorClass, Unclear
from batchpond.providers.http.client import HttpClient, HttpError
from batchpond.providers.http.errors import (
    RETRY_AFTER_MAX_S,
    AckRule,
    Answer,
    RetryPolicy,
    judge_create,
    retry_after_s,
)
from batchpond.providers.http.keys import checked_base, environment_proxy
from tests.rigs.clock import ManualClock
from tests.rigs.hostile_server import drip, eof, hang, hostile, raw, reply, reset
from tests.rigs.http import CANARY, ENVELOPE, START, client

AMBIGUOUS = {
    "reset": reset,
    "eof": eof,
    "hang": hang(0.8),
    "half a head": raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "short body": raw(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"id":"batch_1"'),
    "not http": raw(b"hello\r\n\r\n"),
    "408": reply(ENVELOPE, 408, x_request_id="r"),
    "409": reply(ENVELOPE, 409, x_request_id="r"),
    "425": reply(ENVELOPE, 425, x_request_id="r"),
    "500": reply(ENVELOPE, 500, x_request_id="r"),
    "502 html": reply(b"<html>bad gateway</html>", 502, "text/html"),
    "503": reply(ENVELOPE, 503, x_request_id="r"),
    "200 html": reply(b"<html>log in</html>", 200, "text/html"),
    "200 no id": reply({"object": "batch"}),
    "200 id null": reply({"id": None}),
    "200 id number": reply({"id": 7}),
    "200 list": reply([{"id": "x"}]),
    "204": reply(b"", 204),
    "301": reply(b"", 301, Location="https://elsewhere.example/v1/batches"),
    "307": reply(b"", 307, Location="/v1/other"),
    "400 without request id": reply(ENVELOPE, 400),
    "400 detail": reply({"detail": "no"}, 400, x_request_id="r"),
    "403 html": reply(b"<html>blocked</html>", 403, "text/html", x_request_id="r"),
    "407": reply(ENVELOPE, 407, x_request_id="r"),
    "429 html": reply(b"slow down", 429, "text/html", x_request_id="r"),
    "418": reply(ENVELOPE, 418, x_request_id="r"),
}


def create(http: HttpClient, payload: object, deadline_s: float) -> Answer | Unclear:
    """Make the one POST that creates, and return what it comes to."""
    return judge_create(http.ask("/batches", orjson.dumps(payload), deadline_s), AckRule())


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_every_ambiguous_answer_to_a_create_is_unclear_after_exactly_one_post(name: str) -> None:
    """Neither a clear yes nor a clear no: one POST leaves, and no exception comes back."""
    with hostile(AMBIGUOUS[name], reply({"id": "batch_2"})) as server:
        answer = create(client(server.url, SystemClock()), {"a": 1}, 0.5)
        assert isinstance(answer, Unclear)
        assert answer.reason
        time.sleep(0.05)
        assert len(server.requests) == 1


def test_a_refused_connection_is_unclear_too() -> None:
    """Even a create that cannot have left is left to the protocol, which proves absence."""
    with hostile(eof) as server:
        url = server.url
    assert isinstance(create(client(url), {}, 1), Unclear)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 415, 422, 429, 529])
def test_the_providers_own_refusal_is_definite(status: int) -> None:
    """Envelope and request id make a no; 429 and 529 need the envelope alone."""
    headers = {} if status in (429, 529) else {"x_request_id": "req_1"}
    with hostile(reply(ENVELOPE, status, **headers)) as server:
        answer = create(client(server.url), {}, 1)
        assert isinstance(answer, Answer)
        assert answer.status_code == status
        assert server.posts() == 1


def test_an_acknowledgement_is_returned() -> None:
    """2xx with a JSON id is a yes, and the request was as asked."""
    with hostile(reply({"id": "batch_1"})) as server:
        answer = create(client(server.url), {"x": "é"}, 1)
        assert isinstance(answer, Answer)
        assert answer.json == {"id": "batch_1"}
        seen = server.requests[0]
        assert (seen.method, seen.path, seen.body) == ("POST", "/v1/batches", '{"x":"é"}'.encode())
        assert seen.headers["authorization"] == f"Bearer {CANARY}"
        assert seen.headers["accept-encoding"] == "identity"
        assert seen.headers["user-agent"].startswith("batchpond/")


@pytest.mark.parametrize(
    "act",
    [
        drip(b"HTTP/1.1 200 OK\r\nX-A: ", b"a", 0.05, 60),
        drip(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b" ", 0.05, 60),
    ],
    ids=["in the head", "in the body"],
)
def test_a_create_ends_at_its_total_deadline_though_bytes_keep_coming(act: object) -> None:
    """A byte now and then keeps a socket timeout from firing, not the deadline."""
    with hostile(act) as server:  # type: ignore[arg-type]
        answer = create(client(server.url, SystemClock()), {}, 0.4)
        assert isinstance(answer, Unclear)
    assert server.n_left == 1


def test_a_safe_call_is_repeated_for_named_reasons_on_the_clock() -> None:
    """Connection loss, 408, 425, 429, 5xx and 529 are repeated, in no real time on a manual clock."""
    acts = [reset, reply(b"", 408), reply(b"", 425), reply(b"x", 529), reply({"object": "list", "data": []})]
    clock = ManualClock(START)
    with hostile(*acts) as server:
        answer = client(server.url, clock).request_json("GET", "/batches", params={"limit": 1})
        assert answer.json == {"object": "list", "data": []}
        assert len(server.requests) == 5
        assert server.requests[0].path == "/v1/batches?limit=1"
    assert 1 < clock.monotonic_s() < 200


def test_a_safe_call_gives_up_after_its_attempts() -> None:
    """Attempts are bounded, and the error says that trying later is safe."""
    with hostile(reply(b"<html>", 502, "text/html")) as server:
        with pytest.raises(HttpError, match="HTTP 502") as caught:
            client(server.url, retries=RetryPolicy(attempts=3)).request_json("GET", "/x")
        assert len(server.requests) == 3
        assert caught.value.hint is not None
        assert caught.value.error_class is ErrorClass.TRANSIENT


@pytest.mark.parametrize(("value", "expected_s"), [("120", 120), ("1e9", 86_400), ("-5", 0), ("soon", 1)])
def test_retry_after_is_honoured_within_bounds(value: str, expected_s: float) -> None:
    """The server's wait counts; more than a day is cut, negative is none, nonsense is back-off."""
    clock = ManualClock(START)
    with hostile(reply(ENVELOPE, 429, Retry_After=value), reply({})) as server:
        client(server.url, clock, retries=RetryPolicy(total_s=9e5, wait_max_s=RETRY_AFTER_MAX_S)).request_json(
            "GET", "/x"
        )
    assert expected_s * 0.5 <= clock.monotonic_s() <= expected_s + 1


def test_waits_never_pass_the_total_deadline() -> None:
    """A wait that would end after the deadline is not begun."""
    clock = ManualClock(START)
    with hostile(reply(ENVELOPE, 429, Retry_After="600")) as server:
        with pytest.raises(HttpError) as caught:
            client(server.url, clock, retries=RetryPolicy(10, 1000, wait_max_s=RETRY_AFTER_MAX_S)).request_json(
                "GET", "/x"
            )
        assert len(server.requests) == 2
        assert caught.value.retry_after_s == 600
    assert clock.monotonic_s() < 1000


@given(st.text(st.characters(codec="latin-1"), max_size=40))
def test_any_retry_after_text_gives_a_bounded_wait(value: str) -> None:
    """No header value raises, and none gives more than a day."""
    for name in ("retry-after", "retry-after-ms"):
        wait_s = retry_after_s({name: value}, START)
        assert wait_s is None or 0 <= wait_s <= RETRY_AFTER_MAX_S


def test_retry_after_reads_dates_and_milliseconds() -> None:
    """HTTP dates count from now, milliseconds come first, and a past date is no wait."""
    soon = format_datetime(START + timedelta(seconds=30), usegmt=True)
    assert retry_after_s({"retry-after": soon}, START) == 30
    assert retry_after_s({"retry-after": soon}, START + timedelta(hours=1)) == 0
    assert retry_after_s({"retry-after-ms": "1500", "retry-after": "9"}, START) == 1.5
    assert retry_after_s({"retry-after": "inf"}, START) == RETRY_AFTER_MAX_S
    assert retry_after_s({"retry-after": "nan"}, START) is None


def test_an_empty_account_is_not_asked_again() -> None:
    """429 `insufficient_quota` is a matter of billing, not of waiting."""
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota", "type": "x"}}
    with hostile(reply(body, 429)) as server:
        with pytest.raises(HttpError) as caught:
            client(server.url).request_json("GET", "/x")
        assert len(server.requests) == 1
        assert caught.value.error_class is ErrorClass.BILLING


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_an_access_error_that_names_the_variable(status: int) -> None:
    """Asked once, named, with a hint."""
    with hostile(reply(ENVELOPE, status)) as server:
        with pytest.raises(AccessError, match="OPENAI_API_KEY") as caught:
            client(server.url, key_name="OPENAI_API_KEY").request_json("GET", "/x")
        assert len(server.requests) == 1
        assert caught.value.hint is not None


def test_a_web_page_with_status_200_is_an_error() -> None:
    """A login page is no answer."""
    with hostile(reply(b"<html>", 200, "text/html")) as server, pytest.raises(ProviderError, match="JSON"):
        client(server.url).request_json("GET", "/x")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_errors_and_the_other_host_hears_nothing(status: int) -> None:
    """The key never follows a Location header, and the error names the host it led to."""
    with hostile(reply({})) as thief:
        target = f"http://localhost:{thief.port}/v1/x"
        with hostile(reply(b"", status, Location=target)) as server:
            wire = client(server.url)
            with pytest.raises(ProviderError, match="localhost"):
                wire.request_json("GET", "/x")
            assert isinstance(create(wire, {}, 1), Unclear)
        assert thief.requests == []


def test_a_download_may_be_redirected_to_a_listed_host_without_the_key(tmp_path: Path) -> None:
    """Signed storage URLs work where the descriptor lists them, and see no credentials."""
    with hostile(reply(b"row\n", content_type="application/octet-stream")) as storage:
        target = f"http://localhost:{storage.port}/signed?x=1"
        with hostile(reply(b"", 302, Location=target)) as server:
            got = client(server.url, content_hosts=["localhost"]).download("/files/f/content", tmp_path / "a")
            assert got is not None
            assert (tmp_path / "a").read_bytes() == b"row\n"
            with pytest.raises(ProviderError, match="redirect to localhost"):
                client(server.url).download("/files/f/content", tmp_path / "b")
        assert len(storage.requests) == 1
        assert CANARY not in str(storage.requests[0])


def test_the_key_cannot_leave_for_another_origin() -> None:
    """The guard at the last step stops a request that carries the key to any other address."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    wire = client("https://api.example/v1", transport=httpx.MockTransport(answer))
    wire.request_json("GET", "/x")
    inner = wire._client
    for url in ("https://evil.example/", "https://api.example:8443/v1", "http://api.example/v1"):
        with pytest.raises(AccessError, match="stopped"):
            inner.get(url, headers={"Authorization": f"Bearer {CANARY}"})
    for path in ("//evil.example/x", "@evil.example/", ".evil.example/"):
        with pytest.raises(ProviderError):
            wire.request_json("GET", path)
    assert [request.url.host for request in sent] == ["api.example"]


@pytest.mark.parametrize(
    "url",
    [
        "http://api.openai.com/v1",
        "ftp://x/",
        "api.openai.com",
        "",
        "https://user:pw@host/v1",
        "https://h/v1?key=1",
        "https://h/v1#x",
        "http://127.0.0.1.evil.example/v1",
        "http://169.254.169.254/",
        "https://ho st/",
        "http://[::",
    ],
)
def test_unsafe_base_urls_are_refused(url: str) -> None:
    """Only https, or http on this machine, without credentials in the address."""
    with pytest.raises(UsageError):
        checked_base(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/openai/v1", "http://[::1]:9/v1", "http://localhost/v1/"])
def test_this_machine_may_be_called_without_tls(url: str) -> None:
    """A simulator needs no certificate."""
    assert checked_base(url)[1].is_loopback


def test_proxies_come_from_the_environment_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTPS_PROXY and NO_PROXY count; loopback is never proxied."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    assert environment_proxy(checked_base("https://api.example/v1")[1]) == "http://proxy.example:3128"
    assert environment_proxy(checked_base("https://direct.example/v1")[1]) is None
    assert environment_proxy(checked_base("http://127.0.0.1:1/v1")[1]) is None


# --- secrets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act", [reset, eof, hang(0.6), reply(b"", 302, Location="https://e.example"), reply(b"x", 401)]
)
def test_no_exception_shows_or_holds_the_key(act: object, caplog: pytest.LogCaptureFixture) -> None:
    """Neither message, repr, rendered traceback, context chain nor log has it."""
    caplog.set_level(logging.DEBUG)
    with hostile(act) as server, pytest.raises(BatchpondError) as caught:  # type: ignore[arg-type]
        client(server.url, retries=RetryPolicy(attempts=2)).request_json("GET", "/x")
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(error.hint) + caplog.text
    assert CANARY not in shown
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_key_echoed_by_the_server_is_removed_from_the_message() -> None:
    """Some servers quote the key they refuse."""
    body = {"error": {"message": f"Incorrect API key provided: {CANARY}.", "code": "invalid_api_key"}}
    with hostile(reply(body, 401)) as server, pytest.raises(AccessError) as caught:
        client(server.url).request_json("GET", "/x")
    assert CANARY not in str(caught.value)
    assert "Incorrect API key" in str(caught.value)
