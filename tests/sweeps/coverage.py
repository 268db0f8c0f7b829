"""Do intervals cover? `python -m tests.sweeps.coverage`.

Options: `[--sets 400] [--first 0] [--of rank|pairs|general|candidates|corrected|agreement|compared|jury|cascade|lists|
pressure] [--only NAME]`.

Behind a design stands `outside` as said below, and, of `pairs`, `general`, `candidates`, `jury`, `cascade` and
`pressure`, `wide` where one covers more than .985 or, without an effect, a test rejects less than .015: no failure.

Of `rank`, per design it draws that many sets of votes with a known truth and prints which share of the 95 % intervals
of theta, of the places and of the position effect hold it, how often an end of theta is open, how wide the
places are, and how often the position test is below .05 where there is no effect. Exits 1 when a coverage
of theta is outside .93 to .98 (.99 for five items), or the test is wrong too often. `ranks_joint` is the share of sets
in which all places hold at once: .995 to 1.000 on 400 sets each, for where strengths differ only a pair that seems
surely the other way round can put a place outside; .95 is reached where all are equal.

The band holds for 20 items and more, and for candidates over prompts: .952 to .975 on 400 sets each. Five items
with two votes a pair are covered in .984, .983 of those that somebody beat and that beat somebody: there the model's
own intervals cover .986 of what they should cover .95, because so few votes leave estimates where the penalty pulls
them, near 0, and near 0 is where truths are. Intervals are wider than need be then, never narrower, and no smaller
quantile would be right: where an item won or lost nearly all, CR3 alone covers .915.

100 sets each with votes missing by position, with one order asked thrice, and with ties by Davidson's law (as half a
win each against what the model fits to the expected votes, which are drawn together, and by `--ties davidson` against
the strengths): theta .958 to .965, places .975 to .986.

With 3 and 5 repeats, 300 sets each: theta .948 to .956, places .976 to .991, all at once .997 and more, the position
effect .950 to .973.

200 sets each of eleven designs, most of strengths that are far apart (sd 2 to 4), in which up to a third of the items
only won or only lost: their closed ends hold the strength in .991 to 1.000 (one-sided, .975 is meant), their places in
.983 to 1.000; intervals that are closed .937 and more, but for 20 prompts (.889, .883 with plain CR3). With plain CR3
all items were one tied group in up to .207 of sets, now in up to .020.

300 sets each, five items a sd of 4 apart: closed intervals hold .938, .940 and .951 with 12, 20 and 60 prompts, by t
with Satterthwaite's degrees of freedom of what the prompts say, and errors no smaller than the model's; with a normal
quantile and CR3 alone .875, .878 and .899. Of items a sd of .5 apart .969 with 20 prompts and .953 with 60.

Of `pairs`, through the views, every set a cell: which share of the intervals of the position effect, of consistency
and of conflict hold the truth, for items in general and for these items, and how often the tests reject. For items in
general it is outside where coverage is below .93 or, without an effect, a test rejects more than .07, either by more
than three standard errors. What is said of these items is judged in the designs whose items are the same in all sets,
and there alone: where items are drawn anew it speaks of others.

500 sets each, items in general: the mean effect within .01 of the truth with repeats, ties or missing answers (300
sets), covered .942 to .994 (1.000 of 10 items: wider than need be, as few items leave few flips), consistency .936 to
.972, the test wrong in .000 to .058. At an effect of .3, 20 items and 190 pairs it finds .38 with one vote per order
and .74 with two, the test of these items .51 and .86. More
sets say it better: of six seeds with 4,000 sets each, one vote per order, .394 to .411 (.402 of all 24,000) and, of
these items, .540 to .564 (.549); of three seeds with 2,000 each, two votes, .735 to .748 and .865 to .880. Of few items
the interval is wide and the test careful: 4,000 sets each, covered .998 and .999 of 10 items, .993 and .994 of 12, .985
and .987 of 15, wrong in .001 to .002, .006 to .007 and .013 to .015. Items that differ by a sd of 1 are seen in .70 of
sets, of 2 in 1.00, estimated as .73 and 1.13. Of ties, consistency is covered .936 and .958, conflict .968 and .974.

500 sets each, these items, with 1, 2, 3 and 5 repeats, ties, missing answers and one order asked thrice: the effect is
covered .946 to .980 and its test wrong in .034 to .054, consistency .946 to .976 and conflict .940 to .976, and .994
with 5 repeats: wider than need be, as pairs are draws there and not votes.

Of `general`, through the views, every set a study of two templates: which share of the intervals of the difference of
their consistent shares, of their failures, and of the share of wins by the longer text hold the truth, and how often
the tests reject, for items in general and, not judged, for these items. It is outside where coverage is below .93 or,
without a difference, a test rejects more than .07, either by more than three standard errors.

500 sets each, items in general: differences of consistency covered .966 to .982, the test wrong in .018 to .034;
failures .948 to .996 (wider than need be where they are rare) and .004 to .052; wins of the longer text .940 to .952
and .048 to .060, where an interval for these items covers .520 to .824. With 2, 3 and 5 repeats differences of
consistency are covered .948 to .964, failures .931 to .970, wins of the longer text .934 to .944 (2,500 sets of 5
repeats: .939, .931 and .934, where little but 20 items' own differences is left).

Of `candidates`, through the views, every set a cell: which share of the intervals of a matrix's consistency and of the
win rates of longer and shorter outputs hold the truth for other prompts under the same statements or, where statements
are drawn too, in general. Outside where one covers less than .93 by more than three standard errors.

300 sets each, eleven designs of one vote per order: consistency is covered .917 to .977, win rates .903 to 1.000. With
pairs as draws, where six statements share their prompts, that would be .76 to .82 and .79 to .91; in general, with
statements alone as draws, .64 to .87 and .72 to .93. Below 5 prompts with a longer output, as in a fifth of the sets
of 12 prompts, there is none.

500 sets each, five designs of 1, 2, 3 and 5 votes per order: consistency is covered .954 to .984, the win rate .950
to .977 and by length .938 to .984. With four tenths of all votes ties, and of one order missing, in five designs:
consistency .946 to .984, the win rate .954 to .972, by length .944 to .984. Pairs that count half are worth more than
their number as draws; with that as the most, the win rate was covered .996.

Of `corrected`, through the views, every set a study: which share of the intervals of a rate corrected by people's
labels hold it, for statements in general and for these statements, and how many sets have none. For statements in
general it is outside where coverage of PPI++, Rogan-Gladen or the labels alone is below .93 by more than three standard
errors of the sets that have one.

1,000 sets each, statements in general: PPI++ covers .936 to .972, the labels alone .940 to .988, Rogan-Gladen .933 to
.988, of which 98 in 100 sets have none with 10 labels. For these statements, of ten that differ by a sd of 1.5, the
three cover the rate of statements in general in .592, .693 and .788. Where statements share outputs that differ
by a sd of 1, 1,600 sets each, PPI++ covers .951 and .963, Rogan-Gladen .954 and .980, the labels alone .946 and .959;
with statements alone as draws it would be .890 and .917, .934 and .973, .901 and .926. The judge's own rate over all
statements (`overall`, of how often it says yes) covers .944 and .956, and .951 where outputs differ by a sd of .5; with
statements alone .894, .929 and .911. 600 sets each, with 2, 3 and 5 repeats of which each is right of .75: PPI++ covers
.937 to .968, Rogan-Gladen .947 to .972, `overall` .943 to .973.

500 sets each of 400 to 2,000 outputs, of which 100 are labelled, five times as likely where two judges differ: weighed
by strata, PPI++ covers .934 to .992, Rogan-Gladen .980 to 1.000, the labels alone .952 to .966, and none is off by more
than .008 on average; without weights Rogan-Gladen is off by .10 to .18 and covers .704 to .906, the labels alone by .04
to .06 and cover .840 to .896. Shared out by doubt (a third by what is taken of judges, the rest by what people said)
PPI++ covers .938 to .994, with intervals .69, .87 and .92 as wide as by strata in their true shares; those of the
labels alone are 1.1 as wide.

Of `agreement`, through the views, every set a study of three judges: which share of the intervals of kappa, of raw
agreement, of unanimity, of alpha and of AC1 hold what they are for all items, of items in general and, not judged, of
these items. It is outside where one for items in general covers less than .93 by more than three standard errors.

500 sets each, 4,000 where that was above .985, items in general: kappa covers .948 to .978, agreement .948 to .976,
unanimity .956 to .974, alpha .946 to .968, AC1 .942 to .981; what is said of these items .498 to .924. 300 sets each,
with 2, 3 and 5 repeats and with two fifths of one order missing: kappa .947 to .980, agreement .957 to .970, alpha
.953 to .963, AC1 .950 to .977. Unanimity, 2,000 sets each, .953 to .961 with repeats (of all votes together it was
.003 to .360), and .922 with answers missing, as fewer judges agree more easily. With a pair's own
variance taken off once, as for consistency, kappa covered .914 to .948, alpha and AC1 from .926.

Of `compared`, through `compare`, every set a study of two templates: which share of the intervals of the difference of
their scores, or compliance, hold the truth, and how often the tests reject, for items in general and, not judged, for
these items. It is outside where coverage is below .93 or, without a difference, a test rejects more than .07, either by
more than three standard errors. Of pairs it is `metric_paired`'s, to the digit: `general` plays it.

300 sets each, items in general: covered .953 to .977, the test wrong in .033 to .040; what is said of these items .863
to .983 and, of 8 prompts, wrong in .137.

Of `jury`, through the views, every set a study of three to five judges and people's labels: which share of the
intervals of the jury's unanimity, of its majority, of the majority's accuracy and of the weighted jury's hold the
truth, for items in general. Outside where one covers less than .93 by more than three standard errors.

500 sets each, eleven designs: unanimity covers .930 to .980, a majority .948 and more, its accuracy .926 to .966, the
weighted jury's .944 to .992, and 4,000 sets each of what was near a bound: .946 (repeats), .980 (40 labels of 200),
.985 (hard items), .986 (30 items). With weights that stand still it covered .863 to .960, and by leaving out a
twentieth of the labels at a time .944 to .998. By halves its error is .054 to .127 in the mean where .049 to .102 is
right; by twentieths it was .069 to .193. Of labelled pairs (six designs, 400 sets, in numpy): .965 to .990. A majority
of an odd jury that all speak is 1 in every set: exact, not an approximation.

Of `cascade`, in the same way: two judges of all, a third where they differ and on audits: agreement, what audits
confirm, the cascade's share of a word, and the third judge's, corrected for what it was asked about. 600 sets each,
eight designs: agreement covers .943 to .972, confirmation .955 to .980, the share .945 to .968, the corrected share
.942 to .983, and .995 where audits nearly all confirm; uncorrected, the third judge's share is off by up to .095.

Of `lists`, through the views and `rank`, every set a study: which share of the intervals of the share of bests and of
the mean rank of each place, of consistency and of theta hold the truth, and how often the tests of places reject. It is
outside where coverage is below .93 or, without any bias, a test rejects more than .07, either by more than three
standard errors.

300 sets each, nine designs: shares of bests .958 to .973, mean ranks .967 to .980, consistency .947 to .983 (what pairs
share by an item and by a list is counted twice), theta .936 to .957, of orders and of bests alone; the tests are wrong
in .020 to .040, and see that the first of four gains .8 in log-strength in .302 (orders) and .477 (bests) of places.

300 sets each, four designs of three judges, items in general: kappa is covered .953 to .980, agreement .940 to .963,
unanimity .953 to .970, alpha .950 to .963; with lists alone as draws kappa would be .735 to .840.

Of `pressure`, through the views, every set a study of one candidate on 12 or 30 questions: which share of the intervals
of flips, of right and of wrong answers, of accuracy, survival, slopes and flips taken back hold what one vote of each
level says on average, for other questions. Outside where one covers less than .93 by more than three standard errors.

400 sets each, eleven designs of 1, 2, 3 and 5 repeats: the rates of a level cover .927 to .985, survival .915 to .968,
slopes .925 to .973, flips taken back .907 to .978, flips at any level .927 to .980, and means are within .014 of what
is planted (.029 of 12 questions). By the label of most votes, flips at any level were .26 with 2 repeats and .44 with
3, where .65 is planted: covered .040 and .390.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from types import ModuleType

from tests.rigs import (
    agreement_planted,
    candidates_planted,
    cascade_planted,
    compared_planted,
    corrected_planted,
    general_planted,
    jury_planted,
    lists_planted,
    pairs_planted,
    pressure_planted,
)
from tests.rigs.rank_planted import DESIGNS, Tally, play

KINDS = (
    "rank", "pairs", "general", "candidates", "corrected", "agreement", "compared", "jury", "cascade", "lists",
    "pressure",
)  # fmt: skip
LOWEST = 0.93
HIGHEST = 0.985
FALSE_MAX = 0.05
FALSE_MIN = 0.015
SIZE_MAX = 0.07
KNOWN = (
    *DESIGNS, *pairs_planted.DESIGNS, *general_planted.DESIGNS, *corrected_planted.DESIGNS, *agreement_planted.DESIGNS,
    *compared_planted.DESIGNS, *jury_planted.DESIGNS, *cascade_planted.DESIGNS, *lists_planted.DESIGNS,
    *candidates_planted.DESIGNS, *pressure_planted.DESIGNS,
)  # fmt: skip


def main() -> int:
    """Play what is asked for; 1 where something is outside."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--of", choices=KINDS)
    parser.add_argument("--only", choices=KNOWN)
    arguments = parser.parse_args()
    is_bad = False
    if arguments.of in (None, "pairs"):
        is_bad |= of_pairs(arguments.sets, arguments.first, arguments.only)
    if arguments.of in (None, "general"):
        is_bad |= of_general(arguments.sets, arguments.first, arguments.only)
    if arguments.of in (None, "candidates"):
        is_bad |= of_jury(arguments.sets, arguments.first, arguments.only, candidates_planted)
    if arguments.of in (None, "corrected"):
        is_bad |= of_corrected(arguments.sets, arguments.first, arguments.only)
    if arguments.of in (None, "agreement"):
        is_bad |= of_agreement(arguments.sets, arguments.first, arguments.only)
    if arguments.of in (None, "compared"):
        is_bad |= of_compared(arguments.sets, arguments.first, arguments.only)
    if arguments.of in (None, "jury"):
        is_bad |= of_jury(arguments.sets, arguments.first, arguments.only, jury_planted)
    if arguments.of in (None, "cascade"):
        is_bad |= of_jury(arguments.sets, arguments.first, arguments.only, cascade_planted)
    if arguments.of in (None, "pressure"):
        is_bad |= of_jury(arguments.sets, arguments.first, arguments.only, pressure_planted)
    if arguments.of in (None, "lists"):
        is_bad |= of_lists(arguments.sets, arguments.first, arguments.only)
    if arguments.of in (None, "rank"):
        is_bad |= of_rank(arguments)
    return int(is_bad)


