"""The notebook that `init --notebook` writes, run by marimo itself over loopback HTTP against the simulator."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import batchpond

PROGRAM = (sys.executable, "-m", "batchpond")
ABILITY = re.compile(r'"theta":-?\d')
EXPORT = (sys.executable, "-m", "marimo", "--quiet", "export", "html", "notebook.py", "--force", "-o")


def run(folder: Path, *command: str) -> None:
    env = os.environ | {"BATCHPOND_INTERVAL_S": "0.2"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def shown(page: Path) -> str:
    """Return what the cells show: a frame stands in the page as JSON within JSON within HTML. None of them failed."""
    text = page.read_text("utf-8")
    assert "marimo+error" not in text
    return html.unescape(html.unescape(text.encode().decode("unicode_escape"))).replace("\\", "")


def test_the_notebook_runs_before_and_after_there_are_answers(tmp_path: Path) -> None:
    """Each cell shows something and none fails; it spends nothing by being opened, and ranks once there are answers."""
    run(tmp_path, *PROGRAM, "init", "--example", "pairwise", "--notebook")
    simulated = (*PROGRAM, "simulate", "--")
    run(tmp_path, *simulated, *EXPORT, "before.html")
    assert batchpond.Lake(tmp_path / "lake").sql("select count(*) from attempts").item() == 0
    before = shown(tmp_path / "before.html")
    assert "132 requests to ask" in before
    assert not ABILITY.search(before)
    run(tmp_path, *simulated, *PROGRAM, "run", "study.toml", "--yes")
    run(tmp_path, *simulated, *EXPORT, "after.html")
    after = shown(tmp_path / "after.html")
    assert "`essays`: 0 requests to ask" in after or "essays</code>: 0 requests to ask" in after
    assert ABILITY.search(after)
