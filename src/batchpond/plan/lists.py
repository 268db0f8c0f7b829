"""Which items are shown together in a list, and in which order: balanced by Latin squares that the seed draws.

Items stand in as many queues as a list has places. A list takes the first of each queue, and each of them goes to the
end of the queue of the next place. So after as many lists as there are items each stood once at each place, whatever
their number: rows and places are a Youden square (Youden 1937), of as many items as places a Latin square. Among those
that were shown equally often the seed chooses, so that who meets whom is drawn anew, and all queues after each cycle.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from batchpond import ids


def orders(names: Sequence[str], size: int, seed: int, salt: str = "") -> Iterator[tuple[int, ...]]:
    """Yield lists of `size` different items without end, as positions in `names`, in the order of their places."""
    for cycle in itertools.count():

        def drawn(item: int, n_shown: int, cycle: int = cycle) -> tuple[int, float, int]:
            draw = ids.unit_interval(seed, "list", salt, str(cycle), str(n_shown), names[item])
            return n_shown, draw, item

        start = sorted(drawn(item, 0) for item in range(len(names)))
        queues = [start[place::size] for place in range(size)]
        for _ in names:
            shown = [heapq.heappop(queue) for queue in queues]
            yield tuple(item for *_, item in shown)
            for queue, (n_shown, _, item) in zip(queues[1:] + queues[:1], shown, strict=True):
                heapq.heappush(queue, drawn(item, n_shown + 1))
