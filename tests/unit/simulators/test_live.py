"""Live calls to the simulators: every fault as the official SDKs meet it, rate limits, and what the ledger counts."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond_sim import SimulatorError
from batchpond_sim.host.server import PROVIDERS, Running, running
from batchpond_sim.world.faults import parse_fault
from batchpond_sim.world.limits import Limiter, Quota, Scarce, Window, duration, parse_limit, per_second_headers
from batchpond_sim.world.world import BODIES_MAX, Settings, World, body_id
from tests.rigs.clock import ManualClock
from tests.rigs.live import AUTH, KEY, SDKS, TEXT, ask, body_of, outcome, sdk_caller, url_of
from tests.rigs.sim_providers import LIVE, ROOT, SIMULATED
from tests.rigs.sim_transport import SimulatorTransport, world_at
from tests.rigs.simulator import FIRST, START

ENDPOINTS = tuple(LIVE)


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with running(Settings()) as sim:
        yield sim


@pytest.fixture
def sim(shared: Running) -> Iterator[Running]:
    yield shared
    shared.world.clear_faults()
    shared.world.clear_limits()


class Room:
    """The endpoints of one in-process world on a clock that only moves when told to."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world = world
        self.clock = clock
        self.http = httpx.Client(transport=SimulatorTransport(world, clock), base_url=ROOT, timeout=60)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    clock = ManualClock(START)
    with world_at(tmp_path, Settings(), clock) as world:
        here = Room(world, clock)
        with here.http:
            yield here


# -- faults, met by the official SDKs ------------------------------------------------------------

BROKEN = [
    ("reset_before", "connection", 0), ("refuse", "connection", 0), ("hang_before=0.1", "connection", 0),
    ("reset_after", "connection", 1), ("hang_after=0.1", "connection", 1),
    ("status=429", "status 429", 0), ("status=529", "status 529", 0), ("status=503", "status 503", 0),
    ("status", "status 500", 0), ("status=401", "status 401", 0), ("retry_after=7", "status 429", 0),
    ("billing=402", "status 402", 0), ("html", "status 502", 0), ("html=200", "unreadable", 0),
    ("status_after=500", "status 500", 1), ("html_after=502", "status 502", 1), ("html_after=200", "unreadable", 1),
    ("short", "connection", 1), ("reset_at=60", "connection", 1), ("truncate_mid=0.5", "unreadable", 1),
    ("malformed", "unreadable", 1), ("gzip=unmarked", "unreadable", 1),
    ("gzip", "ok", 1), ("content_type=none", "ok", 1), ("keepalive=0.1", "ok", 1), ("delay=0.1", "ok", 1),
    ("slow=100000", "ok", 1), ("no_usage", "ok", 1), ("other_model", "ok", 1), ("u2028", "ok", 1),
    ("lone_surrogate", "ok", 1), ("think", "ok", 1), ("empty_text", "ok, but empty", 1),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "wanted", "billed"), BROKEN, ids=[row[0] for row in BROKEN])
@pytest.mark.parametrize("name", SDKS)
def test_an_sdk_meets_a_fault_as_it_would_the_real_thing(
    sim: Running, name: str, fault: str, wanted: str, billed: int
) -> None:
    before = sim.world.ledger.live_summary()
    sim.world.add_fault(f"live@1:{fault}")
    with sdk_caller(name, sim) as call:
        assert outcome(call) == wanted
        after = sim.world.ledger.live_summary()
        assert after["n_asked"] - before["n_asked"] == 1
        assert after["n_billed"] - before["n_billed"] == billed
        assert outcome(call) == "ok"


def test_an_empty_body_and_an_answer_cut_at_a_line_border_are_http_200_with_nothing(room: Room) -> None:
    for fault in ("empty_body", "truncate=0.9"):
        room.world.add_fault(f"live@1:{fault}")
        answer = ask(room.http, "openai")
        assert (answer.status_code, answer.content) == (200, b"")
    assert room.world.ledger.live.n_billed == 2


