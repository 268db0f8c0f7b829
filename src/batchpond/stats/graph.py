"""What a win table connects: components that can be compared, and those in which everybody can be overtaken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchpond.stats.arrays import Bools, Ints
from batchpond.stats.votes import HI_WON, LO_WON, TIED, Votes


def components(votes: Votes) -> Ints:
    """Return each item's component: items that votes connect, however indirectly.

    Components are numbered from 0 in the order of their first items; an item without any vote is -1.
    """
    judged = votes.decided()
    label = np.arange(votes.n_items)
    while True:
        lowest = np.minimum(label[judged.lo], label[judged.hi])
        following = label.copy()
        np.minimum.at(following, judged.lo, lowest)
        np.minimum.at(following, judged.hi, lowest)
        # A label is an item too: taking that item's label halves the way to the lowest one.
        following = following[following]
        if np.array_equal(following, label):
            break
        label = following
    has_votes = np.zeros(votes.n_items, dtype=np.bool_)
    has_votes[judged.lo] = has_votes[judged.hi] = True
    _, numbered = np.unique(label[has_votes], return_inverse=True)
    result = np.full(votes.n_items, -1, dtype=np.int64)
    result[has_votes] = numbered
    return result


def beats(votes: Votes) -> Bools:
    """Return who won against whom at least once, shape (items, items); a tie is half a win for both."""
    lo_won, hi_won = (votes.results[won] + votes.results[TIED] > 0 for won in (LO_WON, HI_WON))
    matrix = np.zeros((votes.n_items, votes.n_items), dtype=np.bool_)
    matrix[votes.lo[lo_won], votes.hi[lo_won]] = True
    matrix[votes.hi[hi_won], votes.lo[hi_won]] = True
    return matrix


@dataclass(frozen=True, slots=True)
class Core:
    """The largest group in which everybody beat everybody else through a chain of wins, and who stands outside.

    Ford (1957): the plain estimate exists only if one such group is all there is. Nothing bounds the distance
    of an item `above` from below it (there is no chain of losses back into the group), nor of one `below`;
    an item that no chain of wins connects either way is both. Without a single largest group, all are both.
    """

    n_groups: int
    above: Bools
    below: Bools

    @property
    def is_whole(self) -> bool:
        """Whether the plain estimate exists."""
        return self.n_groups == 1


def core(matrix: Bools) -> Core:
    """Find the core of one component from who beat whom."""
    groups = sorted(_strong_components(matrix), key=len)
    largest = groups[-1]
    is_single = len(groups) == 1 or len(groups[-2]) < len(largest)
    if len(largest) < 2 or not is_single:
        everybody = np.full(len(matrix), len(matrix) > 1)
        return Core(len(groups), everybody, everybody)
    everybody = np.ones(len(matrix), dtype=np.bool_)
    start = int(largest[0])
    is_beaten, beats_it = _reached(matrix, everybody, start), _reached(matrix.T, everybody, start)
    return Core(len(groups), ~is_beaten, ~beats_it)


def _strong_components(matrix: Bools) -> list[Ints]:
    left = np.ones(len(matrix), dtype=np.bool_)
    wins, losses = matrix.sum(axis=1), matrix.sum(axis=0)
    groups: list[Ints] = []
    while left.any():
        alone = np.flatnonzero(left & ((wins == 0) | (losses == 0)))
        group = alone[:1] if len(alone) else _around(matrix, left)
        groups.append(group)
        left[group] = False
        wins -= matrix[:, group].sum(axis=1)
        losses -= matrix[group].sum(axis=0)
    return groups


def _around(matrix: Bools, left: Bools) -> Ints:
    """Return the strong component of the first item that is left."""
    start = int(np.flatnonzero(left)[0])
    return np.flatnonzero(_reached(matrix, left, start) & _reached(matrix.T, left, start))


def _reached(matrix: Bools, left: Bools, start: int) -> Bools:
    reached = np.zeros_like(left)
    reached[start] = True
    frontier = np.array([start])
    while len(frontier):
        new = matrix[frontier].any(axis=0) & left & ~reached
        reached |= new
        frontier = np.flatnonzero(new)
    return reached
