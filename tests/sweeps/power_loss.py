"""The power fails at every failpoint at every provider, in several ways: `python -m tests.sweeps.power_loss [options]`.

Needs strace. `BATCHPOND_POWER_WAYS` says in how many ways beside the strict one; pytest's options follow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.rigs.swept import EVERYTHING
from tests.sweeps import played

if __name__ == "__main__":
    os.environ[EVERYTHING] = "all"
    os.environ.setdefault("BATCHPOND_POWER_WAYS", "3")
    sys.exit(played(os.fspath(Path(__file__).parents[1] / "process" / "test_power_loss.py"), *sys.argv[1:]))
