"""Lakes of an earlier version go on where they stand: nothing is asked twice, and the same comes of them.

The lakes are of commit cc06c86, each left in the middle, with the simulated provider that it was sent to (see
`tests/golden/lakes/make.py`). A red test here means that people's lakes would break: the change is wrong, not the lake.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.golden import doors
from tests.golden.bought.record import table
from tests.golden.lakes import desk
from tests.rigs.swept import every


@dataclass(frozen=True)
class Done:
    """What a lake of `name` came to, by itself, by its provider's ledger, and by what lies there."""

    name: str
    lake: Path
    n_planned_before: int
    results: list[str]
    cells: dict[str, int]
    ledger: dict[str, Any]
    sent: Counter[str]
    is_untouched_again: bool


def _files(lake: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in lake.rglob("*.parquet")}


@pytest.fixture(scope="module", params=every(2, desk.PORTS))
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """An old lake, unpacked and brought to its end, and synced once more."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    desk.unpack(name, folder)
    with desk.desk_at(folder, name) as found:
        n_before = len(table(found.lake.path, "plan"))
        found.settle()
        files = _files(found.lake.path)
        found.submit()
        found.sync()
        return Done(
            name, found.lake.path, n_before, found.results(), found.cells(), found.ledger(), found.sent(),
            files == _files(found.lake.path),
        )  # fmt: skip


def test_an_old_lake_comes_to_what_it_came_to_before(done: Done) -> None:
    """Every plan row, its verdict and what became of it."""
    known = desk.expected(done.name)
    assert done.n_planned_before == known["before"]
    assert done.results == known["results"]


def test_nothing_of_an_old_lake_is_asked_twice(done: Done) -> None:
    """By the provider: in how many batches it has each request, whose batches those are, and how many it billed."""
    planned = set(table(done.lake, "plan")["request_id"])
    assert len(planned) == len(desk.expected(done.name)["results"])
    assert done.sent == Counter(dict.fromkeys((request[:20] for request in planned), 1))
    assert done.ledger["billed"]["n_requests"] == len(planned)
    marks = [json.dumps([batch["metadata"], batch["first_custom_id"]]) for batch in done.ledger["batches"]]
    assert len(set(marks)) == len(marks)


def test_an_old_lake_keeps_its_cells_and_has_each_row_once(done: Done) -> None:
    assert done.cells == desk.expected(done.name)["cells"]
    plan = table(done.lake, "plan")
    places = plan.select(column for column in plan.columns if column != "slot").rows()
    assert len(set(places)) == len(places)
    for name, key in (("items", "item_hash"), ("items", "item_id"), ("requests", "request_id"), ("raw", "line")):
        found = table(done.lake, name)[key]
        assert found.n_unique() == len(found), (name, key)


def test_an_old_lake_is_settled_and_in_balance(done: Done) -> None:
    """A further submit and sync publish nothing, and the program's audit finds every batch in balance."""
    assert done.is_untouched_again
    for command in ("audit", "doctor"):
        ended = doors.run("--lake", str(done.lake), command)
        assert ended.returncode == 0, ended.stderr
