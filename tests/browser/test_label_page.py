"""The page that people label on, in a real browser: by keyboard alone, silent, kept over a reload, and read back."""

from __future__ import annotations

import re
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
        assert seen.page.locator(".sides .text").first.inner_text().endswith("<b>& more</b>")
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


def test_a_sitting_of_skips_comments_and_a_second_machine(browser: Browser, lake: Path, page: Path) -> None:
    """What is skipped is found again, its comment is in the file, and another browser goes on from that file."""
    saved = page.with_name("saved.csv")
    with looking(browser, page) as seen:
        status = seen.page.get_by_role("status")
        seen.page.get_by_label("Your name").fill("anna")
        seen.page.keyboard.press("Escape")
        for key in ("1", "j", "2", "j"):
            seen.page.keyboard.press(key)
        assert status.inner_text() == "5 of 5, 2 labelled"
        seen.page.keyboard.press("t")
        seen.page.keyboard.press("n")
        assert status.inner_text() == "2 of 5, 3 labelled"
        seen.page.get_by_label("Comment", exact=True).fill('cannot tell, "really"')
        seen.page.keyboard.press("Escape")
        seen.page.keyboard.press("n")
        assert status.inner_text() == "4 of 5, 3 labelled"
        with seen.page.expect_download() as download:
            seen.page.keyboard.press("s")
        download.value.save_as(saved)
    (skipped,) = [line for line in saved.read_text().splitlines() if "cannot tell" in line]
    assert '"","anna","cannot tell, ""really"""' in skipped
    with looking(browser, page) as other:
        status = other.page.get_by_role("status")
        assert status.inner_text() == "1 of 5, 0 labelled"
        other.page.get_by_label("Go on from a saved file").set_input_files(saved)
        other.page.get_by_text("4 rows of this sheet were read.").wait_for()
        assert status.inner_text() == "1 of 5, 3 labelled"
        assert other.page.get_by_label("Your name").input_value() == "anna"
        for key in ("n", "1", "n", "1"):
            other.page.keyboard.press(key)
        assert status.inner_text() == "5 of 5, 5 labelled, none is left: save them"
        other.page.get_by_label("Your name").fill("bo")
        other.page.get_by_label("Go on from a saved file").set_input_files([])
        other.page.get_by_label("Go on from a saved file").set_input_files(saved)
        other.page.get_by_text("These are labels of anna, not of bo.").wait_for()
        assert other.console == []
    report = import_foreign(Store.open(lake), labels.reader(lake), [saved])
    assert report.judgments.n_new == 3


def test_long_texts_leave_the_choices_in_sight_and_begin_at_their_top(browser: Browser, page: Path) -> None:
    """In another script they run its own way, and what follows a text that was read to its end begins at its top."""
    longer = '"texts": ["\u05d5\u05d4\u05e0\u05de\u05dc ' + "x " * 20_000
    page.write_text(re.sub(r'"texts": ?\["', lambda _: longer, page.read_text(), count=1))
    with looking(browser, page, width=768) as seen:
        choice = seen.page.get_by_role("button", name="They are equal")
        assert seen.ask("document.documentElement.scrollHeight > 3 * innerHeight")
        assert choice.bounding_box()["y"] < seen.ask("innerHeight")  # type: ignore[index] # it is there
        assert seen.ask("getComputedStyle(document.querySelector('.sides .text')).direction") == "rtl"
        seen.ask("scrollTo(0, document.body.scrollHeight)")
        seen.page.keyboard.press("1")
        assert seen.ask("scrollY") == 0


def test_a_browser_that_keeps_nothing_says_so(browser: Browser, page: Path) -> None:
    with looking(browser, page) as seen:
        seen.ask("void (Storage.prototype.setItem = () => { throw new Error('full') })")
        seen.page.keyboard.press("1")
        assert seen.page.get_by_text("This browser keeps nothing").count() == 1
