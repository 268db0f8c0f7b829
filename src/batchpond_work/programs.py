"""Programs that answer: a command for each part, and a vLLM server that is started here for as long as work goes on."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import IO, Final

from batchpond_work import USAGE, WorkError
from batchpond_work.place import parsed
from batchpond_work.server import Engine, Server, Take
from batchpond_work.settings import Settings

POLL_S: Final = 0.2
PATIENCE_S: Final = 10.0
READY_S: Final = 3_600.0
_COMMAND, _VLLM = "command:", "vllm"
_HINT: Final = "its own output says more; what it answered is kept"


def engine_of(settings: Settings) -> Engine:
    """Return the engine that the settings name; raises WorkError for one that cannot be."""
    named = settings.engine.strip()
    if named.startswith(_COMMAND):
        return Command(named.removeprefix(_COMMAND))
    words = shlex.split(named)
    if words[0] == _VLLM:
        return Vllm(words[1:], settings)
    key = os.environ.get(settings.key_env, "") if settings.key_env else ""
    if settings.key_env and not key:
        raise WorkError(f"{settings.key_env} is not set", hint="it holds the server's key", exit_code=USAGE)
    return Server(named, key, settings)


def _started(words: list[str]) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own, speaking on stderr; no shell is asked."""
    try:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    except OSError as error:
        raise WorkError(f"{words[0]} cannot be run: {error.strerror}", exit_code=USAGE) from None


def _ended(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
            return


class Command:
    """A command that reads a part's requests from a file and writes rows of answers to another."""

    n_threads = 1
    n_lines: int | None = None
    is_of_one_model = False

    def __init__(self, text: str) -> None:
        self._words = shlex.split(text)
        if not self._words or not all(place in text for place in ("{input}", "{output}")):
            hint = "--engine 'command: vllm run-batch -i {input} -o {output} --model MODEL'"
            raise WorkError("the command lacks {input} or {output}", hint=hint, exit_code=USAGE)

    def takes(self, line: bytes) -> bool:
        """Whether a line is JSON: the command knows its form."""
        return parsed(line) is not None

    def begin(self, model: str, stop: Event) -> None:
        """Do nothing: it is started for each part."""

    def end(self) -> None:
        """Do nothing: it has ended."""

    def answer(self, lines: Mapping[str, bytes], take: Take, stop: Event) -> str | None:
        """Run it, and take rows as they appear; raises WorkError when it fails, or answers what was not asked."""
        with tempfile.TemporaryDirectory(prefix="batchpond-work-") as scratch:
            asked, answered = Path(scratch) / "requests.jsonl", Path(scratch) / "results.jsonl"
            asked.write_bytes(b"".join(line + b"\n" for line in lines.values()))
            answered.touch()
            places = {"{input}": str(asked), "{output}": str(answered)}
            process = _started([_filled(word, places) for word in self._words])
            taken = set[str]()
            try:
                while process.poll() is None and not stop.wait(POLL_S):
                    _take_new(answered, lines, taken, take)
            finally:
                _ended(process)
            _take_new(answered, lines, taken, take, is_over=True)
        if process.returncode and not stop.is_set():
            raise WorkError(f"{self._words[0]} ended with {process.returncode}", hint=_HINT)
        return None if len(taken) == len(lines) else f"{self._words[0]} wrote no row for them"


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, path in places.items():
        word = word.replace(place, path)
    return word


def _take_new(path: Path, lines: Mapping[str, bytes], taken: set[str], take: Take, *, is_over: bool = False) -> None:
    """Take the whole rows that are new in a file; a command may also write another in its place."""
    with path.open("rb") as file:
        for line in file:
            row = parsed(line)
            custom_id = None if row is None else row.get("custom_id")
            if isinstance(custom_id, str) and custom_id in lines and (line.endswith(b"\n") or is_over):
                if custom_id not in taken:
                    take(custom_id, line if line.endswith(b"\n") else line + b"\n")
                    taken.add(custom_id)
            elif line.strip() and is_over:
                hint = "rows name the custom_id of their request"
                raise WorkError(f"a row of the command answers nothing that was asked: {line[:200]!r}", hint=hint)


class Vllm(Server):
    """`vllm serve MODEL`, started on a free port of this machine and ended with the work."""

    n_usual = 256
    is_of_one_model = True

    def __init__(self, arguments: list[str], settings: Settings) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        super().__init__(f"http://127.0.0.1:{self._port}/v1", "", settings)

    def begin(self, model: str, stop: Event) -> None:
        """Start it and wait until it lists its models; raises WorkError when it ends before."""
        served = ["vllm", "serve", model, "--host", "127.0.0.1", "--port", str(self._port)]
        self._process = _started([*served, *self._arguments])
        until_s = time.monotonic() + READY_S
        while not self._is_ready() and not stop.wait(POLL_S):
            if self._process.poll() is not None or time.monotonic() > until_s:
                raise WorkError(f"vllm did not come to serve {model}", hint="its own output says why")

    def end(self) -> None:
        """End the server."""
        super().end()
        if self._process is not None:
            _ended(self._process)

    def _is_ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            answer: IO[bytes]
            with opener.open(f"http://127.0.0.1:{self._port}/v1/models", timeout=POLL_S * 10) as answer:
                return bool(answer.read())
        except (OSError, urllib.error.URLError):
            return False
