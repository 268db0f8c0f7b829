"""The simulator in-process, as an httpx transport: deterministic, with faults as httpx exceptions.

With a clock that stands still, shared by client and world, nothing ever waits: a hang moves the clock to the
client's own read timeout and raises it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import httpx

from batchpond_sim import Clock
from batchpond_sim.host.messages import Break, BreakKind, Ending, IterBody, Request, Stream
from batchpond_sim.host.server import Simulator
from batchpond_sim.world.world import Settings, World


class SimulatorTransport(httpx.BaseTransport):
    """Hands every request to a world's simulator; no socket is opened."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self._clock = clock
        self._simulator = Simulator(world)

    def restart(self) -> None:
        """Read all objects anew from the world's folder, as a restarted simulator would."""
        self._simulator = Simulator(self.world)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request; raises httpx's own errors where a fault breaks the connection."""
        stream = request.stream
        if not isinstance(stream, httpx.SyncByteStream):
            raise TypeError("the simulator's transport takes requests of a synchronous client")
        asked = Request(
            request.method,
            request.url.path,
            dict(request.url.params),
            {name.lower(): value for name, value in request.headers.items()},
            IterBody(iter(stream)),
        )
        answer = self._simulator.handle(asked)
        if isinstance(answer, Break):
            self._break(answer, request)
        if answer.delay_s:
            self.pause(answer.delay_s, request)
        content = answer.body
        if isinstance(content, bytes):
            read = httpx.Response(answer.status, headers=list(answer.headers), content=content)
            # Unread as from a network, so that any answer can be streamed to disk.
            unread = httpx.ByteStream(content)
            return httpx.Response(answer.status, headers=read.headers, stream=unread, request=request)
        body = _Body(content, request, self)
        return httpx.Response(answer.status, headers=list(answer.headers), stream=body, request=request)

    def _break(self, answer: Break, request: httpx.Request) -> NoReturn:
        if answer.kind is BreakKind.REFUSE:
            raise httpx.ConnectError("simulated: connection refused", request=request)
        if answer.kind is BreakKind.HANG:
            self.pause(answer.seconds, request)
        raise httpx.ReadError("simulated: connection reset by peer", request=request)

    def pause(self, seconds: float, request: httpx.Request) -> None:
        """Be silent for `seconds`, or up to the client's read timeout, which is then raised."""
        timeout = request.extensions.get("timeout", {}).get("read")
        if timeout is not None and seconds > timeout:
            self._clock.sleep(timeout)
            raise httpx.ReadTimeout("simulated: timed out", request=request)
        self._clock.sleep(seconds)


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Stream, request: httpx.Request, transport: SimulatorTransport) -> None:
        self._stream = stream
        self._request = request
        self._transport = transport

    def __iter__(self) -> Iterator[bytes]:
        speed = self._stream.bytes_per_s
        for i, chunk in enumerate(self._stream.chunks()):
            if i and self._stream.pause_s:
                self._transport.pause(self._stream.pause_s, self._request)
            step = max(1, len(chunk) if speed is None else int(speed))
            for at in range(0, len(chunk), step):
                if speed is not None:
                    self._transport.pause(min(step, len(chunk) - at) / speed, self._request)
                yield chunk[at : at + step]
        match self._stream.ending:
            case Ending.RESET:
                raise httpx.ReadError("simulated: connection reset by peer", request=self._request)
            case Ending.SHORT:
                raise httpx.RemoteProtocolError("simulated: closed before the whole body", request=self._request)
            case Ending.FRAMED | Ending.UNFRAMED:
                return


@contextmanager
def world_at(path: Path, settings: Settings | None = None, clock: Clock | None = None) -> Iterator[World]:
    """Open a world for the length of a with block."""
    world = World(path, settings, clock)
    try:
        yield world
    finally:
        world.close()
