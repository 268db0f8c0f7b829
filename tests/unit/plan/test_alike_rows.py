"""A stage that shows answers is refused only where none of its items is one that was answered about."""

from __future__ import annotations

import pytest

from batchpond.plan import verb
from batchpond.plan.rows import SourceRow


def row(item_id: str, unit_id: str = "") -> SourceRow:
    return SourceRow(item_id, "text", unit_id, None, "", "")


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_rows_are_alike_by_any_id_or_unit_however_few_are_held_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "_IDS_AT_ONCE", at_once)
    own = [row("a"), row("b"), row("c", "u")]
    assert verb._are_alike(own, [row("x"), row("c")])
    assert verb._are_alike(own, [row("x"), row("y", "u")])
    assert verb._are_alike(own, [row("u")])
    assert not verb._are_alike(own, [row("x"), row("y", "v")])
