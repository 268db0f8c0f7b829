"""The page that people label on, in a real browser: by keyboard alone, silent, kept over a reload, and read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from batchpond.interop import labels
from batchpond.interop.imports import import_foreign
from batchpond.lake.store import Store
from batchpond.views import database
from tests.browser.browsing import SCHEMES, WIDTHS, chromium, findings, looking
from tests.flow.test_labels import STUDY, judged_lake

if TYPE_CHECKING:
    from playwright.sync_api import Browser

N = 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return judged_lake(tmp_path)


@pytest.fixture
def page(lake: Path, tmp_path: Path) -> Path:
    path = tmp_path / "sheet.html"
    labels.write(labels.draw(lake, STUDY, N), path)
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_is_silent_alone_accessible_and_fits(browser: Browser, page: Path, width: int, scheme: str) -> None:
    with looking(browser, page, width=width, scheme=scheme) as seen:
        assert findings(seen) == []
        assert seen.ask("document.documentElement.scrollWidth <= window.innerWidth")
        seen.lake_state(f"labels-{width}-{scheme}")
        assert (seen.console, seen.dialogs, seen.requests) == ([], [], [page.absolute().as_uri()])


def test_labels_are_given_by_keyboard_kept_and_read_back(browser: Browser, lake: Path, page: Path) -> None:
    """1, 2, tie, back to change the last, a comment, a reload in between, and the file goes in."""
    saved = page.with_name("saved.csv")
    with looking(browser, page) as seen:
        status = seen.page.get_by_role("status")
        seen.page.get_by_label("Your name").fill("anna")
        seen.page.locator("h1").click()
        for key in ("1", "2", "t", "k", "2"):
            seen.page.keyboard.press(key)
        assert status.inner_text() == "4 of 5, 3 labelled"
        seen.page.reload()
        assert status.inner_text() == "4 of 5, 3 labelled"
        seen.page.keyboard.press("1")
        seen.page.get_by_label("Comment").fill('hard, "both" are good')
        with seen.page.expect_download() as download:
            seen.page.get_by_role("button", name="Save labels").click()
        assert download.value.suggested_filename == "labels-anna.csv"
        download.value.save_as(saved)
        assert seen.console == []
    report = import_foreign(Store.open(lake), labels.reader(lake), [saved])
    assert report.judgments.n_new == 4
    with database.connect(lake) as lens:
        rows = lens.execute(
            "select verdict, count(*) from imported_judgments where request_model = 'anna' group by all order by all"
        ).fetchall()
    assert rows == [("first", 2), ("second", 2)]
