"""A year of a lake that is used every day: `python -m tests.sweeps.soak [--days 365] [--seed 0] [--no-lens]`.

Prints what it came to at the end of every week, and each promise or bound that was broken; exits 1 when any was.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.rigs import soak


def _say(week: soak.Week) -> None:
    sys.stdout.write(f"{week}\n")
    sys.stdout.flush()


def main() -> int:
    """Play the year and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-lens", action="store_true", help="leave out the views, which are most of the time")
    asked = parser.parse_args()
    started_s = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        year = soak.play(Path(folder), asked.days, seed=asked.seed, with_lens=not asked.no_lens, told=_say)
    sys.stdout.write("".join(f"{problem}\n" for problem in year.problems))
    sys.stdout.write(f"{year}; {time.process_time() - started_s:.0f} CPU s\n")
    return 1 if year.problems else 0


if __name__ == "__main__":
    sys.exit(main())
