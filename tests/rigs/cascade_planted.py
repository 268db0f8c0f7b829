"""Cascades whose rates are known for items in general: two judges of all, a third where they differ, and audits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tests.rigs.jury_planted import N_TRUTH, Hits, Jury, right
from tests.rigs.metrics import column
from tests.rigs.sql import CELL_DEFAULT, result, views_over

SKILLS = (2.0, 1.6, 2.5)
RATES = ("agreed_share", "confirmed_share", "share", "further_share")


@dataclass(frozen=True)
class Cascade:
    """A design: a jury of three, of which the last is asked where the first two differ, and of `audits` of the rest.

    An item deserves "true" with the chance `rate`, and a judge says so whatever it is in the share `lean` of cases.
    """

    jury: Jury = field(default_factory=lambda: Jury(skills=SKILLS, n_items=200))
    audits: float = 0.15
    rate: float = 0.6
    lean: tuple[float, float, float] = (0.0, 0.0, 0.1)


DESIGNS = {
    "cascade of 200 items": Cascade(),
    "cascade of 80 items, a third audited": Cascade(Jury(skills=SKILLS, n_items=80), audits=1 / 3),
    "cascade of 400 items, few audits": Cascade(Jury(skills=(1.2, 1.0, 2.0), n_items=400), audits=0.06),
    "cascade of rare words": Cascade(Jury(skills=SKILLS, n_items=300), audits=0.1, rate=0.1, lean=(0, 0, 0)),
    "cascade of 40 prompts": Cascade(Jury(skills=SKILLS, n_items=40, n_outputs=5, hard_sd=1.5), audits=0.2),
    "cascade, a third judge that leans": Cascade(lean=(0, 0, 0.3)),
    "cascade of which one judge leans": Cascade(rate=0.5, lean=(0.4, 0, 0)),
    "cascade of judges who hardly differ": Cascade(
        Jury(skills=(3.5, 3.5, 4.0), n_items=300), audits=0.1, lean=(0, 0, 0)
    ),
}


def says(rng: np.random.Generator, design: Cascade, n_sets: int, n_items: int) -> Hits:
    """Return whether each judge says true, (sets, items, outputs, judges)."""
    hits = right(rng, design.jury, n_sets, n_items)[..., 0]
    truth = rng.random(hits.shape[:3]) < design.rate
    said = hits == truth[..., None]
    return np.asarray(said | (rng.random(said.shape) < np.array(design.lean)))


def truths(design: Cascade) -> dict[str, float]:
    """Return every rate, of all items that might be, each asked of all three judges."""
    said = says(np.random.default_rng(1), design, 1, N_TRUTH).reshape(-1, 3)
    agreed = said[:, 0] == said[:, 1]
    return {
        "agreed_share": float(np.mean(agreed)),
        "confirmed_share": float(np.mean(said[agreed, 2] == said[agreed, 0])),
        "share": float(np.mean(said.sum(axis=1) > 1)),
        "further_share": float(np.mean(said[:, 2])),
    }


def tables(design: Cascade, n_sets: int, seed: int) -> dict[str, pa.Table]:
    """Return rows of `item_judgments`, a study per set: what each judge was asked alone."""
    rng = np.random.default_rng(seed)
    said = says(rng, design, n_sets, design.jury.n_items)
    agreed = said[..., 0] == said[..., 1]
    asked = np.ones(said.shape, np.bool_)
    asked[..., 2] = ~agreed | (rng.random(agreed.shape) < design.audits)
    study, prompt, output, judge = np.argwhere(asked).T
    columns = {name: pa.repeat(pa.scalar(value), study.size) for name, value in CELL_DEFAULT.items()}
    columns |= {
        "repeat_no": pa.repeat(pa.scalar(1), study.size),
        "task": pa.repeat(pa.scalar("compliance"), study.size),
        "outcome": pa.repeat(pa.scalar("decided"), study.size),
        "study": pa.array([f"s{number:05}" for number in study]),
        "request_model": pa.array([f"j{number}" for number in judge]),
        "unit_id": pa.array([f"p{number:04}" if design.jury.n_outputs else "" for number in prompt]),
        "item": pa.array([f"i{p:04}-{o}" for p, o in zip(prompt, output, strict=True)]),
        "candidate": pa.array([f"c{number}" if design.jury.n_outputs else None for number in output], pa.string()),
        "verdict": pa.array(np.where(said[asked], "true", "false")),
    }
    return {"item_judgments": pa.table(columns)}


def play(design: Cascade, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often the interval of each rate holds the truth, and the mean error of each estimate."""
    with views_over(tables(design, n_sets, seed)) as connection:
        rows = result(connection, "FROM metric_cascade JOIN metric_cascade_words USING (study) WHERE word = 'true'")
    assert len(rows) == n_sets
    known, found = truths(design), {}
    for name, truth in known.items():
        low, value, high = (column(rows, f"{name}{end}") for end in ("_lo", "", "_hi"))
        found[name] = float(np.mean(~(low > truth) & ~(high < truth)))
        found[f"{name} off by"] = float(np.nanmean(value)) - truth
        found[f"{name} width"] = float(np.nanmean(high - low))
    found["heard_share off by"] = float(np.nanmean(column(rows, "heard_share"))) - known["further_share"]
    return found
