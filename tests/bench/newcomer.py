"""What somebody new waits for, in three ways and step by step, by the commands that README and guides show.

    python -m tests.bench.newcomer                # installation, too
    python -m tests.bench.newcomer --installed    # from the demo on, with the program that is here

1. From README to the demo's tables: a copy of the checkout, the commands under "Try it". pip takes packages from where
   it is told to, from a folder of wheels as well (`PIP_FIND_LINKS`, `PIP_NO_INDEX`).
2. From 50 texts of one's own to consistency and a report: the five commands under "Your own study", a simulator in the
   place of the provider. The texts take the place of the sample that the first command writes.
3. From a folder of pairwiseLLM to the same numbers: the first block of that guide, with its files and what it prints.

Each step is printed with the CPU of all its processes and by the clock. A step whose command fails, or prints anything
else than its page says, ends it. Limits, in CPU seconds of a way: 60, 30, 10; exits 1 where one is passed.
"""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.rigs import pages
from tests.rigs.pages import GUIDES, ROOT, Block, Desk

N_TEXTS = 50
LIMITS_S = {"README to the demo's tables": 60.0, "50 texts to consistency": 30.0, "a pairwiseLLM folder": 10.0}
WORDS = ("school", "should", "start", "later", "because", "students", "who", "sleep", "longer", "learn", "more")
Step = tuple[str, Callable[[], object]]


def shell(page: Path, beginning: str) -> Block:
    """Return the first shell block of a page that has a line beginning so; raises StopIteration where there is none."""
    return next(
        block
        for block in pages.blocks(page)
        if block.language == "sh" and any(line.startswith(beginning) for line in block.text.splitlines())
    )


def checkout(folder: Path) -> Path:
    """Return a copy of what git has of this checkout, as it stands."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def line(at: Desk, command: str) -> Step:
    """Return the step of one command, at a desk where somebody answers its question."""
    return command, partial(at.take, Block(0, "sh", "", command))


def try_it(folder: Path, at: Desk, *, is_installed: bool) -> Iterator[Step]:
    """Yield the steps under README's "Try it"."""
    commands = shell(ROOT / "README.md", "python3 -m venv").text.strip().split(" && ")
    if is_installed:
        yield line(at, commands[-1].rpartition("/")[2])
        return
    yield "a copy of the checkout", partial(checkout, folder)
    at.variables.pop("PYTHONPATH", None)
    for command in commands:
        yield line(at, command)


def own_study(at: Desk) -> Iterator[Step]:
    """Yield the steps under README's "Your own study": its commands but for keys, with texts of one's own."""
    commands = [re.sub(r" +#.*", "", one) for one in shell(ROOT / "README.md", "batchpond init").text.splitlines()]
    first, *others = [one for one in commands if one.startswith("batchpond ")]
    yield line(at, first)
    yield f"{N_TEXTS} texts into samples.csv", lambda: write_texts(at.folder / "samples.csv")
    for command in others:
        yield line(at, command)
    yield "(the report shows consistency)", lambda: shows(at.folder / "report.html", "consisten")


def from_pairwisellm(at: Desk) -> Iterator[Step]:
    """Yield the steps of the guide's first shell block, the files before it and what it prints."""
    blocks = pages.blocks(GUIDES / "from-pairwisellm.md")
    end = next(place for place, block in enumerate(blocks) if block.fate == "output")
    for block in blocks[: end + 1]:
        if block.is_run:
            for command in block.text.strip().splitlines():
                yield line(at, command)
        else:
            yield f"({block.fate})", partial(at.take, block)


def write_texts(path: Path) -> None:
    """Write texts of some hundred words."""
    draw = random.Random(1)
    rows = [f"w{number:02d},{' '.join(draw.choices(WORDS, k=100))}" for number in range(N_TEXTS)]
    path.write_text("\n".join(["id,text", *rows]) + "\n", "utf-8")


def shows(path: Path, word: str) -> None:
    """Fail where a file does not show a word."""
    assert word in path.read_text("utf-8"), f"{path.name} says nothing of {word}"


def cpu_s() -> float:
    """Return the CPU of all that this process started and has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(way: str, steps: Iterable[Step]) -> bool:
    """Take the steps of a way and print what each took; return whether its limit holds."""
    print(way)
    total_s, start_s = 0.0, time.monotonic()
    for name, take in steps:
        before, began_s = cpu_s(), time.monotonic()
        take()
        total_s += (taken_s := cpu_s() - before)
        print(f"  {taken_s:6.1f} CPU s {time.monotonic() - began_s:6.1f} s  {name}", flush=True)
    limit_s = LIMITS_S[way]
    over = "" if total_s <= limit_s else "  TOO MUCH"
    print(f"  {total_s:6.1f} CPU s {time.monotonic() - start_s:6.1f} s  in all, of {limit_s:.0f} CPU s{over}")
    return total_s <= limit_s


def main() -> int:
    """Go the three ways, each in a folder and with accounts of its own."""
    is_installed = sys.argv[1:] == ["--installed"]
    held = []
    for number, way in enumerate(LIMITS_S):
        with tempfile.TemporaryDirectory(prefix="batchpond-new-") as name, pages.providers() as simulated:
            folder = Path(name)
            at = pages.desk(folder, folder, simulated)
            os.chdir(folder)
            ways = (try_it(folder, at, is_installed=is_installed), own_study(at), from_pairwisellm(at))
            held.append(timed(way, ways[number]))
            os.chdir(ROOT)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
