"""The asks of an adaptive stage: its first round from its rows, each later one from what every cell has been told.

Each cell (template, rubric, model, thinking) goes its own way from round 2 on, since each judge has its own order of
the items. Round 1 and the held-out pairs are the same in all cells, so that judges can be compared on them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from batchpond.lake.store import Store
from batchpond.plan.asks import NO_RUBRIC, Ask, SourceRow, ask_of_pair
from batchpond.plan.blocks import label_of
from batchpond.plan.rounds import adaptive
from batchpond.plan.rounds.adaptive import Asked, Stop
from batchpond.plan.rounds.query import GOOD, query
from batchpond.study.spec import StagedStudy, StageSpec

ITEMS: Final = """
with shown as (
  select item_first as item_id, item_first_hash as item_hash from plan_current where study = $study and stage = $stage
  union
  select item_second, item_second_hash from plan_current where study = $study and stage = $stage
)
select shown.item_id, items.text, items.metadata
from shown join items on items.item_hash = shown.item_hash
order by all
"""
"""The items of a stage that has been asked about all of them, which its first round is."""
_ASKED: Final = f"""
select rubric_id, provider, request_model, thinking, template_id, item_first, item_second, purpose, round_no,
       case when {GOOD} then verdict end as verdict
from results where study = $study and stage = $stage
order by rubric_id, provider, request_model, thinking, template_id, round_no, slot
"""
_CELL: Final = ("rubric_id", "provider", "request_model", "thinking", "template_id")


def has_rows(store: Store, study: str, stage: str) -> bool:
    """Whether a stage has been asked anything, so that its rounds go on from there."""
    sql = "select 1 from plan_current where study = $study and stage = $stage limit 1"
    return any(query(store, sql, study=study, stage=stage))


def asks(
    store: Store,
    staged: StagedStudy,
    stage: StageSpec,
    rows: Sequence[SourceRow],
    until: int | None,
    stopped: Counter[str],
) -> Iterator[Ask]:
    """Yield what each cell of a stage is asked next; rounds after `until` are taken as not yet asked.

    Cells that are asked no further are counted into `stopped` by the reason.
    """
    ordered = sorted(rows, key=lambda row: row.item_id)
    places = {row.item_id: place for place, row in enumerate(ordered)}
    keys = adaptive.keys_of(list(places))
    rubrics = {rubric.rubric_id: rubric for rubric in stage.rubrics or (NO_RUBRIC,)}
    for cell, said in itertools.groupby(query(store, _ASKED, study=staged.name, stage=stage.name), key=_cell):
        rubric_id, *way = cell
        asked = Asked.of([row for row in _told(said, places) if until is None or row[3] <= until])
        if rubric_id not in rubrics or not len(asked):
            continue
        found = adaptive.next_round(keys, asked, stage.pairs, adaptive.seed_of(staged.seed, stage.name))
        if isinstance(found, Stop):
            stopped[found] += 1
        else:
            only = label_of(*way, n_templates=len(stage.templates))
            for choice in found:
                yield ask_of_pair(rubrics[rubric_id], ordered[choice.first], ordered[choice.second], choice, only)


def _cell(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in _CELL)


def _told(rows: Iterator[dict[str, Any]], places: dict[str, int]) -> Iterator[tuple[int, int, str, int, str | None]]:
    for row in rows:
        first, second = places.get(row["item_first"]), places.get(row["item_second"])
        if first is not None and second is not None:
            yield first, second, row["purpose"] or "", row["round_no"], row["verdict"]
