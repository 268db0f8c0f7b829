"""How fast live calls leave: a provider's wire beside a bare httpx thread pool of the same size.

    python -m tests.bench.live_wire [THREADS ...]      # default 1, 32 and 256 threads

Both ask a server in a process of its own, which answers at once. Target: at least 0.7 of the bare pool's
throughput; what the lake does with the answers comes on top.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import httpx
import orjson

from batchpond.providers import registry
from batchpond.providers.base import Answered

N_CALLS = 4_000
CHAT = "/v1/chat/completions"
BODY = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 400}]})
CONTENT = orjson.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 150}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 150},
    }
)
LIMITS = b"".join(
    b"x-ratelimit-%b-%b: %b\r\n" % (part, what, value)
    for what in (b"requests", b"tokens")
    for part, value in ((b"limit", b"100000"), (b"remaining", b"99999"), (b"reset", b"6ms"))
)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
    LIMITS,
    len(CONTENT),
    CONTENT,
)


class _Protocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        while found:
            lower = head.lower()
            size = int(lower[lower.index(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
            if len(rest) < size:
                return
            self._data = rest[size:]
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(ANSWER)
            head, found, rest = self._data.partition(b"\r\n\r\n")


def serve(ready: Connection) -> None:
    """Answer every POST at once, for ever."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Protocol, "127.0.0.1", 0, backlog=1024)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def rate(call: Callable[[int], object], n_threads: int) -> tuple[float, float]:
    """Return calls per second, and CPU microseconds of this process per call."""
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(call, range(n_threads * 2)))
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        list(pool.map(call, range(N_CALLS)))
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return N_CALLS / seconds, cpu_s / N_CALLS * 1e6


def measure(base_url: str, n_threads: int) -> None:
    """Print both rates and their ratio."""
    limits = httpx.Limits(max_connections=n_threads, max_keepalive_connections=n_threads)
    with httpx.Client(limits=limits, timeout=60, headers={"authorization": "Bearer sk-0123456789abcdef"}) as client:

        def bare(_: int) -> None:
            answer = client.post(f"{base_url}/chat/completions", content=BODY)
            answer.raise_for_status()

        bare_rate, bare_us = rate(bare, n_threads)
    environ = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "sk-0123456789abcdef"}
    wire = registry.connect_live("openai", environ=environ, max_connections=n_threads)

    def ask(_: int) -> None:
        if not isinstance(wire.ask(CHAT, "m", BODY, 60.0), Answered):
            raise SystemExit("a call was not answered")

    own_rate, own_us = rate(ask, n_threads)
    wire.close()
    print(
        f"{n_threads:4} threads: bare httpx {bare_rate:6.0f}/s ({bare_us:5.0f} us CPU a call),"
        f" live wire {own_rate:6.0f}/s ({own_us:5.0f} us), ratio {own_rate / bare_rate:.2f}"
    )


def main() -> None:
    """Measure each number of threads."""
    ready, other = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(other,), daemon=True)
    server.start()
    base_url = f"http://127.0.0.1:{ready.recv()}/v1"
    for n_threads in [int(word) for word in sys.argv[1:]] or [1, 32, 256]:
        measure(base_url, n_threads)
    server.terminate()


if __name__ == "__main__":
    main()
