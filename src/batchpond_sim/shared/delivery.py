"""How a file's bytes reach the client: whole, cut, slowed or changed."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.host.messages import CHUNK_BYTES, Ending, Reply, Stream
from batchpond_sim.shared.rows import ROW_KINDS, Shape
from batchpond_sim.world.faults import Call, Fault, Stage, Value, number


def delivered(path: Path, call: Call, row_id: bytes, content_type: str = "application/octet-stream") -> Reply:
    """Return the answer with a file's bytes, as the faults of `call` have it.

    `row_id` is how a row's own id starts, such as `"id":"batch_req_`.
    """
    is_odd, word = call.value(Stage.DELIVERY, "content_type")
    headers = [("content-type", str(word) if is_odd else content_type)] if word != "none" else []
    stream = _stream(path, call, row_id)
    is_packed, mark = call.value(Stage.DELIVERY, "gzip")
    if is_packed:
        plain = stream.chunks
        stream = replace(stream, chunks=lambda: packed(plain()))
        if mark != "unmarked":
            headers.append(("content-encoding", "gzip"))
    return Reply(200, tuple(headers), stream)


def packed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield chunks as gzip."""
    packer = zlib.compressobj(wbits=31)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _stream(path: Path, call: Call, row_id: bytes) -> Stream:
    size = path.stat().st_size
    stop, ending, speed = size, Ending.FRAMED, None
    for fault in call.at(Stage.DELIVERY):
        match fault.kind:
            case "truncate":
                stop = _line_border(path, int(size * number(fault.value)))
            case "truncate_mid":
                stop, ending = _inside_line(path, int(size * number(fault.value)), size), Ending.UNFRAMED
            case "reset_at":
                stop, ending = min(size, int(number(fault.value))), Ending.RESET
            case "slow":
                speed = max(0.001, number(fault.value))
            case _:
                pass
    if call.has(Stage.DELIVERY, "changed"):
        mark = b"%b%d_" % (row_id, call.n)
        return Stream(lambda: _altered(path, lambda line: line.replace(row_id, mark, 1)), ending, speed)
    if call.has(Stage.DELIVERY, "garbage"):
        return Stream(lambda: _altered(path, lambda _: b'  "message": "try again later",\n'), ending, speed)
    return Stream(lambda: _chunks(path, stop), ending, speed)


def _chunks(path: Path, stop: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while stop > 0 and (chunk := file.read(min(CHUNK_BYTES, stop))):
            stop -= len(chunk)
            yield chunk


def _altered(path: Path, alter: Callable[[bytes], bytes]) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from map(alter, lines)


def _line_border(path: Path, at: int) -> int:
    border = position = 0
    with path.open("rb") as lines:
        for line in lines:
            position += len(line)
            if position > at:
                break
            border = position
    return border


def _inside_line(path: Path, at: int, size: int) -> int:
    at = max(1, min(at, size - 2))
    with path.open("rb") as file:
        file.seek(at - 1)
        around = file.read(2)
    return at + 2 if b"\n" in around else at


_SHAPE = Shape("", b"", (), (b'"content":"', b'"text":"', b'"response":"'))
_USAGE = ("usage", "usageMetadata", "prompt_eval_count", "eval_count")
_CHOICES = ("choices", "output", "candidates", "message", "response")
_KEEPALIVE_EVERY_S = 0.25
_THOUGHT = "Let me compare the two. Each has its merits."


def spoiled(call: Call, reply: Reply) -> Reply:
    """Return an answer as the faults of its call have it; errors are only delivered otherwise, never changed."""
    words, ways = call.at(Stage.LINES), call.at(Stage.DELIVERY)
    if words and reply.status == 200 and isinstance(reply.body, bytes):
        reply = replace(reply, body=_respoken(reply.body, words))
    return _delivered(reply, ways) if ways else reply


def _respoken(data: bytes, faults: tuple[Fault, ...]) -> bytes:
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
                reply = replace(reply, body=replace(_streamed(reply), bytes_per_s=max(0.001, number(fault.value))))
            case "truncate" | "truncate_mid" | "reset_at" | "short":
                reply = replace(reply, body=_cut(_all(reply), fault))
            case _:
                pass
    return reply


def _all(reply: Reply) -> bytes:
    return reply.body if isinstance(reply.body, bytes) else b"".join(reply.body.chunks())


def _streamed(reply: Reply) -> Stream:
    data = reply.body
    return Stream(lambda: iter((data,))) if isinstance(data, bytes) else data


def _kept_alive(data: bytes, seconds: float) -> Stream:
    n = max(1, math.ceil(seconds / _KEEPALIVE_EVERY_S))
    return Stream(lambda: iter((*(b"\n",) * n, data)), pause_s=seconds / n)


def _cut(data: bytes, fault: Fault) -> Stream:
    at, ending = min(len(data), int(len(data) * number(fault.value))), Ending.UNFRAMED
    match fault.kind:
        case "truncate":
            at, ending = data.rfind(b"\n", 0, at) + 1, Ending.FRAMED
        case "reset_at":
            at, ending = min(len(data), int(number(fault.value))), Ending.RESET
        case "short":
            ending = Ending.SHORT
    kept = data[:at]
    return Stream(lambda: iter((kept,)), ending, size_bytes=len(data))