def test_a_slow_or_late_answer_outlasts_an_impatient_client(sim: Running) -> None:
    for fault in ("slow=20", "delay=5", "keepalive=5"):
        sim.world.add_fault(f"live@1:{fault}")
        with httpx.Client(base_url=sim.root_url, timeout=0.15) as http, pytest.raises(httpx.ReadTimeout):
            ask(http, "compatible")


def test_blank_lines_keep_a_connection_alive_and_the_answer_still_parses(sim: Running) -> None:
    sim.world.add_fault("live@1:keepalive=0.6")
    start = time.monotonic()
    with httpx.Client(base_url=sim.root_url, timeout=0.4) as http:
        answer = ask(http, "compatible")
    assert time.monotonic() - start > 0.5
    assert answer.text.startswith("\n\n\n{")
    assert answer.json()["choices"]


def test_a_storm_hits_every_kth_call_of_a_range(room: Room) -> None:
    room.world.add_fault("live@3-9/3:status=529")
    assert [ask(room.http, "openai").status_code for _ in range(12)] == [200, 200, 529] * 3 + [200] * 3
    with pytest.raises(SimulatorError, match="every 0th"):
        parse_fault("live@1-/0:status=529")
    assert not parse_fault("live@2-/2:status").shifted(5).hits(parse_fault("live:status").op, 8, 8)


# -- faults in what is said ----------------------------------------------------------------------

TEXT_AT = {
    "openai": ("choices", 0, "message", "content"), "anthropic": ("content", 0, "text"),
    "gemini": ("candidates", 0, "content", "parts", 0, "text"), "ollama": ("message", "content"),
    "compatible": ("choices", 0, "message", "content"), "together": ("choices", 0, "message", "content"),
}  # fmt: skip
FINISH_AT = {
    "openai": ("choices", 0, "finish_reason"), "anthropic": ("stop_reason",),
    "gemini": ("candidates", 0, "finishReason"), "ollama": ("done_reason",),
    "compatible": ("choices", 0, "finish_reason"), "together": ("choices", 0, "finish_reason"),
}  # fmt: skip


