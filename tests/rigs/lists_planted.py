"""Lists with planted strengths, planted place bias and judges who now and then read nothing: do the intervals cover?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
import pyarrow as pa

from batchpond.plan.items import list_orders
from batchpond.results.rank.verb import Request, ranked
from tests.oracles import agreement
from tests.oracles.agreement import Level, Ratings
from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, Row, result, views_over

N_TRUTH = 400_000
# As of `rank_planted`: how what moves a pair's log-odds about its mean draws the mean log-odds together.
_SHRINK = 0.346
OF_ANSWERS = {"list_rank", "label", "outcome", "parser_id"}


@dataclass(frozen=True)
class Lists:
    """Orders of Plackett and Luce's model over normal strengths, each with `bias` for its place added.

    A share `lazy` of answers is the order as it was shown. Items are drawn anew for each set. Of several judges each
    adds its own `taste_sd` to an item's strength.
    """

    n_items: int = 24
    size: int = 4
    n_lists: int = 48
    sd: float = 1.0
    bias: tuple[float, ...] = ()
    lazy: float = 0.0
    is_best: bool = False
    has_reverse: bool = True
    n_judges: int = 1
    taste_sd: float = 0.0


DESIGNS = {
    "orders of 4": Lists(),
    "orders of 4, one direction": Lists(has_reverse=False, n_lists=96),
    "orders of 4, first favoured": Lists(bias=(0.8, 0.3, 0, 0)),
    "orders of 4, middle lost": Lists(bias=(0.5, 0, 0, 0.5)),
    "orders of 4, a fifth as shown": Lists(lazy=0.2),
    "orders of 8": Lists(n_items=40, size=8, n_lists=40),
    "orders of 8, a fifth as shown": Lists(n_items=40, size=8, n_lists=40, lazy=0.2),
    "best of 4": Lists(n_items=16, n_lists=96, is_best=True),
    "best of 4, first favoured": Lists(n_items=16, n_lists=96, bias=(0.8, 0.3, 0, 0), is_best=True),
    "orders of 4, three judges alike": Lists(n_judges=3),
    "orders of 4, three judges of taste": Lists(n_judges=3, taste_sd=1),
    "orders of 4, three judges, first favoured": Lists(n_judges=3, taste_sd=0.5, bias=(0.8, 0.3, 0, 0)),
    "orders of 8, three judges of taste": Lists(n_items=40, size=8, n_lists=40, n_judges=3, taste_sd=1),
}


def ranks_of(design: Lists, strength: Numbers, rng: np.random.Generator) -> Numbers:
    """Return the ranks, 1 for the best, that answers give to what stands at each place; (answers, size)."""
    bias = np.array(design.bias or (0.0,) * design.size)
    felt = strength + bias + rng.gumbel(size=strength.shape)
    found = np.argsort(np.argsort(-felt, axis=1), axis=1) + 1
    lazy = rng.random(len(found)) < design.lazy
    found[lazy] = np.arange(1, design.size + 1)
    return found


def tables(design: Lists, n_sets: int, seed: int) -> tuple[dict[str, pa.Table], Numbers]:
    """Return rows of `results` and of `plan_current`, a study per set, and the strengths, (sets, items)."""
    rng = np.random.default_rng(seed)
    strengths = rng.normal(0, design.sd, (n_sets, design.n_items))
    names = [f"i{item:03}" for item in range(design.n_items)]
    parts = []
    for (number, shared), judge in product(enumerate(strengths), range(design.n_judges)):
        strength = shared + rng.normal(0, design.taste_sd, design.n_items)
        found = np.array([*islice(list_orders(names, design.size, seed + number), design.n_lists)])
        for direction in ("forward", "reverse")[: 1 + design.has_reverse]:
            shown = found if direction == "forward" else found[:, ::-1]
            ranks = ranks_of(design, strength[shown], rng)
            n, size = shown.shape
            list_id = np.repeat([f"list{at:04}" for at in range(n)], size)
            letters = np.array([chr(ord("A") + at) for at in range(size)])[np.argsort(ranks, axis=1)]
            said = [(">".join(row[:1] if design.is_best else row)) for row in letters]
            parts.append(
                {
                    "study": np.repeat(f"s{number:05}", n * size),
                    "list_id": list_id,
                    "direction": np.repeat(direction, n * size),
                    "request_id": np.char.add(list_id, f" {direction} {judge}"),
                    "request_model": np.repeat(f"j{judge}", n * size),
                    "cell_id": np.repeat(f"c{judge}", n * size),
                    "item_first": np.array(names)[shown.ravel()],
                    "list_place": np.tile(np.arange(1, size + 1), n),
                    "list_rank": ranks.ravel(),
                    "label": np.repeat(said, size),
                }
            )
    columns = {name: pa.array(np.concatenate([part[name] for part in parts])) for name in parts[0]}
    if design.is_best:
        ranks = columns["list_rank"].to_numpy()
        columns["list_rank"] = pa.array(ranks, mask=ranks > 1)
    kind = "listwise-best-1-x" if design.is_best else "listwise-1-x"
    same = CELL_DEFAULT | {"task": "listwise", "unit_id": "", "outcome": "decided", "parser_id": kind}
    n = len(columns["study"])
    columns |= {name: pa.repeat(pa.scalar(value), n) for name, value in same.items() if name not in columns}
    columns |= {"repeat_no": pa.repeat(pa.scalar(1), n), "slot": pa.array(np.arange(n))}
    columns["candidate_first"] = pa.nulls(n, pa.string())
    planned = {name: values for name, values in columns.items() if name not in OF_ANSWERS}
    return {"results": pa.table(columns), "plan_current": pa.table(planned)}, strengths


def truths(design: Lists) -> dict[str, Numbers]:
    """Return what the views estimate, of all lists that might be: by place, and of pairs."""
    rng = np.random.default_rng(1)
    strength = rng.normal(0, design.sd, (N_TRUTH, design.size))
    one = ranks_of(design, strength, rng)
    other = ranks_of(design, strength[:, ::-1], rng)[:, ::-1]
    first, second = np.triu_indices(design.size, 1)
    is_same = (one[:, first] < one[:, second]) == (other[:, first] < other[:, second])
    return {
        "best_share": np.mean(one == 1, axis=0),
        "mean_rank": np.mean(one, axis=0),
        "consistency_decided": np.mean(is_same, keepdims=True),
    }


def agreement_truths(design: Lists) -> dict[str, float]:
    """Return how judges agree on the pairs of a list, of all items that might be."""
    rng = np.random.default_rng(1)
    strength = rng.normal(0, design.sd, (N_TRUTH // 8, design.size))
    first, second = np.triu_indices(design.size, 1)
    codes = []
    for _ in range(design.n_judges):
        ranks = ranks_of(design, strength + rng.normal(0, design.taste_sd, strength.shape), rng)
        codes.append((ranks[:, first] < ranks[:, second]).ravel())
    data = Ratings(np.stack(codes, axis=1).astype(np.int64), np.arange(2.0))
    kappa, alpha = agreement.cohen_kappa(data.of_judges(0, 1)).kappa, agreement.krippendorff(data, Level.NOMINAL)
    assert kappa is not None
    assert alpha is not None
    unanimous = float(np.mean(data.codes.min(axis=1) == data.codes.max(axis=1)))
    return {"kappa": kappa, "agreement": agreement.percent_agreement(data) or 0.0, "unanimity": unanimous,
            "alpha_nominal": alpha}  # fmt: skip


def agreeing(design: Lists, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often each interval of judges' agreement, of items in general, holds the truth."""
    with views_over(tables(design, n_sets, seed)[0]) as connection:
        two = result(connection, "FROM metric_agreement WHERE request_model_a = 'j0' AND request_model_b = 'j1'")
        all_judges = result(connection, "FROM metric_agreement_overall WHERE judges = 'lists'")
    assert len(two) == len(all_judges) == n_sets
    return {
        name: _covered(two if name == "kappa" else all_judges, name, np.tile(truth, n_sets), "_in_general")
        for name, truth in agreement_truths(design).items()
    }


