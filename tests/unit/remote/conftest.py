"""Buckets that a lake can be in, and machines that have mirrors of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchpond.lake.events import EventLog, read
from batchpond.lake.records import Fresh
from batchpond.lake.schemas import Table
from batchpond.lake.store import Store
from batchpond.views import refresh
from tests.rigs import s3
from tests.rigs.clock import ManualClock
from tests.rigs.sim_study import START

URL = "s3://bucket-one/lakes/first"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Shop]:
    with s3.served() as shop:
        for name, value in shop.environ.items():
            monkeypatch.setenv(name, value)
        yield shop


@pytest.fixture(autouse=True)
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No mirror of a test is among a person's own."""
    monkeypatch.setenv("BATCHPOND_MIRRORS", str(tmp_path / "mirrors"))
    return tmp_path / "mirrors"


@dataclass
class Machine:
    """One of several, each with mirrors of its own."""

    mirrors: Path
    clock: ManualClock
    use: Callable[[Path], None]

    def store(self, url: str = URL, *, is_new: bool = False) -> Store:
        self.use(self.mirrors)
        return (Store.init if is_new else Store.open)(Path(url), self.clock)


@pytest.fixture
def machines(tmp_path: Path, shop: s3.Shop, monkeypatch: pytest.MonkeyPatch) -> tuple[Machine, Machine]:
    """Two machines that use one bucket, the first of which has made the lake."""

    def use(mirrors: Path) -> None:
        monkeypatch.setenv("BATCHPOND_MIRRORS", str(mirrors))

    clock = ManualClock(START)
    first, second = (Machine(tmp_path / name, clock, use) for name in ("one", "two"))
    first.store(is_new=True)
    return first, second


def say(store: Store, study: str) -> None:
    """Record a fact about a study."""
    with store.lock("test"):
        EventLog(store).append(Fresh(study=study))


def said(store: Store) -> list[str]:
    return [event.study for event in read(store) if isinstance(event, Fresh)]


def publish(store: Store, table: Table, *names: str) -> None:
    """Publish files of a row each."""
    with store.lock("test"):
        for name in names:
            store.publish(table, name, [row(table, **{table.columns[0][0]: name})])
        refresh.refresh(store)


def row(table: object, **values: object) -> dict[str, object]:
    return {name: values.get(name) for name, _ in table.columns}  # type: ignore[attr-defined]
