"""Do the intervals of `rank` cover? `python -m tests.sweeps.coverage [--sets 400] [--first 0] [--only NAME]`.

Per design it draws that many sets of votes with a known truth and prints which share of the 95 % intervals
of theta, of the places and of the position effect hold it, how often an end of theta is open, how wide the
places are, and how often the position test is below .05 where there is no effect. Exits 1 when a coverage
of theta is outside .93 to .98 (.99 for five items), or the test is wrong too often.

The band holds for 20 items and more, and for candidates over prompts: .952 to .975 on 400 sets each. Five items
with two votes a pair are covered in .984, .983 of those that somebody beat and that beat somebody: there the model's
own intervals cover .986 of what they should cover .95, because so few votes leave estimates where the penalty pulls
them, near 0, and near 0 is where truths are. Intervals are wider than need be then, never narrower, and no smaller
quantile would be right: where an item won or lost nearly all, CR3 alone covers .915.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.rigs.rank_planted import DESIGNS, Tally, play

LOWEST = 0.93
FALSE_MAX = 0.05


def main() -> int:
    """Play all designs and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=DESIGNS)
    arguments = parser.parse_args()
    is_bad, pooled = False, Tally()
    for name, design in DESIGNS.items():
        if arguments.only not in (None, name):
            continue
        tally, start_s = Tally(), time.perf_counter()
        for seed in range(arguments.first, arguments.first + arguments.sets):
            play(design, seed, tally)
        shown = {key: f"{tally.rate(key):.3f}" for key in tally.total}
        is_off = not LOWEST <= tally.rate("theta") <= design.coverage_max
        # Three standard errors of a rate of .05 over this many sets.
        limit = FALSE_MAX + 3 * (FALSE_MAX * (1 - FALSE_MAX) / arguments.sets) ** 0.5
        is_off |= bool(tally.total["position_p"]) and tally.rate("position_p") > limit
        is_bad |= is_off
        mark = "  <- outside" if is_off else ""
        for whole, part in ((pooled.hits, tally.hits), (pooled.total, tally.total)):
            whole.update(part)
        print(f"{name:30} {shown} {time.perf_counter() - start_s:.0f} s{mark}", flush=True)
    print(f"{'all designs':30} { ({key: f'{pooled.rate(key):.3f}' for key in pooled.total}) }")
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
