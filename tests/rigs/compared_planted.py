"""Two templates on the same items with a planted truth for items in general, compared by the command's own SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from batchpond.results.compare.verb import compare
from tests.rigs.lakes import LakeBuilder

N_TRUTH = 400_000


@dataclass(frozen=True)
class Compared:
    """A design: clusters (prompts, or statements) are drawn anew for each set, with `per_cluster` items each.

    An item is easy by `cluster_sd` and `item_sd`; template b moves it by `more`, and in each cluster by `moved_sd` more
    or less. Scores are the easiness on a scale of 1 to 5 with an answer's own noise, verdicts its logistic draw.
    """

    task: str = "likert"
    n_clusters: int = 30
    per_cluster: int = 4
    cluster_sd: float = 0.7
    item_sd: float = 0.5
    moved_sd: float = 0.3
    more: float = 0.0


DESIGNS = {
    "scores, no difference": Compared(),
    "scores of 8 prompts, no difference": Compared(n_clusters=8, moved_sd=0.6),
    "scores, b is better": Compared(more=0.4),
    "compliance, no difference": Compared("compliance", n_clusters=12, per_cluster=10, moved_sd=0.8),
    "compliance of 60 inputs to one statement": Compared("compliance", n_clusters=60, per_cluster=1, more=-0.6),
    "compliance, nearly always": Compared("compliance", n_clusters=20, per_cluster=5, cluster_sd=0.3, more=-1.0),
}
_EASY = {"compliance, nearly always": 4.0}


def _said(design: Compared, easy: Any, rng: np.random.Generator) -> Any:
    if design.task == "likert":
        return np.clip(np.round(3 + easy + rng.normal(0, 0.8, easy.shape)), 1, 5)
    return rng.random(easy.shape) < 1 / (1 + np.exp(-easy))


def _drawn(design: Compared, base: float, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, Any]:
    """Return what templates a and b say of the items of clusters."""
    easy = base + rng.normal(0, design.cluster_sd, (*shape, 1))
    easy = easy + rng.normal(0, design.item_sd, (*shape, design.per_cluster))
    moved = easy + design.more + rng.normal(0, design.moved_sd, (*shape, 1))
    return _said(design, easy, rng), _said(design, moved, rng)


def truth(name: str) -> float:
    """Return by how much b differs from a in the mean of all items that might be."""
    design = DESIGNS[name]
    a, b = _drawn(design, _EASY.get(name, 0.0), (N_TRUTH,), np.random.default_rng(1))
    return float(np.mean(b) - np.mean(a))


def _rows(name: str, n_sets: int, seed: int) -> Iterator[dict[str, Any]]:
    design, rng = DESIGNS[name], np.random.default_rng(seed)
    is_score, is_statement = design.task == "likert", design.task == "compliance" and design.per_cluster > 1
    for number in range(n_sets):
        for template, said in zip("ab", _drawn(design, _EASY.get(name, 0.0), (design.n_clusters,), rng), strict=True):
            for cluster, item in np.ndindex(said.shape):
                answer = said[cluster, item]
                yield {
                    "study": f"s{number}", "task": design.task, "template_id": template, "provider": "p",
                    "request_model": "m", "thinking": "none", "outcome": "decided", "candidate_first": "c",
                    "rubric_id": f"r{cluster}" if is_statement else "r", "item_first": f"c{cluster}i{item}",
                    "unit_id": f"c{cluster}" + (f"u{item}" if is_statement else ""),
                    "score": float(answer) if is_score else None,
                    "verdict": None if is_score else str(bool(answer)).lower(),
                    "import_key": f"{number}{template}{cluster}.{item}",
                }  # fmt: skip


def play(name: str, n_sets: int, seed: int) -> dict[str, float]:
    """Return how often the interval holds the truth, and each test rejects, in general and for these items."""
    wanted, held = truth(name), {"": 0, "_these_items": 0}
    rejected = dict(held)
    with TemporaryDirectory() as folder:
        builder = LakeBuilder(Path(folder) / "lake")
        builder.imported(list(_rows(name, n_sets, seed)))
        builder.build()
        for number in range(n_sets):
            rows = compare(builder.store.path, f"s{number}:template=a", f"s{number}:template=b").differences.to_pylist()
            (row,) = [row for row in rows if row["is_main"]]
            for suffix in held:
                held[suffix] += row[f"diff_lo{suffix}"] <= wanted <= row[f"diff_hi{suffix}"]
                rejected[suffix] += (row[f"p_diff{suffix}"] or 1.0) < 0.05
    found = {f"covered{suffix}": count / n_sets for suffix, count in held.items()}
    return found | {f"p{suffix}": count / n_sets for suffix, count in rejected.items()}