def play(design: Lists, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often each interval holds the truth, and how often a test of the places rejects.

    Of several judges it is how they agree.
    """
    if design.n_judges > 1:
        return agreeing(design, n_sets, seed)
    rows, strengths = tables(design, n_sets, seed)
    known = truths(design)
    cell = ("study", "list_place")
    with views_over(rows) as connection:
        places = result(connection, f"FROM metric_place_bias ORDER BY {', '.join(cell)}")
        consistent = result(connection, "FROM metric_consistency ORDER BY study")
        (thetas, _), *_ = ranked(connection, Request())
    found = {}
    for name in ("best_share", *(() if design.is_best else ("mean_rank",))):
        found[name] = _covered(places, name, np.tile(known[name], n_sets))
        found[f"p_{name}"] = float(np.mean(column(places, f"p_{name}") < 0.05))
    if consistent and design.has_reverse:
        found["consistency"] = _covered(consistent, "consistency_decided", known["consistency_decided"])
    if not design.lazy:
        truth = strengths - strengths.mean(axis=1, keepdims=True)
        truth /= np.sqrt(1 + _SHRINK * _spread(design))
        thetas.sort(key=lambda row: (row["study"], row["item"]))
        found["theta"] = _covered(thetas, "theta", truth.ravel())
    return found


def _spread(design: Lists) -> float:
    """Return the variance of what places add to the log-odds of a pair."""
    bias = np.array(design.bias or (0.0,) * design.size)
    gaps = bias[:, None] - bias[None, :]
    return float(np.mean(gaps[~np.eye(design.size, dtype=bool)] ** 2))


def _covered(rows: Sequence[Row], name: str, truth: Numbers, target: str = "") -> float:
    low, high = (column(rows, f"{name}_{end}{target}") for end in ("lo", "hi"))
    return float(np.mean(~(low > truth) & ~(high < truth)))