def marked(is_off: bool, covered: Iterable[float], rejected: Iterable[float] = ()) -> str:
    """Return what stands behind a design's line: it is outside, or wider than need be, which is no failure."""
    is_wide = max(covered) > HIGHEST or min(rejected, default=FALSE_MIN) < FALSE_MIN
    return "  <- outside" if is_off else "  <- wide" if is_wide else ""


def of_corrected(n_sets: int, seed: int, only: str | None) -> bool:
    """Play the designs of corrected rates and print a line for each; returns whether one is outside."""
    is_bad = False
    for name, design in corrected_planted.DESIGNS.items():
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = corrected_planted.play(design, n_sets, seed)
        is_off = False
        for rate in {*corrected_planted.CORRECTED, corrected_planted.OVERALL} & found.keys():
            n = n_sets * (1 - found[f"{rate} lacks"])
            is_off |= (
                n > 0
                and not name.endswith("without weights")
                and found[rate] < LOWEST - 3 * (FALSE_MAX * (1 - FALSE_MAX) / n) ** 0.5
            )
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in found.items()}
        print(f"{name:34} {shown} {time.perf_counter() - start_s:.0f} s{'  <- outside' if is_off else ''}", flush=True)
    return is_bad


def of_agreement(n_sets: int, seed: int, only: str | None) -> bool:
    """Play the designs of agreement and print a line for each; returns whether one is outside."""
    is_bad, error = False, (FALSE_MAX * (1 - FALSE_MAX) / n_sets) ** 0.5
    for name, design in agreement_planted.DESIGNS.items():
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = agreement_planted.play(design, n_sets, seed)
        of_general = (share for key, share in found.items() if key.endswith(agreement_planted.IN_GENERAL))
        is_off = min(of_general) < LOWEST - 3 * error
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in found.items()}
        print(f"{name:30} {shown} {time.perf_counter() - start_s:.0f} s{'  <- outside' if is_off else ''}", flush=True)
    return is_bad


