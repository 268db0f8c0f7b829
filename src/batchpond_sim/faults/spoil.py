"""Spoiling one live answer on purpose: what it says, its bytes, and how they arrive.

Answers are told apart by their members, so that one fault means the same for every provider.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from batchpond_sim.faults.delivery import packed
from batchpond_sim.faults.faults import Fault, Stage, Value, number
from batchpond_sim.faults.mutators import ROW_KINDS, Shape
from batchpond_sim.host.wire import Ending, Reply, Stream
from batchpond_sim.world.world import Call

_SHAPE = Shape("", b"", (), (b'"content":"', b'"text":"', b'"response":"'))
_USAGE = ("usage", "usageMetadata", "prompt_eval_count", "eval_count")
_CHOICES = ("choices", "output", "candidates", "message", "response")
_KEEPALIVE_EVERY_S = 0.25
_THOUGHT = "Let me compare the two. Each has its merits."


def spoiled(call: Call, reply: Reply) -> Reply:
    """Return an answer as the faults of its call have it; errors are only delivered otherwise, never changed."""
    words, ways = call.at(Stage.LINES), call.at(Stage.DELIVERY)
    if words and reply.status == 200 and isinstance(reply.body, bytes):
        reply = replace(reply, body=_changed(reply.body, words))
    return _delivered(reply, ways) if ways else reply


# -- what is said ------------------------------------------------------------------------------


def _changed(data: bytes, faults: tuple[Fault, ...]) -> bytes:
    for fault in faults:
        change = _BODY_KINDS.get(fault.kind)
        if change is not None:
            body = orjson.loads(data)
            change(body, fault.value)
            data = orjson.dumps(body)
    for fault in faults:
        data = ROW_KINDS[fault.kind](data, _SHAPE) if fault.kind in _BYTE_KINDS else data
    return data


def _without_usage(body: dict[str, Any], _value: Value) -> None:
    for name in _USAGE:
        body.pop(name, None)


def _without_choices(body: dict[str, Any], _value: Value) -> None:
    for name in _CHOICES:
        if isinstance(body.get(name), list):
            body[name] = []
        else:
            body.pop(name, None)
    if body.get("type") == "message":
        body["content"] = []


def _null_content(body: dict[str, Any], _value: Value) -> None:
    for holder in (*_messages(body), *body.get("output", ()), *body.get("candidates", ()), body):
        if "content" in holder:
            holder["content"] = None
    if isinstance(body.get("response"), str):
        body["response"] = None


def _think(body: dict[str, Any], value: Value) -> None:
    for message in _messages(body):
        text = message.get("content") or ""
        is_open = value == "unclosed"
        message["content"] = f"<think>\n{_THOUGHT}" + ("" if is_open else f"\n</think>\n\n{text}")


def _other_model(body: dict[str, Any], value: Value) -> None:
    body["modelVersion" if "modelVersion" in body else "model"] = str(value)


def _finish(body: dict[str, Any], value: Value) -> None:
    word = None if value == "null" else value
    for choice in body.get("choices", ()):
        choice["finish_reason"] = word
    for name in ("stop_reason", "done_reason"):
        if name in body:
            body[name] = word


def _messages(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for holder in (*body.get("choices", ()), body):
        if isinstance(holder.get("message"), dict):
            yield holder["message"]


_BODY_KINDS: dict[str, Callable[[dict[str, Any], Value], None]] = {
    "no_usage": _without_usage,
    "no_choices": _without_choices,
    "null_content": _null_content,
    "think": _think,
    "other_model": _other_model,
    "finish": _finish,
}
_BYTE_KINDS = frozenset({"malformed", "u2028", "lone_surrogate", "nan"})


# -- how it arrives ----------------------------------------------------------------------------


def _delivered(reply: Reply, faults: tuple[Fault, ...]) -> Reply:
    for fault in faults:
        match fault.kind:
            case "content_type":
                headers = tuple(pair for pair in reply.headers if pair[0] != "content-type")
                own = () if fault.value == "none" else (("content-type", str(fault.value)),)
                reply = replace(reply, headers=(*headers, *own))
            case "gzip":
                mark = () if fault.value == "unmarked" else (("content-encoding", "gzip"),)
                body = b"".join(packed(iter((_all(reply),))))
                reply = replace(reply, headers=(*reply.headers, *mark), body=body)
            case "empty_body":
                reply = replace(reply, body=b"")
            case "keepalive":
                reply = replace(reply, body=_kept_alive(_all(reply), number(fault.value)))
            case "slow":
                reply = replace(reply, body=replace(_stream(reply), bytes_per_s=max(0.001, number(fault.value))))
            case "truncate" | "truncate_mid" | "reset_at" | "short":
                reply = replace(reply, body=_cut(_all(reply), fault))
            case _:
                pass
    return reply


def _all(reply: Reply) -> bytes:
    return reply.body if isinstance(reply.body, bytes) else b"".join(reply.body.chunks())


def _stream(reply: Reply) -> Stream:
    data = reply.body
    return Stream(lambda: iter((data,))) if isinstance(data, bytes) else data


def _kept_alive(data: bytes, seconds: float) -> Stream:
    n = max(1, math.ceil(seconds / _KEEPALIVE_EVERY_S))
    return Stream(lambda: iter((*(b"\n",) * n, data)), pause_s=seconds / n)


def _cut(data: bytes, fault: Fault) -> Stream:
    at = min(len(data), int(len(data) * number(fault.value)))
    ending = Ending.FRAMED
    match fault.kind:
        case "truncate":
            at = data.rfind(b"\n", 0, at) + 1
        case "reset_at":
            at, ending = min(len(data), int(number(fault.value))), Ending.RESET
        case "short":
            ending = Ending.SHORT
        case _:
            ending = Ending.UNFRAMED
    kept = data[:at]
    return Stream(lambda: iter((kept,)), ending, size_bytes=len(data))
