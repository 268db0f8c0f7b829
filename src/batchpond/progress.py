"""How far long work is, told to whoever listens; nobody does until a command line asks to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol, Self, TypeVar

_T = TypeVar("_T")
BYTES: Final = "bytes"
"""The unit of what travels, which a listener may show in larger ones."""


class Listener(Protocol):
    """Whoever shows how far work is; called often, so it must be quick."""

    def moved(self, work: Work) -> None:
        """Take note that work went on."""

    def ended(self, work: Work) -> None:
        """Take note that work ended, well or not."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let work tell a listener how far it is."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


class Work:
    """Work under way: `n_done` of `n_total` units, where that is known; a context manager."""

    def __init__(self, what: str, unit: str, n_total: int | None = None) -> None:
        self.what = what
        self.unit = unit
        self.n_total = n_total
        self.n_done = 0
        self._listener = _listener.get()

    def __enter__(self) -> Self:
        self.add(0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.ended(self)

    def add(self, n: int = 1) -> None:
        """Take note that so many units more are done."""
        self.n_done += n
        if self._listener is not None:
            self._listener.moved(self)


def each(items: Iterable[_T], what: str, unit: str, n_total: int | None = None, *, every: int = 1) -> Iterator[_T]:
    """Yield items, telling after every so many how many were taken."""
    with Work(what, unit, n_total) as work:
        for n, item in enumerate(items, 1):
            yield item
            if n % every == 0:
                work.add(every)
