"""The public doors to batchpond, for tests that must outlive any move of its modules: the program and `simulate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-m", "batchpond")
BOUND_S = 300.0
_LINE = "export "


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command to its end in a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=BOUND_S, check=False,
        env=os.environ | dict(environment or {}),
    )  # fmt: skip


@contextmanager
def simulating(state: Path, *options: str) -> Iterator[dict[str, str]]:
    """Run `simulate` on a state folder; yields the environment that leads to it.

    A port that is asked for and taken, by another run of the same tests, is waited for.
    """
    for _ in deadline():
        command = [*PROGRAM, "simulate", "--state", os.fspath(state), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            try:
                found = _told(program)
                if found is not None:
                    yield found
                    return
            finally:
                program.terminate()
                program.communicate(timeout=BOUND_S)


def _told(program: subprocess.Popen[str]) -> dict[str, str] | None:
    """Return what `simulate` prints once it listens, None where its port is taken; its note comes after all lines."""
    assert program.stdout is not None
    assert program.stderr is not None
    note = program.stderr.readline()
    if "cannot listen" in note:
        return None
    assert note.startswith("note: simulating"), note + program.stderr.read()
    found: dict[str, str] = {}
    while True:
        name, _, value = program.stdout.readline().removeprefix(_LINE).strip().partition("=")
        found[name] = value
        if name == "TOGETHER_API_KEY":
            return found


def steer(environ: Mapping[str, str], route: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Call a control route of a running simulator, with POST where there is a body; returns its document."""
    root = environ["OPENAI_BASE_URL"].removesuffix("/openai/v1")
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{root}/_sim/{route}", data, timeout=BOUND_S) as answer:  # noqa: S310  # loopback
        found: dict[str, Any] = json.load(answer)
    return found


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Give this process the environment that a user has, for the length of a with block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def deadline(bound_s: float = BOUND_S) -> Iterator[int]:
    """Yield 1, 2, 3 ... a little apart, and fail once `bound_s` has passed."""
    end = time.monotonic() + bound_s
    number = 0
    while time.monotonic() < end:
        number += 1
        yield number
        time.sleep(0.05)
    raise AssertionError(f"not settled within {bound_s:.0f} s")
