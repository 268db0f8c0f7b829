"""A chat endpoint that costs its caller as little CPU as Python allows, and counts how often each body came.

python -m tests.bench.fast_server [LATENCY_S]      # prints its port; GET /counts is its ledger
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from hashlib import blake2b
from typing import Final

HOST: Final = "127.0.0.1"
ANSWER: Final = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1795000000,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>" + " word" * 100},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 600, "completion_tokens": 120, "total_tokens": 720},
    }
).encode()


def _reply(body: bytes, more: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: req_1\r\nx-batchpond-simulator: 1\r\n"
    return head + more + b"content-length: %d\r\n\r\n" % len(body) + body


WHOLE_ANSWER: Final = _reply(ANSWER)


class Connection(asyncio.Protocol):
    """One connection; requests come one after the other, whole or in pieces."""

    def __init__(self, counts: Counter[bytes], latency_s: float) -> None:
        self._counts = counts
        self._latency_s = latency_s
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            n_body = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + n_body:
                return
            body, self._data = self._data[end + 4 : end + 4 + n_body], self._data[end + 4 + n_body :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get /counts"):
            numbers = {"n_asked": self._counts.total(), "n_bodies": len(self._counts)}
            self._send(_reply(json.dumps(numbers | {"n_most": max(self._counts.values(), default=0)}).encode()))
        elif head.startswith(b"get"):
            self._send(_reply(b'{"object":"list","data":[]}'))
        else:
            self._counts[blake2b(body, digest_size=12).digest()] += 1
            if self._latency_s:
                asyncio.get_running_loop().call_later(self._latency_s, self._send, WHOLE_ANSWER)
            else:
                self._send(WHOLE_ANSWER)

    def _send(self, data: bytes) -> None:
        self._transport.write(data)


async def serve(latency_s: float) -> None:
    """Serve until the process is ended."""
    counts: Counter[bytes] = Counter()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(counts, latency_s), HOST, 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