def of_jury(n_sets: int, seed: int, only: str | None, planted: ModuleType) -> bool:
    """Play the designs of juries, cascades or candidates and print a line for each; returns whether one is outside."""
    is_bad, error = False, (FALSE_MAX * (1 - FALSE_MAX) / n_sets) ** 0.5
    for name, design in planted.DESIGNS.items():
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = planted.play(design, n_sets, seed)
        covered = [found[rate] for rate in planted.RATES if rate in found]
        is_off = min(covered) < LOWEST - 3 * error
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in found.items()}
        print(f"{name:34} {shown} {time.perf_counter() - start_s:.0f} s{marked(is_off, covered)}", flush=True)
    return is_bad


def of_lists(n_sets: int, seed: int, only: str | None) -> bool:
    """Play the designs of lists and print a line for each; returns whether one is outside."""
    is_bad, error = False, (FALSE_MAX * (1 - FALSE_MAX) / n_sets) ** 0.5
    for name, design in lists_planted.DESIGNS.items():
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = lists_planted.play(design, n_sets, seed)
        is_off = any(share < LOWEST - 3 * error for key, share in found.items() if not key.startswith("p_"))
        if not (design.bias or design.lazy):
            is_off |= any(share > SIZE_MAX + 3 * error for key, share in found.items() if key.startswith("p_"))
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in found.items()}
        print(f"{name:34} {shown} {time.perf_counter() - start_s:.0f} s{'  <- outside' if is_off else ''}", flush=True)
    return is_bad


