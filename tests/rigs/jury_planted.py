"""Juries whose accuracy is known for items in general: judges of outputs, of outputs to prompts, and of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, result, views_over

N_TRUTH = 200_000
N_LABELLINGS = 4_000
TIED = 1e-9
RATES = ("unanimous_share", "majority_share", "majority_accuracy", "weighted_accuracy")
Hits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Jury:
    """A design: items are drawn anew for each set, and so is how hard each is, for all judges and for each of them.

    `skills` are the judges' log odds of being right on an item of no special difficulty. With `n_outputs` there are so
    many to each of `n_items` prompts, as hard as their prompt makes them; people labelled `n_labelled` of all units.
    """

    skills: tuple[float, ...] = (1.5, 0.8, 0.4)
    n_items: int = 100
    n_outputs: int = 0
    hard_sd: float = 1.0
    own_sd: float = 0.5
    n_labelled: int = 100
    repeats: int = 1  # an odd number: a judge's word is what most of them say

    @property
    def n_units(self) -> int:
        """How many units are judged."""
        return self.n_items * max(1, self.n_outputs)


DESIGNS = {
    "jury of three": Jury(),
    "jury of three, equally good": Jury(skills=(1.0, 1.0, 1.0)),
    "jury of five, hard items": Jury(skills=(1.5, 1.0, 0.8, 0.4, 0.2), hard_sd=2.0),
    "jury of four, with draws": Jury(skills=(1.2, 0.9, 0.6, 0.3)),
    "jury with one worse than chance": Jury(skills=(1.5, 1.0, -0.8)),
    "jury, 40 labels of 200": Jury(n_items=200, n_labelled=40),
    "jury, 30 items": Jury(n_items=30, n_labelled=30),
    "jury of 20 prompts": Jury(n_items=20, n_outputs=6, n_labelled=120),
    "jury of 40 prompts, 80 labels": Jury(n_items=40, n_outputs=5, n_labelled=80, hard_sd=1.5),
    "jury of three, 3 repeats": Jury(repeats=3),
    "jury of 20 prompts, 5 repeats": Jury(n_items=20, n_outputs=6, n_labelled=120, repeats=5),
}


def right(rng: np.random.Generator, design: Jury, n_sets: int, n_items: int) -> Hits:
    """Return whether each judge is right, each time that it is asked, (sets, items, outputs, judges, repeats)."""
    shape = (n_sets, n_items, max(1, design.n_outputs), len(design.skills))
    hard = rng.normal(0, design.hard_sd, (*shape[:2], 1, 1)) + rng.normal(0, design.own_sd, shape)
    chances = 1 / (1 + np.exp(-(np.array(design.skills) + hard)))
    return np.asarray(rng.random((*shape, design.repeats)) < chances[..., None])


def truths(design: Jury) -> dict[str, float]:
    """Return every rate, of all items that might be.

    Weights come from as many labels as there are elsewhere in a set: what is true of the weighted jury is how often it
    is right on a new item, on average over such labels, and not what the best weights would do.
    """
    rng = np.random.default_rng(1)
    hits = right(rng, design, 1, N_TRUTH).mean(axis=-1).reshape(-1, len(design.skills)) > 0.5
    n_right, n = hits.sum(axis=1), hits.shape[1]
    has_majority = 2 * n_right != n
    n_elsewhere = design.n_labelled - 1
    counts = hits[rng.integers(0, len(hits), (N_LABELLINGS, n_elsewhere))].sum(axis=1)
    weights = np.log((counts + 1) / (n_elsewhere - counts + 1))
    ways, n_ways = np.unique(hits, axis=0, return_counts=True)
    is_right = np.where(ways, 1, -1) @ weights.T > TIED
    return {
        "unanimous_share": float(np.mean((n_right == 0) | (n_right == n))),
        "majority_share": float(np.mean(has_majority)),
        "majority_accuracy": float(np.mean(2 * n_right[has_majority] > n)),
        "weighted_accuracy": float(n_ways @ is_right.mean(axis=1) / len(hits)),
    }


def tables(design: Jury, n_sets: int, seed: int) -> dict[str, pa.Table]:
    """Return rows of `item_judgments`, a study per set, people's labels among them."""
    rng = np.random.default_rng(seed)
    hits = right(rng, design, n_sets, design.n_items)
    truth = rng.random(hits.shape[:3]) < 0.5
    said = hits == truth[..., None, None]
    judged = np.indices(hits.shape).reshape(5, -1)
    units = np.tile(np.arange(design.n_units), (n_sets, 1))
    labelled = np.zeros((n_sets, design.n_units), dtype=np.bool_)
    np.put_along_axis(labelled, rng.permuted(units, axis=1)[:, : design.n_labelled], True, axis=1)
    people = np.argwhere(labelled.reshape(truth.shape)).T
    study, prompt, output = np.concatenate([judged[:3], people], axis=1)
    verdict = np.r_[said.ravel(), truth[tuple(people)]]
    names = [*(f"j{judge}" for judge in range(len(design.skills))), "anna"]
    judge = np.r_[judged[3], np.full(people.shape[1], len(design.skills))]
    repeat_no = np.r_[judged[4], np.zeros(people.shape[1], dtype=int)] + 1
    columns = {name: pa.repeat(pa.scalar(value), study.size) for name, value in CELL_DEFAULT.items()}
    columns |= {
        "repeat_no": pa.array(repeat_no),
        "task": pa.repeat(pa.scalar("compliance"), study.size),
        "outcome": pa.repeat(pa.scalar("decided"), study.size),
        "study": pa.array([f"s{number:05}" for number in study]),
        "provider": pa.array(np.where(judge == len(design.skills), "human", "openai")),
        "request_model": pa.array(np.array(names)[judge]),
        "unit_id": pa.array([f"p{number:04}" if design.n_outputs else "" for number in prompt]),
        "item": pa.array([f"i{p:04}-{o}" for p, o in zip(prompt, output, strict=True)]),
        "candidate": pa.array([f"c{number}" if design.n_outputs else None for number in output], pa.string()),
        "verdict": pa.array(np.where(verdict, "true", "false")),
    }
    return {"item_judgments": pa.table(columns)}


def play(design: Jury, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often the interval of each rate holds the truth, and the mean error of each estimate."""
    with views_over(tables(design, n_sets, seed)) as connection:
        rows = result(connection, "FROM metric_jury")
    assert len(rows) == n_sets
    found = {}
    for name, truth in truths(design).items():
        low, value, high = (column(rows, f"{name}{end}") for end in ("_lo", "", "_hi"))
        found[name] = float(np.mean(~(low > truth) & ~(high < truth)))
        found[f"{name} off by"] = _mean(value) - truth
    return found


def _mean(values: Numbers) -> float:
    return float(np.nanmean(values))
