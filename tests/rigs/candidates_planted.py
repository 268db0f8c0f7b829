"""Two candidates compared on prompts under statements that stand, with a planted truth: many sets, each a cell."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa

from tests.rigs.metrics import Numbers, column
from tests.rigs.sql import CELL_DEFAULT, result, views_over

N_TRUTH = 200_000
RATES = {
    "consistency": "metric_win_matrix",
    "win_rate_longer": "metric_length_candidates",
    "win_rate_shorter": "metric_length_candidates",
    "win_rate_half": "metric_win_matrix",
}


@dataclass(frozen=True)
class Candidates:
    """A design: prompts are drawn anew for each set, the statements are the same in all.

    A prompt adds its own draw to the log-odds that a wins, and to those that both orders agree; a statement adds what
    it adds, from -`spread` to `spread`, or, where statements are drawn too, a draw with the sd `spread`. Prompts that
    are shared are judged by every statement. Of each prompt a has `n_outputs`; longer than b's or not is a matter of
    lot for each prompt. With `repeats` each order is asked so often, every vote a draw of its own that is as likely as
    the one vote of that order is without.
    """

    n_prompts: int = 12
    n_statements: int = 6
    is_shared: bool = False
    n_outputs: int = 1
    prompt_sd: float = 1.5
    spread: float = 0.5
    longer: float = 0.6
    is_of_general: bool = False
    repeats: int = 0
    ties: float = 0.0  # of every vote, by lot
    missing: float = 0.0  # of the order that shows b first


DESIGNS = {
    "prompts of their own": Candidates(),
    "prompts of their own, 3 outputs": Candidates(n_prompts=5, n_outputs=3),
    "6 statements share 12 prompts": Candidates(is_shared=True),
    "6 statements share 30 prompts": Candidates(n_prompts=30, is_shared=True),
    "6 statements share 12 prompts, 2 outputs": Candidates(is_shared=True, n_outputs=2),
    "one statement, 12 prompts, 3 outputs": Candidates(n_statements=1, n_outputs=3),
    "one statement, 40 prompts, 2 outputs": Candidates(n_prompts=40, n_statements=1, n_outputs=2),
    "8 statements drawn, own prompts": Candidates(n_prompts=10, n_statements=8, is_of_general=True),
    "8 statements drawn, 30 shared prompts": Candidates(30, 8, is_shared=True, is_of_general=True),
    "20 statements drawn, 40 shared prompts": Candidates(40, 20, is_shared=True, is_of_general=True),
    "20 statements drawn, 10 shared prompts": Candidates(10, 20, is_shared=True, is_of_general=True),
    "12 statements drawn, own prompts, 1 vote": Candidates(10, 12, is_of_general=True, repeats=1),
    "12 statements drawn, own prompts, 2 votes": Candidates(10, 12, is_of_general=True, repeats=2),
    "12 statements drawn, own prompts, 5 votes": Candidates(10, 12, is_of_general=True, repeats=5),
    "12 statements drawn, 30 shared prompts, 3 votes": Candidates(
        30, 12, is_shared=True, is_of_general=True, repeats=3
    ),
    "one statement, 40 prompts, 3 votes": Candidates(40, 1, repeats=3),
    "6 statements share 12 prompts, ties": Candidates(is_shared=True, ties=0.4),
    "prompts of their own, ties, missing": Candidates(ties=0.4, missing=0.4),
    "12 statements drawn, own prompts, ties": Candidates(10, 12, is_of_general=True, ties=0.4),
    "12 statements drawn, own prompts, missing": Candidates(10, 12, is_of_general=True, missing=0.4),
    "12 statements drawn, 30 shared prompts, 3 votes, ties, missing": Candidates(
        30, 12, is_shared=True, is_of_general=True, repeats=3, ties=0.3, missing=0.4
    ),
}


def _logistic(x: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-x))


def _added(design: Candidates, n_sets: int, rng: np.random.Generator) -> Numbers:
    """Return what statements add, in the last of three places: the same in all sets, or drawn for each."""
    if design.is_of_general:
        return rng.normal(0, design.spread, (n_sets, 1, design.n_statements))
    return np.linspace(-design.spread, design.spread, design.n_statements) if design.n_statements > 1 else np.zeros(1)


def _chances(design: Candidates, prompt: Numbers, added: Numbers, is_longer: Numbers) -> tuple[Numbers, Numbers]:
    """Return how likely both orders agree, and how likely a then wins, by what prompt and statement add."""
    wins = _logistic(prompt[..., 0] + added + np.where(is_longer, design.longer, -design.longer))
    return _logistic(1 + prompt[..., 1] + added), wins


def truths(design: Candidates) -> dict[str, float]:
    """Return the rates over all prompts that might be, under these statements, or those that might be."""
    rng = np.random.default_rng(1)
    prompt = rng.normal(0, design.prompt_sd, (N_TRUTH, 1, 1, 2))
    added = _added(design, N_TRUTH, rng)
    found = {}
    for name, is_longer in (("win_rate_longer", True), ("win_rate_shorter", False)):
        same, wins = _chances(design, prompt, added, np.array(is_longer))
        untied = (1 - design.ties) ** 2
        found[name] = float(np.mean(0.5 + untied * same * (wins - 0.5)))
        by_order = same * wins + (1 - same), same * wins
        agreed = same if not design.repeats else 1 - by_order[0] - by_order[1] + 2 * by_order[0] * by_order[1]
        agreed = untied * agreed + design.ties**2
        found["consistency"] = found.get("consistency", 0) + float(np.mean(agreed)) / 2
    return found | {"win_rate_half": (found["win_rate_longer"] + found["win_rate_shorter"]) / 2}


def tables(design: Candidates, n_sets: int, seed: int) -> dict[str, pa.Table]:
    """Return rows of `pair_judgments` and `item_lengths`, a template per set."""
    rng = np.random.default_rng(seed)
    n_own = 1 if design.is_shared else design.n_statements
    prompt = rng.normal(0, design.prompt_sd, (n_sets, design.n_prompts, n_own, 1, 2))
    is_longer = rng.random((n_sets, design.n_prompts, n_own, 1)) < 0.5
    shape = (n_sets, design.n_prompts, design.n_statements, design.n_outputs)
    added = _added(design, n_sets, rng)[..., None]
    same, wins = (np.broadcast_to(chance, shape) for chance in _chances(design, prompt, added, is_longer))
    is_same, a_wins = rng.random(shape) < same, rng.random(shape) < wins
    repeats = range(1, max(design.repeats, 1) + 1)
    cell, number, statement, output = (index.ravel() for index in np.indices(shape))
    own = 0 * statement if design.is_shared else statement
    unit = _join("u", cell, number)
    names = {"a": _join("a", cell, number, own, output), "b": _join("b", cell, number, own)}
    parts = []
    for (first, second), repeat in product(("ab", "ba"), repeats):
        if design.repeats:
            is_same, a_wins = rng.random(shape) < same, rng.random(shape) < wins
        # both orders name the first where they disagree
        a_first = np.where(is_same, a_wins, first == "a").ravel() == (first == "a")
        columns = {name: pa.repeat(pa.scalar(value), cell.size) for name, value in CELL_DEFAULT.items()}
        columns |= {"template_id": _join("t", cell), "rubric_id": _join("r", statement), "unit_id": unit}
        columns |= {"item_first": names[first], "item_second": names[second], "item_lo": names["a"]}
        columns |= {"item_hi": names["b"], "is_lo_first": pa.repeat(pa.scalar(first == "a"), cell.size)}
        columns |= {"candidate_first": pa.repeat(pa.scalar(first), cell.size)}
        columns |= {"candidate_second": pa.repeat(pa.scalar(second), cell.size)}
        is_missing = (rng.random(cell.size) < design.missing) & (first == "b")
        words = np.where(rng.random(cell.size) < design.ties, "tie", np.where(a_first, "first", "second"))
        columns |= {"verdict": pa.array(words, mask=is_missing)}
        columns |= {"outcome": pa.array(np.where(is_missing, "unparsed", np.where(words == "tie", "tie", "decided")))}
        parts.append(pa.table(columns | {"repeat_no": pa.repeat(pa.scalar(repeat), cell.size)}))
    longer = np.broadcast_to(is_longer, shape).ravel()
    chars = {**dict.fromkeys(names["b"].to_pylist(), 100)}
    chars |= zip(names["a"].to_pylist(), np.where(longer, 150, 50).tolist(), strict=True)
    lengths = {"study": ["study"] * len(chars), "item": list(chars), "n_chars": list(chars.values())}
    return {"pair_judgments": pa.concat_tables(parts), "item_lengths": pa.table(lengths)}


def _join(letter: str, *numbers: Numbers) -> pa.Array:
    """Return names such as u3-1, in the order of the numbers as far as they have one width."""
    return pa.array([f"{letter}{'-'.join(map(str, row))}" for row in zip(*numbers, strict=True)])


def play(design: Candidates, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often intervals hold the truth, for these statements or in general, and how many sets have none."""
    found: dict[str, float] = {}
    with views_over(tables(design, n_sets, seed)) as connection:
        rows = {view: result(connection, f"FROM {view}") for view in {*RATES.values()}}
    truth, target = truths(design), "" if design.is_of_general else "_these_statements"
    for rate, view in RATES.items():
        if rate == "win_rate_half" and not design.is_of_general:
            continue
        low, high = (column(rows[view], f"{rate}_{end}{target}") for end in ("lo", "hi"))
        found[rate] = float(np.mean(((low <= truth[rate]) & (truth[rate] <= high))[~np.isnan(low)]))
        found[f"{rate} lacks"] = float(np.mean(np.isnan(low)))
    return found