def of_compared(n_sets: int, seed: int, only: str | None) -> bool:
    """Play the designs of two sides compared and print a line for each; returns whether one is outside."""
    is_bad, error = False, (FALSE_MAX * (1 - FALSE_MAX) / n_sets) ** 0.5
    for name in compared_planted.DESIGNS:
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = compared_planted.play(name, n_sets, seed)
        is_off = found["covered"] < LOWEST - 3 * error
        is_off |= name.endswith("no difference") and found["p"] > SIZE_MAX + 3 * error
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in found.items()}
        print(f"{name:42} {shown} {time.perf_counter() - start_s:.0f} s{'  <- outside' if is_off else ''}", flush=True)
    return is_bad


def of_pairs(n_sets: int, seed: int, only: str | None) -> bool:
    """Play the designs of pairs and print a line for each; returns whether one is outside."""
    is_bad = False
    for name, design in pairs_planted.DESIGNS.items():
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = pairs_planted.play(design, n_sets, seed)
        error = (FALSE_MAX * (1 - FALSE_MAX) / n_sets) ** 0.5
        target = pairs_planted.OF_THESE if design.is_of_these else ""
        covered = [found.shares[f"{rate}{target}"] for rate in pairs_planted.TRUTHS]
        rejected = [] if design.eta else [found.shares[f"p_position{target}"]]
        is_off = min(covered) < LOWEST - 3 * error or max(rejected, default=0) > SIZE_MAX + 3 * error
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in (found.means | found.shares).items()}
        print(f"{name:30} {shown} {time.perf_counter() - start_s:.0f} s{marked(is_off, covered, rejected)}", flush=True)
    return is_bad


