"""The page `sql/README.md`, and that what it says about adding a metric is enough."""

from __future__ import annotations

from batchpond.views.scripts import sql_folder
from tests.rigs import sql_readme


def test_the_page_about_the_views_is_up_to_date() -> None:
    """`python -m tests.rigs.sql_readme` was run after the last change."""
    assert (sql_folder() / "README.md").read_text("utf-8") == sql_readme.render()
