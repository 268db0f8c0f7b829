"""Requests inside a create call are found as a JSON parser finds them, in bounded memory."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond_sim.anthropic.batches import InboxError, JsonError, RequestsError, Rules, Taken, take

RULES = Rules(re.compile(r"^[a-z0-9]{1,8}$"), 8, 20, ("note",))

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_bodies = st.fixed_dictionaries(
    {"requests": st.dictionaries(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), st.dictionaries(st.text(), _values))},
    optional={"note": _values},
)


def taken(body: bytes, rules: Rules = RULES) -> tuple[Taken, list[dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        source, lines = Path(folder, "body"), Path(folder, "lines")
        source.write_bytes(body)
        found = take(source, lines, rules)
        return found, [json.loads(line) for line in lines.read_bytes().splitlines()]


@given(_bodies, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_any_body_gives_the_requests_that_a_json_parser_finds(body: Any, indent: Any, ascii_only: bool) -> None:
    wanted = [{"custom_id": name, "params": params} for name, params in body["requests"].items()]
    text = json.dumps({**body, "requests": wanted}, indent=indent, ensure_ascii=ascii_only)
    if not wanted or len(wanted) > 20:
        with pytest.raises(RequestsError):
            taken(text.encode())
        return
    found, lines = taken(text.encode())
    assert lines == wanted
    assert (found.n_requests, found.first_custom_id) == (len(wanted), wanted[0]["custom_id"])


_GOOD = (
    b'{"note": [1, "x]"], "requests": [{"custom_id": "a", "params": {"t": "}\\"{"}}, {"custom_id": "b", "params": {}}]}'
)


@given(st.integers(0, len(_GOOD) - 1), st.binary(min_size=0, max_size=2))
def test_damaged_bodies_are_refused_or_are_still_json(at: int, noise: bytes) -> None:
    body = _GOOD[:at] + noise + _GOOD[at + 1 :]
    try:
        _, lines = taken(body)
    except InboxError:
        return
    assert lines == [
        {"custom_id": request["custom_id"], "params": request["params"]} for request in json.loads(body)["requests"]
    ]


@given(st.binary(max_size=60))
def test_any_bytes_are_taken_or_refused(body: bytes) -> None:
    with pytest.raises(InboxError):
        taken(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b"nul",
        b'{"requests":[{"custom_id":"a","params":{}}}',
        b'{"requests":[{"custom_id":"a","params":{}}],}',
        b'{"a" 1}',
    ],
)
def test_what_is_no_json_object_is_named_as_such(body: bytes) -> None:
    with pytest.raises(JsonError):
        taken(body)


def test_one_request_too_many_is_refused() -> None:
    body = {"requests": [{"custom_id": f"r{i}", "params": {}} for i in range(21)]}
    with pytest.raises(RequestsError, match="List should have at most 20 items after validation, not 21"):
        taken(json.dumps(body).encode())


def test_memory_does_not_grow_with_the_body(tmp_path: Path) -> None:
    source = tmp_path / "body"
    with source.open("wb") as file:
        file.write(b'{"requests":[')
        for i in range(20_000):
            comma = b"," if i else b""
            file.write(comma + b'{"custom_id":"%d","params":{"text":"%b"}}' % (i, b"x" * 1000))
        file.write(b"]}")
    tracemalloc.start()
    try:
        found = take(source, tmp_path / "lines", Rules(RULES.custom_id, 8, 100_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.n_requests == 20_000
    assert source.stat().st_size > 20_000_000
    assert peak < 8_000_000