def of_general(n_sets: int, seed: int, only: str | None) -> bool:
    """Play the designs of two templates and print a line for each; returns whether one is outside."""
    is_bad, error = False, (FALSE_MAX * (1 - FALSE_MAX) / n_sets) ** 0.5
    for name, design in general_planted.DESIGNS.items():
        if only not in (None, name):
            continue
        start_s = time.perf_counter()
        found = general_planted.play(design, n_sets, seed)
        of_general = {key: share for key, share in found.items() if not key.endswith(pairs_planted.OF_THESE)}
        covered = [share for key, share in of_general.items() if not key.endswith(" p")]
        is_same = name.startswith("no difference")
        rejected = [share for key, share in of_general.items() if is_same and key.endswith(" p")]
        is_off = min(covered) < LOWEST - 3 * error or max(rejected, default=0) > SIZE_MAX + 3 * error
        is_bad |= is_off
        shown = {key: f"{value:.3f}" for key, value in found.items()}
        print(f"{name:38} {shown} {time.perf_counter() - start_s:.0f} s{marked(is_off, covered, rejected)}", flush=True)
    return is_bad


def of_rank(arguments: argparse.Namespace) -> bool:
    """Play the designs of rankings and print a line for each; returns whether one is outside."""
    is_bad, pooled = False, Tally()
    for name, design in DESIGNS.items():
        if arguments.only not in (None, name):
            continue
        tally, start_s = Tally(), time.perf_counter()
        for seed in range(arguments.first, arguments.first + arguments.sets):
            play(design, seed, tally)
        shown = {key: f"{tally.rate(key):.3f}" for key in tally.total}
        is_off = not LOWEST <= tally.rate("theta") <= design.coverage_max
        is_off |= tally.rate("theta_closed") < LOWEST
        # Three standard errors of a rate of .05 over this many sets.
        limit = FALSE_MAX + 3 * (FALSE_MAX * (1 - FALSE_MAX) / arguments.sets) ** 0.5
        is_off |= bool(tally.total["position_p"]) and tally.rate("position_p") > limit
        is_off |= tally.rate("ranks_joint") < LOWEST
        is_bad |= is_off
        mark = "  <- outside" if is_off else ""
        for whole, part in ((pooled.hits, tally.hits), (pooled.total, tally.total)):
            whole.update(part)
        print(f"{name:30} {shown} {time.perf_counter() - start_s:.0f} s{mark}", flush=True)
    print(f"{'all designs':30} { ({key: f'{pooled.rate(key):.3f}' for key in pooled.total}) }")
    return is_bad


if __name__ == "__main__":
    sys.exit(main())
