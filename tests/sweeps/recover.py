"""A lake of 57 batches of three providers, in two stages, deleted and made again with nothing bought.

`python -m tests.sweeps.recover [pytest options]`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.flow.test_recover import ALL_BATCHES
from tests.sweeps import played

if __name__ == "__main__":
    os.environ[ALL_BATCHES] = "all"
    test = Path(__file__).parents[1] / "flow" / "test_recover.py"
    sys.exit(played(os.fspath(test), "-k", "stages_over_three_providers", *sys.argv[1:]))
