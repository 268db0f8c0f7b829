"""The pages that people read, README and guides, taken apart, and a folder in which their commands are run.

The first word after three backticks is a block's language; the second says what becomes of it:

    sh, python, sql                 run, in the order of the page
    sql no-rows: REASON             run, and may find nothing
    LANGUAGE no-run: REASON         not run
    LANGUAGE FILE                   written to FILE, before what follows is run
    text output                     lines, in this order, of what the block before printed on stdout
    toml                            a part of a study file, held against its schema
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import batchpond
from batchpond.demo import environment
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "src" / "batchpond" / "guides"
PAGES = (ROOT / "README.md", *sorted(GUIDES.glob("*.md")))
TIMEOUT_S = 60.0
_FENCE = re.compile(r"^```(\w*) ?(.*)$")
_ASKED = b"[y/N]: "


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, what becomes of it, and its lines."""

    line_number: int
    language: str
    fate: str
    text: str

    @property
    def reason(self) -> str | None:
        """Why it is not run, or may find nothing; None for a block that has no such excuse."""
        kind, _, reason = self.fate.partition(": ")
        return reason if kind in {"no-run", "no-rows"} else None

    @property
    def is_run(self) -> bool:
        """Whether it is a program that is run."""
        return self.language in {"sh", "python", "sql"} and not self.fate.startswith("no-run")


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page; raises ValueError for one that is not closed."""
    found: list[Block] = []
    opened: tuple[int, str, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif opened is None:
            opened, lines = (number, fence[1], fence[2]), []
        else:
            found.append(Block(*opened, "\n".join(lines) + "\n"))
            opened = None
    if opened is not None:
        raise ValueError(f"{page.name}:{opened[0]} is not closed")
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def code_spans(page: Path) -> list[str]:
    """Return what stands between single backticks outside of blocks."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


@dataclass
class Desk:
    """What a reader has: a folder, a terminal, a person at it who says yes, and simulated providers."""

    folder: Path
    variables: dict[str, str]
    printed: str = ""
    names: dict[str, Any] = field(default_factory=dict)

    def take(self, block: Block) -> None:
        """Do with one block what its first line says; fails with what went wrong."""
        if block.fate == "output":
            self._compare(block)
        elif block.is_run:
            getattr(self, f"_{block.language}")(block)
        elif block.fate and block.reason is None:
            target = self.folder / block.fate
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, "utf-8")

    def _sh(self, block: Block) -> None:
        """Run a block in a shell that has what the blocks before it exported, and keep what it exports."""
        kept = self.folder / ".exported"
        script = f"set -euo pipefail\n[ ! -e {kept} ] || . {kept}\n{block.text}\nexport -p > {kept}\n"
        code, self.printed, said = _at_a_terminal(["bash", "-c", script], self.folder, self.variables)
        assert code == 0, f"line {block.line_number} ended with {code}:\n{block.text}\n{said}"

    def _python(self, block: Block) -> None:
        code = compile(block.text, f"line {block.line_number}", "exec")
        exec(code, self.names)  # noqa: S102 - what a page shows is what is to be run

    def _sql(self, block: Block) -> None:
        found = batchpond.Lake("lake").sql(block.text)
        assert len(found) or block.reason, f"line {block.line_number} finds nothing:\n{block.text}"

    def _compare(self, block: Block) -> None:
        printed = iter(line.rstrip() for line in self.printed.splitlines())
        for line in block.text.splitlines():
            assert line.rstrip() in printed, f"line {block.line_number}: {line!r} is not printed in\n{self.printed}"


def _at_a_terminal(command: list[str], folder: Path, variables: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a program whose stdin and stderr are a terminal; returns its code, its stdout, what the terminal shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=variables, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    assert process.stdout is not None
    taken = {process.stdout.fileno(): bytearray(), ours: bytearray()}
    waiting = set(taken)
    while waiting:
        ready, _, _ = select.select(waiting, [], [], TIMEOUT_S)
        if not ready:
            process.kill()
            pytest.fail(f"silent for {TIMEOUT_S:.0f} s: {command[-1]}\n{taken[ours].decode()}")
        for descriptor in ready:
            _read(descriptor, taken, waiting)
            if descriptor == ours and taken[ours].endswith(_ASKED):
                os.write(ours, b"y\n")
    os.close(ours)
    with process.stdout:
        return process.wait(TIMEOUT_S), taken[process.stdout.fileno()].decode(), taken[ours].decode()


def _read(descriptor: int, taken: dict[int, bytearray], waiting: set[int]) -> None:
    try:
        data = os.read(descriptor, 65536)
    except OSError:  # Linux says so when the last one at the other end of a terminal has left it
        data = b""
    taken[descriptor] += data
    if not data:
        waiting.discard(descriptor)


@contextmanager
def providers() -> Iterator[dict[str, str]]:
    """Run simulated providers; yields the variables of somebody who uses them."""
    with server.running(Settings(seed=1, latency_s=(0.0, 0.0))) as simulator:
        yield environment(simulator)


def desk(folder: Path, tools: Path, simulated: Mapping[str, str]) -> Desk:
    """Return an empty desk in a folder, with the program of a folder on its PATH."""
    own = {"PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}
    own["BATCHPOND_MIRRORS"] = f"{folder}/mirrors"
    left = {name: value for name, value in os.environ.items() if not name.startswith("BATCHPOND_")}
    return Desk(folder, left | dict(simulated) | own)
