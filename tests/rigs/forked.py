"""`batchpond` as a program that starts at once: forked from a process that has its modules loaded.

Most of what a short command takes is the loading of engines. A page's commands are many and short, so they are asked of
one such process, each with its own arguments, folder, environment, terminal and exit code, as a new process has them.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchpond.cli import main, spare

LOADED = (
    "duckdb", "genai_prices", "httpx", "jinja2", "msgspec", "numpy", "pyarrow.parquet", "tenacity",
    "batchpond.cli.run", "batchpond.cli.query", "batchpond.cli.rank", "batchpond.cli.report", "batchpond.cli.simulate",
    "batchpond.interop.imports", "batchpond.plan.verb", "batchpond.results.report.build", "batchpond.run.live.run",
    "batchpond.run.submit", "batchpond.run.sync", "batchpond.study.file", "batchpond.views.read",
    "batchpond_sim.host.server",
)  # fmt: skip
REQUEST_BYTES_MAX = 1 << 17
_PROGRAM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
    asked.connect({path!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [request], [0, 1, 2])
    code = asked.recv(1)
sys.exit(code[0] if code else "it ended without a word")
"""


@contextmanager
def program(folder: Path) -> Iterator[Path]:
    """Start the process that is forked; yields a folder with `batchpond` in it, for PATH."""
    path = folder / "socket"
    variables = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.rigs.forked", str(path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        tool = folder / "batchpond"
        tool.write_text(_PROGRAM.format(python=sys.executable, path=str(path)))
        tool.chmod(0o755)
        try:
            yield folder
        finally:
            process.communicate()


def serve(path: str) -> None:
    """Fork a child for every request on a socket, until whoever started this closes stdin, or dies."""
    spare()
    for name in LOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children: they answer by themselves
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen(64)
        os.write(1, b"ready\n")
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            asked, _ = listening.accept()
            with asked:
                if os.fork() == 0:
                    listening.close()
                    _answer(asked)


def _answer(asked: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES_MAX, 3)
    arguments, folder, variables = json.loads(request)
    for own, given in enumerate(descriptors):
        os.dup2(given, own)
        os.close(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["batchpond", *arguments]
    code = 1
    try:
        code = main(arguments)
    except SystemExit as ended:  # from completion, which click ends by itself
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        asked.send(bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
