"""Items that are read some at once, as those that are read one by one."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from batchpond.plan.items import Item, ItemColumns


def items_of(some: Iterable[ItemColumns]) -> list[Item]:
    """Return items one by one."""
    rows = [row for columns in some for row in zip(*columns, strict=True)]
    return [
        Item(item_id, text, orjson.dumps(more, option=orjson.OPT_SORT_KEYS).decode() if more else None)
        for item_id, text, more in rows
    ]
