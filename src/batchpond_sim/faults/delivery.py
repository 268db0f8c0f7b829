"""How a file's bytes reach the client: whole, cut, slowed or changed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from batchpond_sim.faults.faults import Stage, number
from batchpond_sim.host.wire import CHUNK_BYTES, Ending, Reply, Stream
from batchpond_sim.world.world import Call


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
        return Stream(lambda: _changed(path, row_id, call.n), ending, speed)
    return Stream(lambda: _chunks(path, stop), ending, speed)


def _chunks(path: Path, stop: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while stop > 0 and (chunk := file.read(min(CHUNK_BYTES, stop))):
            stop -= len(chunk)
            yield chunk


def _changed(path: Path, row_id: bytes, call_n: int) -> Iterator[bytes]:
    mark = b"%b%d_" % (row_id, call_n)
    with path.open("rb") as lines:
        for line in lines:
            yield line.replace(row_id, mark, 1)


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