def at(body: object, way: tuple[str | int, ...]) -> object:
    """Return what stands at the end of a way into a JSON body, None where there is nothing."""
    for step in way:
        try:
            body = body[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return body


@pytest.mark.parametrize("name", ENDPOINTS)
def test_every_endpoint_names_the_better_sample_and_repeats_itself(room: Room, name: str) -> None:
    first, again = ask(room.http, name), ask(room.http, name)
    assert FIRST in str(at(first.json(), TEXT_AT[name]))
    assert at(again.json(), TEXT_AT[name]) == at(first.json(), TEXT_AT[name])


@pytest.mark.parametrize("name", ENDPOINTS)
def test_faults_in_what_is_said_hold_for_every_endpoint(room: Room, name: str) -> None:
    def said(fault: str) -> dict[str, object]:
        room.world.add_fault(f"live@1:{fault}")
        answer = ask(room.http, name)
        assert answer.status_code == 200
        body: dict[str, object] = answer.json()
        return body

    whole = said("delay=1")
    for fault in ("no_choices", "null_content"):
        assert at(said(fault), TEXT_AT[name]) is None
    assert len(whole) - len(said("no_usage")) == (2 if name == "ollama" else 1)
    assert "another-model" in json.dumps(said("other_model"))
    assert at(said("truncated_text"), FINISH_AT[name]) in ("length", "max_tokens", "MAX_TOKENS")
    assert at(said("finish=odd"), FINISH_AT[name]) == "odd"
    assert not at(said("empty_text"), TEXT_AT[name])
    assert FIRST not in str(at(said("refusal"), TEXT_AT[name]))
    if name in ("openai", "compatible", "ollama", "together"):
        assert at(said("finish=null"), FINISH_AT[name]) is None
        assert str(at(said("think"), TEXT_AT[name])).startswith("<think>\n")
        assert FIRST in str(at(said("think=closed"), TEXT_AT[name])).partition("</think>")[2]
        assert "</think>" not in str(at(said("think=unclosed"), TEXT_AT[name]))
    room.world.add_fault("live@1:nan")
    assert b"NaN" in ask(room.http, name).content


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_model_that_is_none_is_an_error_of_the_endpoints_own_kind(room: Room, name: str) -> None:
    body = body_of(name) | ({} if name == "gemini" else {"model": "unknown-9"})
    answer = room.http.post(url_of(name).replace(LIVE["gemini"].model, "unknown-9"), json=body, headers=AUTH)
    assert answer.status_code == 404
    is_text = isinstance(answer.json()["error"], str)
    assert is_text == (name in ("ollama", "compatible"))
    assert room.world.ledger.live.n_billed == 0


def test_a_key_that_is_revoked_on_the_way_is_refused_from_then_on(room: Room) -> None:
    room.world.add_fault("live@3-:status=401")
    assert [ask(room.http, "openai").status_code for _ in range(4)] == [200, 200, 401, 401]


# -- rate limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENDPOINTS)
def test_beyond_a_limit_a_call_is_refused_and_not_billed_until_the_time_told_has_passed(room: Room, name: str) -> None:
    room.world.add_limit("*:rpm=6,burst=2")
    answers = [ask(room.http, name) for _ in range(3)]
    refusal = 503 if name == "ollama" else 429
    assert [answer.status_code for answer in answers] == [200, 200, refusal]
    assert room.world.ledger.live.n_billed == 2
    wait_s = told_s(name, answers[2])
    assert wait_s == pytest.approx(10, abs=0.1)
    room.clock.advance(wait_s - 1)
    assert ask(room.http, name).status_code == refusal
    room.clock.advance(1.1)
    assert ask(room.http, name).status_code == 200
    room.world.clear_limits()
    assert "ratelimit" not in str(ask(room.http, name).headers)
    assert "tokenlimit" not in str(ask(room.http, name).headers)


def told_s(name: str, answer: httpx.Response) -> float:
    """Return how long a refusal says to wait; Ollama says nothing."""
    match name:
        case "gemini":
            (info,) = (row for row in answer.json()["error"]["details"] if row["@type"].endswith("RetryInfo"))
            return float(info["retryDelay"].removesuffix("s"))
        case "ollama":
            assert "retry-after" not in answer.headers
            return 10.0
        case "together":
            return float(answer.headers["x-ratelimit-reset"])
        case _:
            return float(answer.headers["retry-after"])


def test_headers_tell_what_is_left_as_each_provider_writes_it(room: Room) -> None:
    room.world.add_limit("*:rpm=60,tpm=6000")
    told = [ask(room.http, "openai") for _ in range(2)][1].headers
    assert told["x-ratelimit-limit-requests"] == "60"
    assert told["x-ratelimit-remaining-requests"] == "58"
    assert told["x-ratelimit-reset-requests"] == "2s"
    assert told["x-ratelimit-limit-tokens"] == "6000"
    assert 5000 < int(told["x-ratelimit-remaining-tokens"]) < 6000
    assert "retry-after" not in told
    told = ask(room.http, "anthropic").headers
    assert told["anthropic-ratelimit-requests-remaining"] == "59"
    assert told.get_list("anthropic-ratelimit-requests-limit") == ["60"]
    reset = datetime.fromisoformat(told["anthropic-ratelimit-requests-reset"])
    assert 0 < (reset - room.clock.now()).total_seconds() < 3
    assert "anthropic-ratelimit-input-tokens-limit" in told


def test_token_limits_count_what_was_used_and_keys_and_models_have_their_own(room: Room) -> None:
    room.world.add_limit("gpt-4.1-mini:tpm=200")
    n_before = 0
    while (answer := ask(room.http, "openai")).status_code == 200:
        n_before += answer.json()["usage"]["total_tokens"]
    assert 100 < n_before < 400
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("tokens", "rate_limit_exceeded")
    assert "tokens per min (TPM): Limit 200" in error["message"]
    other = {**AUTH, "authorization": "Bearer another"}
    assert room.http.post(url_of("openai"), json=body_of("openai"), headers=other).status_code == 200
    another_model = body_of("openai") | {"model": "gpt-4.1"}
    assert room.http.post(url_of("openai"), json=another_model, headers=AUTH).status_code == 200


def test_concurrent_calls_are_limited_while_answers_are_on_their_way() -> None:
    with running(Settings(live_limits=("*:concurrent=2",), live_latency_s=(0.3, 0.3))) as sim:
        seen: list[int] = []

        def one() -> None:
            with httpx.Client(base_url=sim.root_url) as http:
                seen.append(ask(http, "compatible").status_code)

        threads = [threading.Thread(target=one) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == [200, 200, 429, 429, 429, 429]
        with httpx.Client(base_url=sim.root_url) as http:
            assert ask(http, "compatible").status_code == 200


def test_an_sdk_that_waits_as_told_gets_through(sim: Running) -> None:
    """Four answers take three refills of the bucket; who waits as told is refused once before each of them at most."""
    sim.world.add_limit("*:rps=10,burst=1")
    before = sim.world.ledger.live_summary()
    model = LIVE["openai"].model
    with openai.OpenAI(api_key=KEY, base_url=sim.base_url, max_retries=3) as client:
        start = time.monotonic()
        for _ in range(4):
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": TEXT}])
    assert time.monotonic() - start > 0.25
    after = sim.world.ledger.live_summary()
    assert after["n_billed"] == before["n_billed"] + 4
    assert after["n_asked"] <= before["n_asked"] + 4 + 3


@given(rpm=st.integers(1, 600), gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_no_more_is_let_in_than_the_bucket_and_its_refill(rpm: int, gaps: list[float]) -> None:
    limiter = Limiter((parse_limit(f"*:rpm={rpm},burst=3"),))
    now = n_let_in = 0.0
    for gap in gaps:
        now += gap
        quota = limiter.admit("openai", "k", "m", 1, now)
        assert quota is not None
        n_let_in += quota.scarce is None
        if quota.scarce is not None:
            assert quota.scarce is Scarce.REQUESTS
            again = limiter.admit("openai", "k", "m", 1, now + quota.retry_s + 1e-6)
            assert again is not None
            assert again.scarce is None
            now, n_let_in = now + quota.retry_s + 1e-6, n_let_in + 1
    assert n_let_in <= 3 + now * rpm / 60 + 1e-3


@pytest.mark.parametrize("spec", ["rpm", "*:", "*:rpm=0", "*:rpm=nan", "*:rpx=3", ":rpm=3", "*:tpm=-1"])
def test_a_limit_that_is_none_says_what_is_wrong(spec: str) -> None:
    with pytest.raises(SimulatorError) as caught:
        parse_limit(spec)
    assert spec in caught.value.message
    assert caught.value.hint


def test_times_and_per_second_limits_are_written_as_providers_write_them() -> None:
    assert [duration(s) for s in (0.12, 1, 7.66, 360, 3602.5)] == ["120ms", "1s", "7.66s", "6m0s", "1h0m2.5s"]
    quota = Quota("m", Window(600, 590, 1.0, 60.0), Window(60_000, 10, 60.0, 60.0), Scarce.TOKENS, 2.4)
    assert dict(per_second_headers(quota)) == {
        "x-ratelimit-limit": "10", "x-ratelimit-remaining": "10", "x-tokenlimit-limit": "1000",
        "x-tokenlimit-remaining": "10", "x-ratelimit-reset": "3",
    }  # fmt: skip


def test_limits_are_steered_over_http_and_outlive_a_restart(tmp_path: Path) -> None:
    with running(Settings(), tmp_path) as sim, httpx.Client(base_url=sim.root_url) as http:
        answer = http.post("/_sim/limits", json={"specs": ["gpt-*:rpm=60", "gpt-4.1-mini:rpm=6,burst=1"]})
        assert [limit["rpm"] for limit in answer.json()["limits"]] == [6, 60]
        assert http.post("/_sim/limits", json={"spec": "x:y=1"}).status_code == 400
        assert [ask(http, "openai").status_code for _ in range(2)] == [200, 429]
    with running(Settings(), tmp_path) as sim, httpx.Client(base_url=sim.root_url) as http:
        assert len(http.get("/_sim/limits").json()["limits"]) == 2
        assert http.delete("/_sim/limits").json()["limits"] == []
        assert [ask(http, "openai").status_code for _ in range(2)] == [200, 200]


# -- the ledger ----------------------------------------------------------------------------------


def test_each_body_is_counted_as_asked_billed_and_answered(room: Room) -> None:
    room.world.add_fault("live@1:reset_after")
    room.world.add_fault("live@2:status=503")
    with pytest.raises(httpx.ReadError):
        ask(room.http, "openai")
    assert [ask(room.http, "openai").status_code for _ in range(2)] == [503, 200]
    ask(room.http, "openai", "another question")
    body = json.dumps(dict(reversed(body_of("openai").items()))).encode()
    twice = room.world.ledger.live_bodies[body_id(url_of("openai"), body)]
    assert (twice.n_asked, twice.n_billed, twice.n_answered) == (3, 2, 1)
    told = room.http.get("/_sim/ledger").json()["live"]
    assert (told["n_asked"], told["n_billed"], told["n_answered"], told["n_bodies"]) == (4, 3, 2, 2)
    assert (told["n_duplicates"], told["n_billed_most"]) == (1, 2)
    (row,) = map(json.loads, room.http.get("/_sim/live?min_billed=2").text.splitlines())
    assert row == {"body": body_id(url_of("openai"), body), "n_asked": 3, "n_billed": 2, "n_answered": 1}
    assert len(room.http.get("/_sim/live").text.splitlines()) == 2


def test_counts_and_totals_outlive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with world_at(tmp_path, Settings(), clock) as world, Room(world, clock).http as http:
        for name in ENDPOINTS:
            ask(http, name)
            ask(http, name)
        before = world.ledger.summary()
    with world_at(tmp_path, Settings(), clock) as world:
        assert world.ledger.summary() == before
    assert before["billed"]["n_requests"] == before["n_requests"] == 2 * len(ENDPOINTS)
    assert before["live"]["n_duplicates"] == len(ENDPOINTS)
    assert KEY.encode() not in (tmp_path / "ledger.jsonl").read_bytes()


def test_thousands_of_calls_are_a_short_line_each_and_no_object_beyond_their_counts(room: Room) -> None:
    n = 3_000
    for i in range(n):
        ask(room.http, "compatible", f"question {i}")
    assert room.world.ledger.path.stat().st_size / n < 450
    summary = room.world.ledger.live_summary()
    assert (summary["n_billed"], summary["n_bodies"], summary["n_duplicates"]) == (n, n, 0)
    assert not room.world.ledger.bills
    assert not room.world.ledger._open
    assert n < BODIES_MAX


def test_a_client_that_dies_in_a_request_is_counted_and_makes_no_noise(
    sim: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sim.world.ledger.live_summary()
    with socket.create_connection(("127.0.0.1", sim.port)) as plug:
        plug.sendall(b"POST /compatible/v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n{")
    deadline = time.monotonic() + 5
    while sim.world.ledger.live.n_asked == before["n_asked"] and time.monotonic() < deadline:
        time.sleep(0.01)
    after = sim.world.ledger.live_summary()
    assert after["n_asked"] == before["n_asked"] + 1
    assert (after["n_billed"], after["n_bodies"]) == (before["n_billed"], before["n_bodies"])
    assert capfd.readouterr().err == ""


class Bare(BaseHTTPRequestHandler):
    """Answers any call with nothing, as the standard library does it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def cost_s(url: str) -> float:
    """Return the CPU time of 200 live calls by four clients at once, theirs and the server's."""
    n_threads, n_each = 4, 50
    statuses: list[int] = []

    def work(k: int) -> None:
        with httpx.Client(base_url=url) as http:
            statuses.extend(ask(http, "compatible", f"speed {k} {i}").status_code for i in range(n_each))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(n_threads)]
    start = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * n_threads * n_each
    return time.process_time() - start


def test_a_live_call_costs_about_what_any_call_over_the_loopback_does(sim: Running) -> None:
    """At most three times the CPU time of calls to a server that does nothing (seen: 0.9)."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Bare) as bare:
        threading.Thread(target=bare.serve_forever, daemon=True).start()
        bare_s = cost_s(f"http://127.0.0.1:{bare.server_address[1]}")
        assert cost_s(sim.root_url) < 3 * bare_s
        bare.shutdown()


# -- the door ------------------------------------------------------------------------------------


def test_every_answer_says_that_it_is_simulated(room: Room) -> None:
    room.world.add_fault("live@2:status=500")
    answers = [ask(room.http, name) for name in ENDPOINTS]
    answers += [room.http.get(f"{path}/nothing", headers=AUTH) for path, _ in PROVIDERS.values()]
    answers += [room.http.get(path) for path in ("/_sim/ledger", "/_sim/requests", "/_sim/nothing", "/elsewhere")]
    assert [answer.headers.get("x-batchpond-simulator") for answer in answers] == ["1"] * len(answers)


def test_the_tables_of_endpoints_and_batch_providers_are_all_there_is() -> None:
    assert set(SIMULATED) | set(LIVE) <= set(PROVIDERS)
    assert {name: PROVIDERS[name][0] for name in LIVE} == {name: endpoint.path for name, endpoint in LIVE.items()}


# -- any OpenAI-compatible server ----------------------------------------------------------------


@pytest.fixture
def compatible(sim: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="none", base_url=sim.base_url_of("compatible"), max_retries=0) as client:
        yield client


@pytest.mark.parametrize(
    ("model", "member"),
    [("deepseek-reasoner", "reasoning_content"), ("gpt-oss-20b", "reasoning"), ("tiny-random", None)],
)
def test_thoughts_stand_where_the_models_name_says(compatible: openai.OpenAI, model: str, member: str | None) -> None:
    said = compatible.chat.completions.create(model=model, messages=[{"role": "user", "content": TEXT}])
    message = said.choices[0].message
    assert FIRST in (message.content or "")
    assert [name for name in ("reasoning_content", "reasoning") if name in (message.model_extra or {})] == (
        [member] if member else []
    )
    assert said.model == model


def test_thoughts_within_the_text_are_left_open_when_the_limit_is_reached(compatible: openai.OpenAI) -> None:
    def said(limit: int) -> tuple[str, str]:
        answer = compatible.chat.completions.create(
            model="qwq-32b-think", messages=[{"role": "user", "content": TEXT}], max_tokens=limit
        )
        return answer.choices[0].message.content or "", answer.choices[0].finish_reason

    text, finish = said(2000)
    assert text.startswith("<think>\n")
    assert FIRST in text.partition("</think>")[2]
    assert finish == "stop"
    text, finish = said(5)
    assert "</think>" not in text
    assert finish == "length"


def test_a_stream_is_the_same_answer_in_pieces_and_a_cut_one_never_finishes(
    sim: Running, compatible: openai.OpenAI
) -> None:
    def listen() -> tuple[str, str | None, bool]:
        text, finish, has_usage = "", None, False
        stream = compatible.chat.completions.create(
            model="tiny-random", messages=[{"role": "user", "content": TEXT}], stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        for event in stream:
            has_usage = has_usage or event.usage is not None
            for choice in event.choices:
                text, finish = text + (choice.delta.content or ""), choice.finish_reason or finish
        return text, finish, has_usage

    text, finish, has_usage = listen()
    assert (FIRST in text, finish, has_usage) == (True, "stop", True)
    sim.world.add_fault("live@1:truncate=0.5")
    assert listen()[1:] == (None, False)
    sim.world.add_fault("live@1:stream_error")
    with pytest.raises(openai.APIError, match="error"):
        listen()


def test_a_local_server_takes_any_key_unless_the_world_names_the_good_ones(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))
    with world_at(tmp_path, Settings(keys={"good": "p"}), clock) as world, Room(world, clock).http as http:
        url, body = url_of("compatible"), body_of("compatible")
        answers = [http.post(url, json=body, headers={"authorization": f"Bearer {key}"}) for key in ("bad", "good")]
        assert [answer.status_code for answer in answers] == [401, 200]
        assert answers[0].json() == {"error": "Invalid API key"}
