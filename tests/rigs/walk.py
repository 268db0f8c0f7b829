"""Which modules a command enters, as it runs: a function of a module is called, not merely the module loaded.

`python -m tests.rigs.walk FILE COMMAND ...` runs a command of batchpond and writes their names to FILE, a line each.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import batchpond
from batchpond.cli import main

ROOT = f"{Path(batchpond.__file__).parent}/"
FUNCTION = 0x1  # CO_OPTIMIZED: neither a module's body nor a class's


def walk(arguments: list[str]) -> tuple[int, list[str]]:
    """Run a command in this process; return its exit code and the modules entered by any of its threads, in order."""
    known: dict[CodeType, None] = {}

    def see(frame: FrameType, _event: str, _argument: Any) -> None:  # of calls alone: it asks for no lines
        if frame.f_code not in known and not _is_importing(frame):
            known[frame.f_code] = None

    threading.settrace(see)
    sys.settrace(see)
    code = main(arguments)
    sys.settrace(None)
    files = dict.fromkeys(code.co_filename for code in known if code.co_flags & FUNCTION)
    entered = [file.removeprefix(ROOT).removesuffix(".py") for file in files if file.startswith(ROOT)]
    return code, [name.replace("/", ".").removesuffix(".__init__") for name in entered if name != "__init__"]


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a call is made by the body of one of batchpond's modules, while it is loaded."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(ROOT):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    exit_code, modules = walk(sys.argv[2:])
    Path(sys.argv[1]).write_text("\n".join(modules))
    sys.exit(exit_code)
