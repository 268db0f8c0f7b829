"""Objects of a simulated account in a folder, one JSON file each, and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import orjson

from batchpond_sim.world.world import write_atomically


class Record(Protocol):
    """A frozen dataclass of JSON values with an id, good as a file name, and an ordinal."""

    @property
    def id(self) -> str:
        """What the object is called, and its file."""
        ...

    @property
    def n(self) -> int:
        """Its place in the order of creation."""
        ...


R = TypeVar("R", bound=Record)


class Shelf(Generic[R]):
    """All objects of one kind; a change is in the folder before it is seen."""

    def __init__(self, folder: Path, make: Callable[..., R]) -> None:
        self._folder = folder
        loaded = [make(**orjson.loads(path.read_bytes())) for path in folder.glob("*.json")]
        self._records = {record.id: record for record in sorted(loaded, key=lambda record: record.n)}
        self._n_made = max((record.n for record in loaded), default=0)

    def __iter__(self) -> Iterator[R]:
        return iter(self._records.values())

    def __getitem__(self, name: str) -> R:
        return self._records[name]

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def get(self, name: str) -> R | None:
        """Return an object, None when there is none."""
        return self._records.get(name)

    def next_n(self) -> int:
        """Return the ordinal of a new object."""
        self._n_made += 1
        return self._n_made

    def put(self, record: R) -> None:
        """Store an object, new or changed."""
        write_atomically(self._folder / f"{record.id}.json", orjson.dumps(record))
        self._records[record.id] = record

    def drop(self, name: str) -> None:
        """Delete an object."""
        self._records.pop(name, None)
        (self._folder / f"{name}.json").unlink(missing_ok=True)
