"""A server asked call by call: how long one call takes, what it says it waits for, and what cannot be read."""

from __future__ import annotations

import json
import math
import time
from threading import Event

import pytest

from batchpond_work import WorkError
from batchpond_work.claims import row_of
from batchpond_work.server import Server
from batchpond_work.settings import Settings
from tests.rigs.hostile_server import Act, HostileServer, drip, hostile, reply

LINE = json.dumps({"custom_id": "a", "url": "/v1/chat/completions", "body": {"model": "m"}}).encode()
ANSWER = reply({"choices": []})


def asked(server: HostileServer, **settings: float) -> tuple[dict[str, bytes], str | None]:
    """Ask for one answer; returns the rows that came and why one is lacking."""
    rows: dict[str, bytes] = {}
    engine = Server(server.url, "", Settings(engine=server.url, **settings))  # type: ignore[arg-type]
    try:
        why = engine.answer({"a": LINE}, rows.__setitem__, Event())
    except WorkError as error:
        why = error.message
    finally:
        engine.end()
    return rows, why


def test_a_call_has_its_time_whole_however_its_answer_drips_in() -> None:
    """Each byte comes in time and the answer does not: the call ends, and another is made."""
    head = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n"
    with hostile(drip(head, b" ", 0.05, 20.0), ANSWER) as server:
        began_s = time.monotonic()
        rows, why = asked(server, timeout=0.5, tries=2)
        assert (list(rows), why, server.posts()) == (["a"], None, 2)
        assert time.monotonic() - began_s < 10


def test_a_body_in_another_encoding_than_it_says_is_tried_again() -> None:
    """What cannot be unpacked is no answer and no end of the worker."""
    with hostile(reply(b"no gzip", Content_Encoding="gzip"), ANSWER) as server:
        assert list(asked(server, tries=2)[0]) == ["a"]


@pytest.mark.parametrize(("text", "least_s"), [("1.5", 1.5), ("0", 0.2), ("nan", 0.2), ("Fri, 01 Jan 2038", 0.2)])
def test_a_wait_is_kept_to_and_is_never_none(text: str, least_s: float) -> None:
    """Whatever stands there, the next try is not made at once."""
    refusal: Act = reply({}, status=429, Retry_After=text)
    with hostile(refusal, ANSWER) as server:
        began_s = time.monotonic()
        assert list(asked(server, tries=2)[0]) == ["a"]
        assert time.monotonic() - began_s >= least_s


def test_a_number_beyond_all_numbers_is_written_as_null() -> None:
    """1e999 is JSON that reads as infinity, which is none: a row with it would be read by nobody."""
    row = row_of("a", response={"body": {"logprob": -math.inf, "of": [math.nan, 1.5]}})
    assert json.loads(row, parse_constant=pytest.fail)["response"]["body"] == {"logprob": None, "of": [None, 1.5]}
