"""`pairs.select = "adaptive"` as a study file says it: how many rounds of pairs, chosen how, until when."""

from __future__ import annotations

from typing import Final

from batchpond.study.spec import AdaptiveSpec, PairsSpec
from batchpond.study.toml_table import TomlTable

SELECT: Final = ("random", "adaptive")
KEYS: Final = ("rounds", "first_per_item", "per_item", "holdout", "top_k", "stop_gap_z", "stop_rank_width",
               "stop_stale")  # fmt: skip
ROUNDS_MAX: Final = 50
PER_ITEM_MAX: Final = 100
SHARE_MAX: Final = 0.5
REVERSE: Final = 0.1


def is_adaptive(table: TomlTable) -> bool:
    """Whether pairs are chosen in rounds; raises StudyError for keys that belong to the other way of choosing."""
    if table.choice("select", SELECT[0], SELECT) == SELECT[1]:
        return True
    for name in KEYS:
        if table.has(name):
            table.fail(name, 'has a meaning only with `select = "adaptive"`')
    return False


def read(table: TomlTable) -> PairsSpec:
    """Return how pairs are chosen adaptively; raises StudyError for what does not go with it."""
    for name, hint in (
        ("share", "`count` limits the judgments of each cell"),
        ("order", "a pair's order is random, balanced over each item's pairs"),
        ("repeats", "a pair is asked at most once in each order"),
    ):
        if table.has(name):
            table.fail(name, 'has no meaning with `select = "adaptive"`', hint)
    if isinstance(table.data.get("reverse"), bool):
        table.fail("reverse", 'must be a share with `select = "adaptive"`', f"usual is {REVERSE}")
    usual = AdaptiveSpec()
    rules = AdaptiveSpec(
        rounds=table.integer("rounds", usual.rounds, 1, ROUNDS_MAX) or 1,
        first_per_item=table.integer("first_per_item", usual.first_per_item, 1, PER_ITEM_MAX) or 1,
        per_item=table.integer("per_item", usual.per_item, 1, PER_ITEM_MAX) or 1,
        holdout=table.number("holdout", usual.holdout, 0, SHARE_MAX) or 0.0,
        top_k=table.integer("top_k", None, 1, 10**6),
        stop_gap_z=table.number("stop_gap_z", None, 0, 1e6),
        stop_rank_width=table.number("stop_rank_width", None, 1, 1e6),
        stop_stale=table.boolean("stop_stale", usual.stop_stale),
    )
    return PairsSpec(
        count=table.integer("count", None, 1, 10**9),
        reverse=table.number("reverse", REVERSE, 0, SHARE_MAX) or 0.0,
        adaptive=rules,
    )
