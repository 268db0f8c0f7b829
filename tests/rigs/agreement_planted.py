"""Judges whose agreement is known for items in general: pairs of items in both orders, and outputs to prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.oracles import agreement
from tests.oracles.agreement import Level, Ratings
from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, Row, result, views_over

N_TRUTH = 100_000
N_JUDGES = 3
IN_GENERAL = "_in_general"
WORDS = ("first", "second", "tie")
# What is estimated, and the view that says it.
SHOWN = {
    "kappa": "metric_agreement", "agreement": "metric_agreement_overall", "unanimity": "metric_agreement_overall",
    "alpha_nominal": "metric_agreement_overall", "ac1": "metric_agreement_overall",
}  # fmt: skip


@dataclass(frozen=True)
class Agreeing:
    """A design: items are drawn anew for each set, with a quality for all judges and one that each judge sees alone.

    Of pairs every judge is asked all in both orders, with a position effect of `eta`; a tie is said where the gap is
    small. Each is asked `repeats` times, and of the reversed order a share `missing` is not. With `n_outputs` what is
    judged are so many outputs to each of `n_items` prompts, true or false, and it is prompts that are drawn.
    """

    n_items: int = 20
    n_outputs: int = 0
    quality_sd: float = 1.5
    taste_sd: float = 1.0
    eta: float = 0.3
    ties: float = 0.0
    repeats: int = 1
    missing: float = 0.0


DESIGNS = {
    "judges alike": Agreeing(taste_sd=0),
    "tastes of items, sd 1": Agreeing(),
    "tastes of items, sd 2": Agreeing(taste_sd=2),
    "tastes, 10 items": Agreeing(n_items=10),
    "tastes, 40 items": Agreeing(n_items=40),
    "tastes and ties": Agreeing(ties=0.3),
    "strong position effect": Agreeing(eta=1.5),
    "tastes, 2 repeats": Agreeing(repeats=2),
    "tastes and ties, 3 repeats": Agreeing(ties=0.3, repeats=3),
    "tastes, 5 repeats": Agreeing(repeats=5),
    "tastes, missing by position": Agreeing(missing=0.4),
    "outputs to 20 prompts": Agreeing(n_outputs=5),
    "outputs to 40 prompts": Agreeing(n_items=40, n_outputs=4, taste_sd=1.5),
}
Codes = npt.NDArray[np.int64]


def _logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def _said(rng: np.random.Generator, design: Agreeing, first_wins: Numbers) -> Codes:
    said = np.where(rng.random(first_wins.shape) < first_wins, 0, 1)
    said[rng.random(first_wins.shape) < 4 * design.ties * first_wins * (1 - first_wins)] = 2
    return said


def pair_votes(rng: np.random.Generator, design: Agreeing, gap: Numbers) -> Codes:
    """Return what judges say of gaps (..., judges), a last axis for the two orders: of the items as they are shown."""
    return np.stack([_said(rng, design, _logistic(sign * gap + design.eta)) for sign in (1, -1)], axis=-1)


def output_votes(rng: np.random.Generator, quality: Numbers) -> Codes:
    """Return what judges say of outputs of these qualities: 0 is true."""
    return np.where(rng.random(quality.shape) < _logistic(quality + 1), 0, 1)


def truths(design: Agreeing) -> dict[str, float]:
    """Return every coefficient, of all items that might be."""
    rng = np.random.default_rng(1)
    if design.n_outputs:
        shared, own = rng.normal(0, 1, (2, N_TRUTH, 1))
        taste = rng.normal(0, design.taste_sd, (N_TRUTH, N_JUDGES))
        codes = output_votes(rng, design.quality_sd / 2**0.5 * (shared + own) + taste)
    else:
        gap = rng.normal(0, design.quality_sd * 2**0.5, (N_TRUTH, 1))
        gap = gap + rng.normal(0, design.taste_sd * 2**0.5, (N_TRUTH, N_JUDGES))
        codes = np.moveaxis(pair_votes(rng, design, gap), -1, 0).reshape(-1, N_JUDGES)
    data = Ratings(codes, np.arange(float(codes.max() + 1)))
    kappa, alpha, ac1 = (
        agreement.cohen_kappa(data.of_judges(0, 1)).kappa, agreement.krippendorff(data, Level.NOMINAL),
        agreement.gwet_ac1(data),
    )  # fmt: skip
    assert kappa is not None
    assert alpha is not None
    assert ac1 is not None
    unanimous = float(np.mean(codes.min(axis=1) == codes.max(axis=1)))
    return {"kappa": kappa, "agreement": agreement.percent_agreement(data) or 0.0, "unanimity": unanimous,
            "alpha_nominal": alpha, "ac1": ac1}  # fmt: skip


def _words(codes: Codes, words: Sequence[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(words)).cast(pa.string())


def tables(design: Agreeing, n_sets: int, seed: int) -> dict[str, pa.Table]:
    """Return rows of `pair_judgments` or of `item_judgments`, a study per set."""
    rng = np.random.default_rng(seed)
    studies, judges = [f"s{number:05}" for number in range(n_sets)], [f"j{judge}" for judge in range(N_JUDGES)]
    names = [f"i{item:03}" for item in range(design.n_items)]
    if design.n_outputs:
        shape = (n_sets, design.n_items, design.n_outputs, 1)
        shared, own = rng.normal(0, 1, (n_sets, design.n_items, 1, 1)), rng.normal(0, 1, shape)
        taste = rng.normal(0, design.taste_sd, (n_sets, design.n_items, 1, N_JUDGES))
        codes = output_votes(rng, design.quality_sd / 2**0.5 * (shared + own) + taste)
        study, prompt, output, judge = (index.ravel() for index in np.indices(codes.shape))
        columns = _same(study.size) | {"study": _words(study, studies), "request_model": _words(judge, judges)}
        columns |= {"task": pa.repeat(pa.scalar("compliance"), study.size), "unit_id": _words(prompt, names)}
        columns |= {"candidate": _words(output, [f"c{place}" for place in range(design.n_outputs)])}
        items = [f"{name}{place}" for name in names for place in range(design.n_outputs)]
        columns |= {"item": _words(prompt * design.n_outputs + output, items)}
        columns |= {"verdict": _words(codes.ravel(), ["true", "false"])}
        columns |= {"outcome": pa.repeat(pa.scalar("decided"), study.size)}
        return {"item_judgments": pa.table(columns)}
    lo, hi = np.triu_indices(design.n_items, 1)
    quality = rng.normal(0, design.quality_sd, (n_sets, design.n_items, 1))
    quality = quality + rng.normal(0, design.taste_sd, (n_sets, design.n_items, N_JUDGES))
    gap = quality[:, lo] - quality[:, hi]
    codes = np.stack([pair_votes(rng, design, gap) for _ in range(design.repeats)], axis=-1)
    study, pair, judge, order, repeat = (index.ravel() for index in np.indices(codes.shape))
    kept = (order == 0) | (rng.random(order.size) >= design.missing)
    codes = codes.ravel()[kept]
    study, pair, judge, order, repeat = (index[kept] for index in (study, pair, judge, order, repeat))
    first, second = np.where(order == 0, lo[pair], hi[pair]), np.where(order == 0, hi[pair], lo[pair])
    columns = _same(study.size) | {"study": _words(study, studies), "request_model": _words(judge, judges)}
    columns |= {"unit_id": pa.repeat(pa.scalar(""), study.size), "is_lo_first": pa.array(order == 0)}
    columns |= {"repeat_no": pa.array(repeat + 1)}
    columns |= {"item_lo": _words(lo[pair], names), "item_hi": _words(hi[pair], names)}
    columns |= {"item_first": _words(first, names), "item_second": _words(second, names)}
    columns |= {"verdict": _words(codes, WORDS)}
    columns |= {"outcome": _words((codes == 2).astype(np.int64), ["decided", "tie"])}
    return {"pair_judgments": pa.table(columns)}


def _same(size: int) -> dict[str, pa.Array]:
    columns = {name: pa.repeat(pa.scalar(value), size) for name, value in CELL_DEFAULT.items()}
    return columns | {"repeat_no": pa.repeat(pa.scalar(1), size)}


def play(design: Agreeing, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often each interval holds the truth, for items in general and for these items."""
    wheres = {"metric_agreement": "WHERE request_model_a = 'j0' AND request_model_b = 'j1'",
              "metric_agreement_overall": ""}  # fmt: skip
    with views_over(tables(design, n_sets, seed)) as connection:
        rows = {view: result(connection, f"FROM {view} {where}") for view, where in wheres.items()}
    found = {}
    for name, truth in truths(design).items():
        assert len(rows[SHOWN[name]]) == n_sets
        for suffix in (IN_GENERAL, ""):
            found[f"{name}{suffix}"] = _covered(rows[SHOWN[name]], name, suffix, truth)
    return found


def _covered(rows: Sequence[Row], of: str, suffix: str, truth: float) -> float:
    low, high = (column(rows, f"{of}_{end}{suffix}") for end in ("lo", "hi"))
    return float(np.mean(~(low > truth) & ~(high < truth)))
