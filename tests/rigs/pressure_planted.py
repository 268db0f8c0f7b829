"""Conversations under pressure with a planted truth: many sets, each a template, through the views."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, result, views_over

N_TRUTH = 200_000
N_LEVELS = 3
LABELS = np.array(["no_flip", "soft_flip", "explicit_flip", "initially_wrong"])
# the view, and the level that is looked at where a row is one
RATES = {
    "flip_rate": ("metric_pressure", 1),
    "regressive_rate": ("metric_pressure", 2),
    "progressive_rate": ("metric_pressure", 2),
    "accuracy": ("metric_pressure", 1),
    "survival": ("metric_pressure", 3),
    "flip_slope": ("metric_pressure_items", None),
    "monotone_violation_rate": ("metric_pressure_items", None),
    "ever_flip_rate": ("metric_pressure_overall", None),
}


@dataclass(frozen=True)
class Pressed:
    """A design: questions are drawn anew for each set, the tactics are the same in all.

    A question, and a question under a tactic, adds its own draws to the log-odds that a vote says flip, and that one
    finds the first answer right; every vote is a draw of its own.
    """

    n_questions: int = 30
    n_tactics: int = 2
    repeats: int = 1
    question_sd: float = 1.0
    talk_sd: float = 1.0
    start: float = -1.5  # log-odds of a flip at the first level
    step: float = 0.7  # what each level adds
    right: float = 1.2  # log-odds of a right first answer


DESIGNS = {
    **{f"{repeats} repeats": Pressed(repeats=repeats) for repeats in (1, 2, 3, 5)},
    **{f"12 questions, {repeats} repeats": Pressed(n_questions=12, repeats=repeats) for repeats in (1, 3)},
    **{f"6 tactics, {repeats} repeats": Pressed(n_tactics=6, repeats=repeats) for repeats in (1, 2, 5)},
    **{f"few flips, {repeats} repeats": Pressed(start=-3.0, step=0.3, repeats=repeats) for repeats in (1, 3)},
}


def _logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def _chances(design: Pressed, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Return the chances that a vote says right of the first answer, and flip of each level; tactics stand last."""
    own = rng.normal(0, design.question_sd, (*shape, 1, 2)) + rng.normal(
        0, design.talk_sd, (*shape, design.n_tactics, 2)
    )
    tactic = np.linspace(-0.3, 0.3, design.n_tactics)
    levels = design.start + design.step * np.arange(N_LEVELS)
    return _logistic(design.right + 2 * own[..., 0]), _logistic((own[..., 1] + tactic)[..., None] + levels)


def truths(design: Pressed) -> dict[str, float]:
    """Return what one vote of each level says on average over all questions; levels' rates are of the first tactic."""
    right, flips = _chances(design, (N_TRUTH,), np.random.default_rng(1))
    stays = 1 - flips
    slope = (np.arange(N_LEVELS) - (N_LEVELS - 1) / 2) / np.sum((np.arange(N_LEVELS) - (N_LEVELS - 1) / 2) ** 2)
    one, first = flips[:, 0], right[:, 0]
    monotone = sum(
        np.prod(1 - one[:, :level], axis=1) * np.prod(one[:, level:], axis=1) for level in range(N_LEVELS + 1)
    )
    return {
        "flip_rate": float(np.mean(one[:, 0])),
        "regressive_rate": float(np.sum(first * one[:, 1]) / np.sum(first)),
        "progressive_rate": float(np.sum((1 - first) * one[:, 1]) / np.sum(1 - first)),
        "accuracy": float(np.mean(first * (1 - one[:, 0]) + (1 - first) * one[:, 0])),
        "survival": float(np.mean(np.prod(1 - one, axis=1))),
        "flip_slope": float(np.mean(one @ slope)),
        "monotone_violation_rate": float(1 - np.mean(monotone)),
        "ever_flip_rate": float(np.sum(right * (1 - np.prod(stays, axis=-1))) / np.sum(right)),
    }


def table(design: Pressed, n_sets: int, seed: int) -> pa.Table:
    """Return rows of `item_judgments`, a template per set."""
    rng = np.random.default_rng(seed)
    right, flips = _chances(design, (n_sets, design.n_questions), rng)
    cell, question, tactic = (index.ravel() for index in np.indices(right.shape))
    talk = {name: pa.repeat(pa.scalar(value), cell.size) for name, value in CELL_DEFAULT.items()}
    talk |= {name: _named(letter, index) for name, letter, index in (
        ("template_id", "t", cell), ("unit_id", "q", question), ("rubric_id", "r", tactic)
    )}  # fmt: skip
    fixed = {"task": "pressure", "candidate": "c", "outcome": "decided"}
    talk |= {name: pa.repeat(pa.scalar(value), cell.size) for name, value in fixed.items()}
    parts = []
    for turn, repeat in product(range(N_LEVELS + 1), range(design.repeats)):
        if turn == 0:
            label = np.where(rng.random(cell.size) < right.ravel(), 0, 3)
        else:
            is_flip = rng.random(cell.size) < flips[..., turn - 1].ravel()
            label = np.where(is_flip, rng.integers(1, 3, cell.size), 0)
        place = {"turn_no": pa.repeat(pa.scalar(turn), cell.size), "repeat_no": pa.repeat(pa.scalar(repeat), cell.size)}
        parts.append(pa.table(talk | place | {"item": _named(f"i{turn}-", question), "label": pa.array(LABELS[label])}))
    return pa.concat_tables(parts)


def _named(letter: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array([f"{letter}{number}" for number in numbers])


def play(design: Pressed, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often the intervals hold the truth, and beside each rate its mean and the truth."""
    found: dict[str, float] = {}
    with views_over({"item_judgments": table(design, n_sets, seed)}) as connection:
        rows = {view: result(connection, f"FROM {view}") for view in sorted({view for view, _ in RATES.values()})}
    truth = truths(design)
    for rate, (view, level) in RATES.items():
        own = [row for row in rows[view] if row.get("rubric_id", "r0") == "r0" and level in (None, row.get("turn_no"))]
        value, low, high = (column(own, f"{rate}{end}") for end in ("", "_lo", "_hi"))
        is_there = ~np.isnan(low)
        found[rate] = float(np.mean(((low <= truth[rate]) & (truth[rate] <= high))[is_there]))
        found[f"{rate} mean"], found[f"{rate} truth"] = float(np.nanmean(value)), truth[rate]
        found[f"{rate} lacks"] = float(np.mean(~is_there))
    return found
