"""SIGKILL at every failpoint at every provider, as processes: `python -m tests.sweeps.kills [pytest options]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.test_kill_sweep import EVERYTHING

if __name__ == "__main__":
    os.environ[EVERYTHING] = "all"
    sys.exit(pytest.main([os.fspath(Path(__file__).parents[1] / "test_kill_sweep.py"), *sys.argv[1:]]))
