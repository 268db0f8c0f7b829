"""Heavy runs, each a documented command whose figures stand in the guide `figures`."""

from __future__ import annotations

import subprocess
import sys


def played(*arguments: str) -> int:
    """Run tests and return pytest's exit code: in a process of its own, where it is there before what they import."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode
