"""The program of an earlier commit, or of today's work tree, installed into an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install(commit: str | None, folder: Path) -> Path:
    """Install a commit, or the work tree, into an environment of the folder, and return that environment's Python."""
    tree = ROOT
    if commit is not None:
        tree = folder / "tree"
        tree.mkdir()
        archive = subprocess.run(
            ["/usr/bin/env", "git", "archive", commit], cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["/usr/bin/env", "tar", "-x", "-C", str(tree)], input=archive, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(tree)], check=True)
    return python
