"""Adaptive rankings with a known truth: in memory, and as a study whose rounds go through simulated batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds.adaptive import Asked, Choice, Stop
from batchpond.stats import adaptive as estimates
from batchpond.stats import bradley_terry, votes
from batchpond.stats.votes import Votes
from batchpond.study.spec import PairsSpec
from batchpond_sim.judges.judge import Judge
from batchpond_sim.world.world import Settings
from tests.rigs.clock import ManualClock
from tests.rigs.stage_study import StageRig

BIAS = 0.3
SEED = 1
STUDY = """study = "demo"
seed = {seed}
[shards]
max_requests = 10000
[items]
path = "samples.csv"
[pairs]
select = "{select}"
{pairs}
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "plain"
{models}"""
MODEL = '[[models]]\nprovider = "openai"\nmodel = "{}"\nmax_output_tokens = 100\n'
ASKED = """
select item_first, item_second, purpose, round_no, verdict from results where request_model = '{}' order by slot
"""

Numbers = npt.NDArray[np.float64]
Say = Callable[[int, int], str | None]
Row = tuple[int, int, str, int, str | None]


def names_of(n_items: int) -> list[str]:
    """Return ids of items in order."""
    return [f"i{number:04d}" for number in range(n_items)]


def judge_of(theta: Numbers, rng: np.random.Generator, bias: float = BIAS) -> Say:
    """Return a judge who prefers by the logistic of the gap in theta, and what is shown first."""

    def say(first: int, second: int) -> str:
        return "first" if rng.random() < 1 / (1 + np.exp(-(theta[first] - theta[second] + bias))) else "second"

    return say


def play(n_items: int, spec: PairsSpec, seed: int, say: Say, name: str = "main") -> list[list[Row]]:
    """Ask round after round in memory until there is no more; returns the judgments of each round."""
    keys, rounds = adaptive.keys_of(names_of(n_items)), list[list[Row]]()
    while True:
        asked = Asked.of([row for rows in rounds for row in rows])
        found = adaptive.next_round(keys, asked, spec, adaptive.seed_of(seed, name))
        if isinstance(found, Stop):
            return rounds
        rounds.append([_judged(choice, len(rounds) + 1, say) for choice in found])


def _judged(choice: Choice, round_no: int, say: Say) -> Row:
    return choice.first, choice.second, str(choice.purpose), round_no, say(choice.first, choice.second)


def table_of(n_items: int, rows: Sequence[Row]) -> Votes:
    """Return judgments as a win table."""
    return votes.of_rows(n_items, [row[0] for row in rows], [row[1] for row in rows], [row[4] for row in rows])


def spearman(a: Numbers, b: Numbers) -> float:
    """Return the rank correlation of numbers without ties."""
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])


def rho_map(table: Votes, truth: Numbers) -> float:
    """Return how well the estimate that rounds are planned by orders the items."""
    return spearman(estimates.fit(table).theta, truth)


def rho_firth(table: Votes, truth: Numbers) -> float:
    """Return how well the estimate that `rank` prints orders the items."""
    return spearman(bradley_terry.fit(table.without_units()).theta, truth)


def rig_of(
    path: Path, theta: Numbers, pairs: str, *, models: Sequence[str] = ("gpt-4.1-mini",), seed: int = SEED,
    clock: ManualClock | None = None, rates: dict[str, float] | None = None, select: str = "adaptive",
) -> StageRig:  # fmt: skip
    """Return a user whose samples' quality a simulated judge knows, unless the files stand there already."""
    toml = STUDY.format(seed=seed, select=select, pairs=pairs, models="".join(map(MODEL.format, models)))
    more = {} if clock is None else {"clock": clock}
    rig = StageRig(path, settings=Settings(seed=seed, latency_s=(60.0, 600.0)), toml=toml, **more)
    marks = zip(names_of(len(theta)), theta, strict=True)
    text = "".join(f"{name},sample {name} [[quality={quality:.4f}]]\n" for name, quality in marks)
    (rig.study_path.parent / "samples.csv").write_text("id,text\n" + text)
    rig.world.panel.judges = (Judge(sharpness=1.0, position_bias=BIAS, **(rates or {})),)
    return rig


def told(rig: StageRig, model: str) -> list[Row]:
    """Return what a cell of a rig's study was asked, and said."""
    place = {name: number for number, name in enumerate(names_of(10_000))}
    rows = rig.ask(ASKED.format(model))
    return [(place[r["item_first"]], place[r["item_second"]], r["purpose"], r["round_no"], r["verdict"]) for r in rows]


def replayed(n_items: int, spec: PairsSpec, rows: Sequence[Row], seed: int = SEED) -> list[Row]:
    """Return what is asked in memory of a judge who says what those rows say; nothing, of what they lack."""
    said = {(row[0], row[1]): row[4] for row in rows}
    rounds = play(n_items, spec, seed, lambda first, second: said.get((first, second)))
    return [row for judged in rounds for row in judged]
