"""Which items meet in a list, and where they stand: as often as each other, drawn by the seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from hypothesis import given
from hypothesis import strategies as st

from batchpond.plan.asks import Asks, asks
from batchpond.plan.items import list_orders
from batchpond.plan.rows import SourceRow
from batchpond.study.spec import PairsSpec, RowsSpec, StageSpec
from batchpond.tasks.listwise import OrderRule

NAMES = [f"i{n:02}" for n in range(40)]
MODELS = ("large", "middle", "small")


def stage_of(size: int, rows: RowsSpec | None = None, **pairs: float) -> StageSpec:
    """Return a stage of lists."""
    spec = PairsSpec(**{"reverse": 1.0, **pairs})  # type: ignore[arg-type]
    return StageSpec("main", "listwise", rows or RowsSpec(), OrderRule(size=size), (), (), pairs=spec)


def shown(found: Iterable[Asks]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return unit, direction and ids of each list, in order."""
    lists: dict[tuple[str, str, str], list[str]] = {}
    for ask in chain.from_iterable(found):
        key = ask.list_id or "", ask.direction, ask.first.unit_id
        lists.setdefault(key, []).append(ask.first.item_id)
        assert ask.turn_no == len(lists[key])
    return [(unit, direction, tuple(ids)) for (_, direction, unit), ids in lists.items()]


def outputs(n_units: int, models: Sequence[str] = MODELS) -> list[SourceRow]:
    """Return what models answered to prompts."""
    units = [f"u{n:03}" for n in range(n_units)]
    return [SourceRow(f"{unit}/{model}", "text", unit, None, model, "q") for unit in units for model in models]


@given(st.integers(2, 40), st.integers(2, 20), st.integers(1, 3), st.integers(0, 99))
def test_after_as_many_lists_as_items_each_stood_once_at_each_place(n: int, size: int, cycles: int, seed: int) -> None:
    """Whatever their number; and no list has one twice."""
    size = min(size, n)
    found = [*islice(list_orders(NAMES[:n], size, seed), cycles * n)]
    assert all(len(set(order)) == size for order in found)
    places = Counter((item, place) for order in found for place, item in enumerate(order))
    assert len(places) == n * size
    assert set(places.values()) == {cycles}


def test_who_meets_is_drawn_anew_and_by_the_seed() -> None:
    """All pairs meet in time, and another seed draws others."""
    found = [*islice(list_orders(NAMES[:12], 4, 1), 120)]
    assert len({frozenset((one, two)) for order in found for one in order for two in order if one != two}) == 66
    assert found[:12] == [*islice(list_orders(NAMES[:12], 4, 1), 12)] != [*islice(list_orders(NAMES[:12], 4, 2), 12)]


def test_few_items_are_not_asked_the_same_twice() -> None:
    """Of three items there are three orders with their reverse, however many lists are wished for."""
    rows = [SourceRow(name, name) for name in "abc"]
    found = shown(asks(stage_of(3, count=50), rows, 1))
    assert len(found) == len({ids for *_, ids in found}) == 6
    alone = shown(asks(stage_of(3, count=50, reverse=0.0), rows, 1))
    assert len(alone) == len({ids for *_, ids in alone}) == 6
    assert {direction for _, direction, _ in alone} == {"forward"}


def test_a_share_is_reversed() -> None:
    rows = [SourceRow(name, name) for name in NAMES]
    found = Counter(direction for _, direction, _ in shown(asks(stage_of(4, count=400, reverse=0.25), rows, 1)))
    assert found["forward"] == 400
    assert 70 < found["reverse"] < 130


@given(st.integers(1, 60), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.integers(0, 9))
def test_a_share_is_met_exactly_where_that_is_asked(n_lists: int, share: float, seed: int) -> None:
    """Of 41 lists a half is 20; the lists are the same, and those that a draw alone reverses come first."""
    rows = [SourceRow(name, name) for name in NAMES]
    drawn = shown(asks(stage_of(4, count=n_lists, reverse=share), rows, seed))
    found = shown(asks(stage_of(4, count=n_lists, reverse=share, is_exact=True), rows, seed))
    assert [one for one in found if one[1] == "forward"] == [one for one in drawn if one[1] == "forward"]
    by_draw, exactly = ({one for one in lists if one[1] == "reverse"} for lists in (drawn, found))
    assert len(exactly) == round(share * n_lists)
    assert by_draw <= exactly or exactly <= by_draw


def test_over_the_units_each_candidate_stands_equally_often_at_each_place() -> None:
    """A list of each unit, of all its candidates, the same whatever the order of the rows."""
    rows = outputs(30)
    found = shown(asks(stage_of(3, reverse=0.0), rows, 1))
    assert Counter(unit for unit, *_ in found) == Counter({row.unit_id: 1 for row in rows})
    places = Counter((name.partition("/")[2], at) for *_, ids in found for at, name in enumerate(ids))
    assert set(places.values()) == {10}
    assert found == shown(asks(stage_of(3, reverse=0.0), rows[::-1], 1))


def test_what_comes_later_changes_no_list_of_a_stage_that_waits() -> None:
    """A unit whose answers are there late adds its list; a unit that lacks some has none."""
    stage = stage_of(3, RowsSpec(stage="answers"))
    early = shown(asks(stage, [row for row in outputs(10) if row.item_id not in {"u003/small", "u007/large"}], 1))
    late = shown(asks(stage, outputs(10), 1))
    assert len(early) == 16
    assert set(early) < set(late)
    assert {unit for unit, *_ in set(late) - set(early)} == {"u003", "u007"}
