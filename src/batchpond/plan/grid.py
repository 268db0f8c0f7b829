"""From cells and pairs to requests: the body, the id and the size of each, in plan order.

A request's place is its slot: `slot = cell number * asks per cell + number of the ask`. Bodies are
canonical JSON. Where a provider puts the prompt into the body once and unchanged, the body is built
once per cell and each prompt's JSON spliced in; where that cannot be shown, it is built each time.

Estimated input tokens: one per four bytes of the prompt's UTF-8, rounded up, and eight for the frame
of a chat message. English prose comes out a little high, other scripts vary; it is a rough figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchpond import ids
from batchpond.plan.cells import Cell, canonical
from batchpond.plan.items import Item
from batchpond.plan.pairs import Pairs
from batchpond.tasks.templates import Filled

BLOCK_ROWS: Final = 2_048
BYTES_PER_TOKEN: Final = 4
FRAME_TOKENS: Final = 8
_SENTINELS: Final = ("batchpond-sentinel-7d1", "another \u00e9 prompt \u2028 of batchpond, longer than the first")

Ints = NDArray[np.int32]
BodyOf = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Asks:
    """Every (pair, direction, repeat) of a cell, the same for all cells; one array element each."""

    pair: Ints
    first: Ints
    second: Ints
    is_reverse: NDArray[np.bool_]
    repeat_no: Ints

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive asks of one cell, from the ask numbered `start`; the lists are in step."""

    cell: Cell
    start: int
    request_ids: list[str]
    bodies: list[bytes]
    estimated_input_tokens: list[int]


def asks(pairs: Pairs, repeats: int) -> Asks:
    """Return what is asked of each cell: per pair the forward repeats, then the reverse ones."""
    n_orders = 1 + pairs.has_reverse.astype(np.int32)
    pair = np.repeat(np.arange(len(pairs), dtype=np.int32), n_orders * repeats)
    starts = np.repeat(np.cumsum(n_orders * repeats) - n_orders * repeats, n_orders * repeats)
    position = np.arange(len(pair)) - starts
    is_reverse = position >= repeats
    lo_first = pairs.lo_first[pair] ^ is_reverse
    lo, hi = pairs.lo[pair], pairs.hi[pair]
    repeat_no = (position % repeats + 1).astype(np.int32)
    return Asks(pair, np.where(lo_first, lo, hi), np.where(lo_first, hi, lo), is_reverse, repeat_no)


class Texts:
    """The items' texts as they stand inside JSON strings, encoded once for all requests."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.encoded = [canonical(item.text)[1:-1] for item in items]
        self.sizes = [len(item.text.encode("utf-8")) for item in items]

    def __len__(self) -> int:
        return len(self.items)


class Builder:
    """Builds the bodies of one cell."""

    def __init__(self, cell: Cell, answers: Mapping[str, str], texts: Texts) -> None:
        self.cell = cell
        self.texts = texts
        named = {"TRAIT_NAME": cell.rubric.name, "TRAIT_DESCRIPTION": cell.rubric.description}
        self.filled: Filled = cell.template.fill({**answers, **named, **dict(cell.rubric.more)})
        self._text_bytes = sum(len(text.encode("utf-8")) for text in self.filled.texts)
        self._first_times = self.filled.samples.count(0)
        self._second_times = self.filled.samples.count(1)

    def built(self, first: int, second: int) -> bytes:
        """Return a body made by the provider module itself."""
        items = self.texts.items
        prompt = self.filled.prompt(items[first].text, items[second].text)
        return canonical(self.cell.config.module.build_body(prompt, self.cell.config.settings).body)

    @cached_property
    def frame(self) -> tuple[bytes, bytes] | None:
        """What stands before and after the prompt's JSON in every body, or None where that varies."""
        config = self.cell.config
        frames = set()
        for sentinel in _SENTINELS:
            pieces = canonical(config.module.build_body(sentinel, config.settings).body).split(
                canonical(sentinel)[1:-1]
            )
            if len(pieces) != 2:
                return None
            frames.add((pieces[0], pieces[1]))
        return frames.pop() if len(frames) == 1 else None

    def body_of(self, example: tuple[int, int]) -> BodyOf:
        """Return the fastest way to make bodies that gives the module's own bytes for an example."""
        if self.frame is None:
            return self.built
        spliced = self._spliced(*self.frame)
        return spliced if spliced(*example) == self.built(*example) else self.built

    def _spliced(self, before: bytes, after: bytes) -> BodyOf:
        inner = [canonical(text)[1:-1] for text in self.filled.texts]
        inner[0] = before + inner[0]
        inner[-1] = inner[-1] + after
        encoded = self.texts.encoded
        if self.filled.samples == (0, 1):
            head, middle, tail = inner
            return lambda first, second: b"".join((head, encoded[first], middle, encoded[second], tail))
        samples = self.filled.samples

        def splice(first: int, second: int) -> bytes:
            pair = (encoded[first], encoded[second])
            parts = [inner[0]]
            for text, sample in zip(inner[1:], samples, strict=True):
                parts += (pair[sample], text)
            return b"".join(parts)

        return splice

    def input_tokens(self, first: int, second: int) -> int:
        """Return the estimated input tokens of a prompt."""
        sizes = self.texts.sizes
        size_bytes = self._text_bytes + self._first_times * sizes[first] + self._second_times * sizes[second]
        return -(-size_bytes // BYTES_PER_TOKEN) + FRAME_TOKENS


def blocks(
    cells: Sequence[Cell], plan: Asks, texts: Texts, answers: Mapping[str, str], rows: int = BLOCK_ROWS
) -> Iterator[Block]:
    """Yield all requests in slot order, at most `rows` of one cell at a time; `answers` are the rule's placeholders."""
    for cell in cells:
        builder = Builder(cell, answers, texts)
        body_of = builder.body_of((int(plan.first[0]), int(plan.second[0])))
        for start in range(0, len(plan), rows):
            yield _block(builder, body_of, plan, start, min(start + rows, len(plan)))


def _block(builder: Builder, body_of: BodyOf, plan: Asks, start: int, stop: int) -> Block:
    first, second = plan.first[start:stop].tolist(), plan.second[start:stop].tolist()
    bodies = [body_of(f, s) for f, s in zip(first, second, strict=True)]
    tokens = [builder.input_tokens(f, s) for f, s in zip(first, second, strict=True)]
    repeats = plan.repeat_no[start:stop].tolist()
    provider, endpoint, model = builder.cell.group
    request_ids = [
        ids.request_id(provider, endpoint, model, body, repeat) for body, repeat in zip(bodies, repeats, strict=True)
    ]
    return Block(builder.cell, start, request_ids, bodies, tokens)
