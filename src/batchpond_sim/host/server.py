"""The whole simulator: the providers' APIs and `/_sim/` behind one `handle`, and that on a loopback port.

GET    /_sim/ledger       every batch created, token billed, calls by operation
GET    /_sim/requests     the record of every request, as JSON lines
POST   /_sim/advance      {"seconds": N}
POST   /_sim/faults       {"spec": "..."} or {"specs": [...]}; DELETE removes all
GET    /_sim/live         how often each body was asked, billed and answered live, as JSON lines (?min_billed=2)
POST   /_sim/limits       {"spec": "gpt-5*:rpm=600,tpm=200000"} or {"specs": [...]}; DELETE removes all
POST   /_sim/judges       {"spec": "gpt-5*:position_bias=0.8"} or a judge's settings as an object
POST   /_sim/qualities    {"samples": [{"text": "...", "quality": 0.7}]}

The port speaks HTTP/1.1, with a thread a connection, and sockets that misbehave on request.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from batchpond_sim import Clock, SimulatorError
from batchpond_sim.anthropic import api as anthropic
from batchpond_sim.compatible import api as compatible
from batchpond_sim.gemini import api as gemini
from batchpond_sim.groq import api as groq
from batchpond_sim.host.messages import (
    CHUNK_BYTES,
    MARK,
    Answer,
    Break,
    BreakKind,
    Ending,
    IterBody,
    NoBody,
    Readable,
    Reply,
    Request,
    Stream,
    json_reply,
)
from batchpond_sim.judges.judge import judge_of
from batchpond_sim.mistral import api as mistral
from batchpond_sim.ollama import api as ollama
from batchpond_sim.openai import api as openai
from batchpond_sim.shared.api import Api
from batchpond_sim.together import api as together
from batchpond_sim.vertex import api as vertex
from batchpond_sim.world.faults import Op
from batchpond_sim.world.world import Settings, World
from batchpond_sim.xai import api as xai

PROVIDERS: dict[str, tuple[str, Callable[[World], Api]]] = {
    "openai": (openai.BASE_PATH, openai.OpenAISimulator),
    "anthropic": (anthropic.BASE_PATH, anthropic.AnthropicSimulator),
    "gemini": (gemini.BASE_PATH, gemini.GeminiSimulator),
    "vertex": (vertex.BASE_PATH, vertex.VertexSimulator),
    "together": (together.BASE_PATH, together.TogetherSimulator),
    "groq": (groq.BASE_PATH, groq.GroqSimulator),
    "mistral": (mistral.BASE_PATH, mistral.MistralSimulator),
    "xai": (xai.BASE_PATH, xai.XaiSimulator),
    "ollama": (ollama.BASE_PATH, ollama.OllamaSimulator),
    "compatible": (compatible.BASE_PATH, compatible.CompatibleSimulator),
}
"""Every simulated provider, those with live calls only included: its base path and what answers below it."""


_NDJSON = (("content-type", "application/x-ndjson"),)


class Simulator:
    """All simulated providers of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._apis = [(path, make(world)) for path, make in PROVIDERS.values()]

    def handle(self, request: Request) -> Answer:
        """Return the answer to any request."""
        for path, api in self._apis:
            if request.path.startswith(f"{path}/") or request.path == path:
                return api.handle(request)
        reply = self._control(request) if request.path.startswith("/_sim/") else self._nobody(request)
        return replace(reply, headers=(*reply.headers, MARK))

    def _nobody(self, request: Request) -> Reply:
        self.world.arrive(request, request.bearer, "nobody", Op.ANY)
        known = ", ".join(path for path, _ in self._apis)
        return json_reply(404, {"error": {"message": f"no simulated provider at {request.path}; there are: {known}"}})

    def _control(self, request: Request) -> Reply:
        try:
            return self._controlled(request)
        except (SimulatorError, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            hint = error.hint if isinstance(error, SimulatorError) else None
            return json_reply(400, {"error": {"message": str(error), "hint": hint}})

    def _controlled(self, request: Request) -> Reply:
        route = f"{request.method} {request.path.removeprefix('/_sim/')}"
        if route == "GET requests":
            return Reply(200, _NDJSON, Stream(self._requests))
        if route == "GET live":
            rows = self.world.ledger.live_rows(int(request.query.get("min_billed", "0")))
            return Reply(200, _NDJSON, Stream(lambda: (orjson.dumps(row) + b"\n" for row in rows)))
        shown = self._steer(route, request.read_json() or {})
        if shown is None:
            return json_reply(404, {"error": {"message": f"no control route {request.method} {request.path}"}})
        return json_reply(200, shown)

    def _steer(self, route: str, body: dict[str, Any]) -> dict[str, Any] | None:
        world = self.world
        shown: dict[str, Any] = {}
        match route:
            case "GET ledger":
                self._tick()
                shown = world.snapshot()
            case "POST advance":
                shown = {"now": world.advance(float(body["seconds"]))}
            case "POST faults":
                for spec in body["specs"] if "specs" in body else [body["spec"]]:
                    world.add_fault(spec)
            case "DELETE faults":
                world.clear_faults()
            case "POST limits":
                for spec in body["specs"] if "specs" in body else [body["spec"]]:
                    world.add_limit(spec)
            case "DELETE limits":
                world.clear_limits()
            case "POST judges":
                world.add_judge(body["spec"] if "spec" in body else _judge_spec(body))
            case "POST qualities":
                with world.lock:
                    world.panel.register((row["text"], row["quality"]) for row in body["samples"])
            case "GET faults" | "GET judges" | "GET limits":
                pass
            case _:
                return None
        limits = [asdict(limit) for limit in world.limiter.limits]
        return shown or {"faults": [fault.spec for fault in world.faults], "limits": limits, **world.panel.describe()}

    def _tick(self) -> None:
        for _, api in self._apis:
            api.tick()

    def _requests(self) -> Iterator[bytes]:
        with self.world.ledger.path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


def _judge_spec(body: dict[str, Any]) -> str:
    spec = orjson.dumps(body).decode("utf-8")
    judge_of(body, spec)
    return spec


HOST = "127.0.0.1"
IDLE_TIMEOUT_S = 120.0
_TICK_S = 0.5


class _LengthBody:
    """A request body of known length on a socket."""

    def __init__(self, file: Readable, length: int) -> None:
        self._file = file
        self._left = length

    def read(self, n: int, /) -> bytes:
        data = self._file.read(min(n, self._left)) if self._left else b""
        self._left -= len(data)
        if not data and self._left:
            raise ConnectionResetError("the client went away in the middle of its request")
        return data


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = IDLE_TIMEOUT_S
    server: _Server

    def _serve(self) -> None:
        answer = self.server.simulator.handle(self._request())
        if isinstance(answer, Break):
            self._break(answer)
        if answer.delay_s:
            self._stall(answer.delay_s)
        self._reply(answer)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the ledger is the log."""

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Request(self.command, unquote(parts.path), dict(parse_qsl(parts.query)), headers, self._body(headers))

    def _body(self, headers: dict[str, str]) -> Readable:
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return IterBody(self._dechunked())
        length = headers.get("content-length", "0")
        return _LengthBody(self.rfile, int(length)) if length.isdigit() and int(length) else NoBody()

    def _dechunked(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(64).split(b";")[0].strip() or b"0", 16):
            while size:
                data = self.rfile.read(min(size, CHUNK_BYTES))
                if not data:
                    raise ConnectionResetError("the client went away in the middle of its request")
                size -= len(data)
                yield data
            self.rfile.readline(8)
        while self.rfile.readline(CHUNK_BYTES).strip():
            pass

    def _break(self, answer: Break) -> NoReturn:
        if answer.kind is BreakKind.HANG:
            self._stall(answer.seconds)
        self._reset()

    def _stall(self, seconds: float) -> None:
        """Wait, but not longer than the server lives or the client listens."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.server.stopping.wait(min(_TICK_S, left)) or self._is_gone():
                return

    def _is_gone(self) -> bool:
        # A socket with a timeout waits before it receives, whatever the flags of the call: ask first.
        waiting = select.poll()
        waiting.register(self.connection, select.POLLIN)
        if not waiting.poll(0):
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _reset(self) -> NoReturn:
        """Close with RST instead of FIN: what is unsent is lost, the client's read fails."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # rfile and wfile hold the descriptor open: the last of the three closes sends the RST.
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        raise ConnectionResetError("reset as asked")  # so that nobody touches the closed files any more

    def finish(self) -> None:
        """Flush and close, unless a reset has closed everything."""
        if not self.wfile.closed:
            super().finish()

    def _reply(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        if isinstance(reply.body, bytes):
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers_with(reply.body if self.command != "HEAD" else b"")
            return
        match reply.body.ending:
            case Ending.UNFRAMED:
                self.close_connection = True
            case Ending.SHORT:
                self.send_header("content-length", str(reply.body.size_bytes))
                self.close_connection = True
            case Ending.FRAMED | Ending.RESET:
                self.send_header("transfer-encoding", "chunked")
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers_with(b"")
        self._stream(reply.body)

    def end_headers_with(self, body: bytes) -> None:
        """Send headers and body as one segment where they fit."""
        head = b"".join(getattr(self, "_headers_buffer", [])) + b"\r\n"
        self._headers_buffer: list[bytes] = []
        self.wfile.write(head + body)

    def _stream(self, stream: Stream) -> None:
        is_chunked = stream.ending in (Ending.FRAMED, Ending.RESET)
        for i, chunk in enumerate(stream.chunks()):
            if i and stream.pause_s and self.server.stopping.wait(stream.pause_s):
                raise ConnectionResetError("the server is stopping")
            for piece in filter(None, self._paced(chunk, stream.bytes_per_s)):  # an empty chunk would be the end
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        if stream.ending is Ending.RESET:
            # Lets the client take what was sent before the reset discards it.
            time.sleep(0.05)
            self._reset()
        elif is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _paced(self, chunk: bytes, bytes_per_s: float | None) -> Iterator[bytes]:
        if bytes_per_s is None:
            yield chunk
            return
        step = max(1, int(bytes_per_s * _TICK_S))
        for at in range(0, len(chunk), step):
            piece = chunk[at : at + step]
            if self.server.stopping.wait(len(piece) / bytes_per_s):
                raise ConnectionResetError("the server is stopping")
            yield piece


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int, simulator: Simulator) -> None:
        self.simulator = simulator
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Serve a connection in a thread of its own."""
        if isinstance(request, socket.socket):
            with self._lock:
                self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close a connection."""
        if isinstance(request, socket.socket):
            with self._lock:
                self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Report a defect of the simulator; a client that went away is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Stop listening and end every connection."""
        self.stopping.set()
        self.shutdown()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was gone already
        self._join_connections()
        self.server_close()

    def _join_connections(self) -> None:
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            with self._lock:
                if not self._connections:
                    return
            time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Running:
    """A running simulator."""

    world: World
    port: int

    @property
    def root_url(self) -> str:
        """Where the control routes are: `<root_url>/_sim/...`."""
        return f"http://{HOST}:{self.port}"

    @property
    def base_url(self) -> str:
        """What the official SDK takes as OPENAI_BASE_URL."""
        return self.base_url_of("openai")

    def base_url_of(self, provider: str) -> str:
        """Return what the official SDK of a provider takes as its base URL."""
        return f"{self.root_url}{PROVIDERS[provider][0]}"


@contextmanager
def running(
    settings: Settings | None = None, state_dir: Path | None = None, port: int = 0, clock: Clock | None = None
) -> Iterator[Running]:
    """Run a simulator on a loopback port for the length of a with block.

    Port 0 picks a free one; without `state_dir` the state is thrown away at the end. Raises
    SimulatorError when the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="batchpond-sim-") as scratch:
        world = World(state_dir or Path(scratch), settings, clock)
        try:
            server = _bound(port, Simulator(world))
        except SimulatorError:
            world.close()
            raise
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield Running(world, server.server_address[1])
        finally:
            server.stop()
            thread.join(5.0)
            world.close()


def _bound(port: int, simulator: Simulator) -> _Server:
    try:
        return _Server(port, simulator)
    except OSError as error:
        raise SimulatorError(
            f"cannot listen on {HOST}:{port}: {error}", hint="give another --port, or 0 for a free one"
        ) from error
