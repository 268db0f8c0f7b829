"""`batchpond` as a program that starts at once: forked from a process that has its modules loaded.

Most of what a short command takes is the loading of engines. What pages and tests run is many and short, so it is asked
of one such process, each command with its own arguments, folder, environment, files and exit code, as a new process
has them: it may be killed, stopped, or waited for. How the program starts and ends by itself, `test_cli` shows.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from batchpond.cli import main, spare

LOADED = (
    "duckdb", "genai_prices", "httpx", "jinja2", "msgspec", "numpy", "pyarrow.acero", "pyarrow.parquet", "tenacity",
    "batchpond.cli.doctor", "batchpond.cli.plan", "batchpond.cli.query", "batchpond.cli.report",
    "batchpond.cli.simulate", "batchpond.cli.status", "batchpond.cli.sync", "batchpond.interop.imports",
    "batchpond.plan.verb", "batchpond_report.build",
    "batchpond_report.page", "batchpond.run.live.run", "batchpond.run.submit", "batchpond.run.sync",
    "batchpond.run.unknown", "batchpond.study.file", "batchpond.views.read", "batchpond_sim.host.server",
    "batchpond.providers.anthropic.batch", "batchpond.providers.gemini.batch", "batchpond.providers.openai.batch",
    "batchpond.providers.together.batch",
)  # fmt: skip
REQUEST_BYTES_MAX = 1 << 17
STOPPED = "stopped"
BOUND_S = 120.0
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
    asked.connect({path!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [request], [0, 1, 2])
    said = [word.decode() for word in iter(lambda: asked.recv(64), b"")]
sys.exit(int(said[-1]) if len(said) > 1 else "it ended without a word")
"""


class Started:
    """A command on its way, as far as `subprocess.Popen` has the same."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self.pid = int(self._said(BOUND_S))
        self.returncode: int | None = None

    def _said(self, timeout: float | None) -> str:
        self._asked.settimeout(timeout)
        try:
            return self._asked.recv(64).decode()
        except TimeoutError:
            raise subprocess.TimeoutExpired("batchpond", timeout or 0.0) from None

    def wait(self, timeout: float | None = BOUND_S) -> int:
        """Wait for its end; returns its exit code, negative for a signal."""
        while self.returncode is None:
            if (said := self._said(timeout)) != STOPPED:
                self.returncode = int(said)
                self._asked.close()
        return self.returncode

    def wait_until_stopped(self) -> None:
        """Wait until it has stopped itself."""
        assert self._said(BOUND_S) == STOPPED

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    *arguments: str,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
) -> Started:
    """Start a command with this environment and these files."""
    request = json.dumps([arguments, os.fspath(cwd or Path.cwd()), dict(env)]).encode()
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(os.fspath(_own_socket()))
    with open(os.devnull, "r+b") as nothing:
        out, err = (nothing.fileno() if given == subprocess.DEVNULL else given for given in (stdout, stderr))
        socket.send_fds(asked, [request], [nothing.fileno(), out, err])
    return Started(asked)


def run(
    *arguments: str, env: Mapping[str, str], cwd: Path | None = None, timeout: float = BOUND_S
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = start(*arguments, env=env, cwd=cwd, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = started.wait(timeout)
        except subprocess.TimeoutExpired:
            started.kill()
            raise
        said = [file.read() for file in (out, err) if not file.seek(0)]
    return subprocess.CompletedProcess(arguments, code, *said)


def run_text(*arguments: str, env: Mapping[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return what it said as text."""
    done = run(*arguments, env=env, cwd=cwd)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@functools.cache
def _own_socket() -> Path:
    """Start the process whose children the commands of this test process are; it ends with it."""
    closing = ExitStack()
    atexit.register(closing.close)
    folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
    closing.enter_context(_serving(folder / "socket"))
    return folder / "socket"


@contextmanager
def _serving(path: Path) -> Iterator[None]:
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.rigs.forked", str(path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.communicate()


@contextmanager
def program(folder: Path) -> Iterator[Path]:
    """Start the process that is forked; yields a folder with `batchpond` in it, for PATH."""
    path = folder / "socket"
    with _serving(path):
        tool = folder / "batchpond"
        tool.write_text(_PROGRAM.format(python=sys.executable, path=str(path)))
        tool.chmod(0o755)
        yield folder


def serve(path: str) -> None:
    """Fork a child for every request on a socket, until whoever started this closes stdin, or dies."""
    spare()
    for name in LOADED:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(64)
        os.write(1, b"ready\n")
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asked, _ = listening.accept()
            with asked:
                if os.fork() == 0:
                    listening.close()
                    _keep(asked)
            _bury()
    _bury()


def _bury() -> None:
    """Take note of the children that have ended, so that what they took counts as this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(asked: socket.socket) -> None:
    """Run the command in a child, and tell whoever asked its number, each time that it is stopped, and how it ended."""
    request, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 3)
    pid = os.fork()
    if pid == 0:
        asked.close()
        _answer(request, descriptors)
    for given in descriptors:
        os.close(given)
    with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
        asked.send(str(pid).encode())
        status = os.waitpid(pid, os.WUNTRACED)[1]
        while os.WIFSTOPPED(status):
            asked.send(STOPPED.encode())
            status = os.waitpid(pid, os.WUNTRACED)[1]
        asked.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _answer(request: bytes, descriptors: list[int]) -> None:
    arguments, folder, variables = json.loads(request)
    for own, given in enumerate(descriptors):
        os.dup2(given, own)
        os.close(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    sys.argv = ["batchpond", *arguments]
    code = 1
    try:
        code = main(arguments)
    except SystemExit as ended:  # from completion, which click ends by itself
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
