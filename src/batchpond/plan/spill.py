"""The rows that a stage asks about, kept in a file while its round is planned: memory holds only where each stands."""

from __future__ import annotations

import dataclasses
import os
import pickle  # rows of this process only, in a file that no other can open
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchpond.plan.asks import SourceRow

_IDS_PER_CHUNK: Final = 10_000
_CACHE_BYTES_MAX: Final = 8 << 20
_VALUES: Final = attrgetter(*(field.name for field in dataclasses.fields(SourceRow)))
"""What a row is made of, by place: a third of the time that the row itself takes to be written and read."""


class SpilledRows(Sequence[SourceRow]):
    """Rows in id order; `folder` is where their file, which has no name, takes its space."""

    def __init__(self, folder: Path, rows: Iterable[SourceRow]) -> None:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with the rows)
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()
        starts, chunks, names = array("q", [0]), [], []
        for row in rows:
            starts.append(starts[-1] + file.write(pickle.dumps(_VALUES(row), pickle.HIGHEST_PROTOCOL)))
            names.append(row.item_id)
            if len(names) == _IDS_PER_CHUNK:
                chunks.append(pa.array(names, pa.string()))
                names = []
        file.flush()
        # By bytes of UTF-8, which is the order of the texts themselves.
        ids = pa.chunked_array([*chunks, pa.array(names, pa.string())])
        order = pc.sort_indices(ids)
        self._order: NDArray[np.uint64] = order.to_numpy()
        ordered = ids.take(order)
        self.is_in_order: bool = pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py() is not True
        """Whether each id stands there once, so that nothing but the ids makes the order."""
        self._starts: NDArray[np.int64] = np.frombuffer(starts, np.int64)
        self._cache: dict[int, SourceRow] = {}
        self._n_cached_bytes = 0

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, place: int) -> SourceRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[SourceRow]: ...
    def __getitem__(self, place: int | slice) -> SourceRow | list[SourceRow]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        number = int(self._order[place])
        if (found := self._cache.get(number)) is None:
            start, stop = int(self._starts[number]), int(self._starts[number + 1])
            found = self._read(start, stop - start)
            self._keep(number, found, stop - start)
        return found

    def _read(self, start: int, n_bytes: int) -> SourceRow:
        return SourceRow(*pickle.loads(os.pread(self._descriptor, n_bytes, start)))  # noqa: S301 (our own bytes)

    def _keep(self, number: int, row: SourceRow, n_bytes: int) -> None:
        """Keep a row for a while: comparisons come back to it soon, or not at all."""
        if self._n_cached_bytes + n_bytes > _CACHE_BYTES_MAX:
            self._cache.clear()
            self._n_cached_bytes = 0
        self._cache[number] = row
        self._n_cached_bytes += n_bytes
