"""10,000 live requests, killed 20 times on the way: `python -m tests.sweeps.live_kills [pytest options]`.

Prints how many were in doubt: at most the calls at once for each kill, each of them a row of `doubts`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.process.test_live_kills import SCALE
from tests.sweeps import played

if __name__ == "__main__":
    os.environ[SCALE] = "full"
    test = f"{Path(__file__).parents[1] / 'process' / 'test_live_kills.py'}::test_killed_again_and_again_at_any_moment"
    sys.exit(played(test, "-s", *sys.argv[1:]))
