"""The guide `lake` says every table, column and kind of event that there is, and is current."""

from __future__ import annotations

from batchpond.lake import records
from batchpond.lake.schemas import TABLES
from tests.rigs import lake_page


def test_the_page_is_as_it_is_made() -> None:
    assert lake_page.TARGET.read_text("utf-8") == lake_page.render(), "run `python -m tests.rigs.lake_page`"


def test_nothing_is_said_of_what_is_not_there() -> None:
    """Rendering fails for a column without a meaning; a meaning without a column is left over from one that was."""
    columns = {name for table in TABLES.values() for name, _ in table.columns}
    assert set(lake_page.SAID["columns"]) <= columns
    for name, own in lake_page.SAID["tables"].items():
        assert set(own) <= {column for column, _ in TABLES[name].columns}, name
    assert set(lake_page.SAID["files"]) == set(TABLES)


def test_every_kind_of_event_has_its_row() -> None:
    page = lake_page.render()
    assert all(f"\n| `{kind}` | " in page for kind in records.KINDS)
