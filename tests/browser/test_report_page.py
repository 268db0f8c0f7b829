"""The report in a real browser: silent, alone, accessible, never wider than the screen, and its names are only text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import report_lakes
from tests.browser.browsing import SCHEMES, WIDTHS, Seen, chromium, findings, looking

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# name: how its lake is made, and the study in it
REPORTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "demo": (report_lakes.demo, "demo"),
    "every": (report_lakes.every, "every"),
    "large": (report_lakes.large, "large"),
    "hostile": (report_lakes.hostile, "hostile"),
    "hostile-imported": (report_lakes.hostile, report_lakes.PAYLOADS[0]),
}
A4_PX = 654  # 210 mm less the margins, at 96 to the inch

DOWNLOADS_MAX = 8  # Chromium refuses the eleventh in a row from one page

each_report = pytest.mark.parametrize("name", REPORTS)
each_width = pytest.mark.parametrize("width", WIDTHS)
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)
hostile_report = pytest.mark.parametrize("name", ["hostile", "hostile-imported"])


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def page_of(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what gives a report's file by name; each lake is made once."""
    made: dict[str, Path] = {}
    lake_of: dict[Callable[[Path], Path], Path] = {}

    def page(name: str) -> Path:
        make, study = REPORTS[name]
        if make not in lake_of:
            lake_of[make] = make(tmp_path_factory.mktemp(make.__name__))
        if name not in made:
            made[name] = report_lakes.report(lake_of[make], study, lake_of[make].parent / f"{name}.html")
        return made[name]

    return page


def is_inside(seen: Seen) -> bool:
    """Whether nothing makes the page scroll sideways."""
    return bool(seen.ask("document.documentElement.scrollWidth <= window.innerWidth"))


@each_report
@each_width
@each_scheme
def test_the_page_is_silent_alone_accessible_and_fits(
    browser: Browser, page_of: Callable[[str], Path], name: str, width: int, scheme: str
) -> None:
    """No console message, request, dialog, sideways scroll, or serious finding of axe; folded or all open."""
    path = page_of(name)
    with looking(browser, path, width=width, scheme=scheme) as seen:
        seen.lake_state(f"{name}-{width}-{scheme}")
        assert is_inside(seen)
        assert findings(seen) == []
        seen.open_all()
        seen.lake_state(f"{name}-{width}-{scheme}-open")
        assert is_inside(seen)
        assert findings(seen) == []
        assert seen.console == []
        assert seen.dialogs == []
        assert seen.requests == [path.absolute().as_uri()]


@each_report
@each_width
def test_figures_can_be_read(browser: Browser, page_of: Callable[[str], Path], name: str, width: int) -> None:
    """One drawing per figure is shown, for this width, and no letter of it is smaller than 9 pixels."""
    with looking(browser, page_of(name), width=width) as seen:
        shown = seen.ask(
            """[...document.querySelectorAll('figure')].map(figure => [...figure.querySelectorAll('svg')]
            .filter(svg => svg.getClientRects().length).map(svg => Math.min(...[...svg.querySelectorAll('text')]
            .map(text => parseFloat(text.getAttribute('font-size')) * svg.getBoundingClientRect().width
            / svg.viewBox.baseVal.width))))"""
        )
        assert len(shown) >= 3
        assert all(len(sizes) == 1 and sizes[0] >= 8.9 for sizes in shown)


@each_report
def test_print(browser: Browser, page_of: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    """Printed, it is dark on white whatever the screen's scheme, and fits a sheet's width."""
    with looking(browser, page_of(name), width=A4_PX, scheme="dark") as seen:
        seen.page.emulate_media(media="print")
        assert is_inside(seen)
        assert seen.ask("getComputedStyle(document.documentElement).getPropertyValue('--chart-paper')") == "#ffffff"
        assert seen.ask("getComputedStyle(document.body).backgroundColor") in {"rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"}
        shown = "[...document.querySelectorAll('.chart')].filter(box => box.getClientRects().length)"
        assert seen.ask(f"{shown}.every(box => box.classList.contains('chart-wide'))")
        seen.lake_state(f"{name}-print")
        data = seen.page.pdf(prefer_css_page_size=True, print_background=True)
        (tmp_path / "report.pdf").write_bytes(data)
        assert data.startswith(b"%PDF-")
        assert seen.console == []


@each_report
def test_it_reads_without_script(browser: Browser, page_of: Callable[[str], Path], name: str) -> None:
    """With JavaScript off, all of it is there; and there is none in it to be turned off, nor any address to load."""
    with looking(browser, page_of(name)) as seen, looking(browser, page_of(name), has_script=False) as bare:
        assert bare.page.inner_text("main") == seen.page.inner_text("main")
        assert bare.page.locator("h2").count() >= 3
        loads = "script, img, iframe, object, embed, link, base, form, image, use, foreignObject, video, audio, input"
        assert bare.page.locator(loads).count() == 0
        elsewhere = seen.ask(
            """[...document.querySelectorAll('*')].flatMap(node => [...node.attributes])
            .filter(({name, value}) => name.startsWith('on')
            || ['href', 'src', 'action', 'xlink:href'].includes(name) && !/^(#|data:text[/]csv)/.test(value))
            .map(({name, value}) => `${name}=${value}`)"""
        )
        assert elsewhere == []
        ids = seen.ask("[...document.querySelectorAll('[id]')].map(node => node.id)")
        assert len(ids) == len(set(ids))


@hostile_report
def test_hostile_names_and_answers_are_only_text(browser: Browser, page_of: Callable[[str], Path], name: str) -> None:
    """What names and answers try does not happen: no script ran, nothing was clicked away, and they read as written."""
    with looking(browser, page_of(name)) as seen:
        seen.open_all()
        for link in seen.page.locator("summary, nav a").all():
            link.click()
        assert seen.ask(f"typeof window.{report_lakes.MARK}") == "undefined"
        assert seen.dialogs == []
        text = seen.page.inner_text("body") + seen.page.content()
        assert "&lt;script&gt;" in text
        controls = seen.ask(
            "[...document.body.textContent].filter(c => /[\\u0000-\\u0008\\u001b\\u007f\\u202e]/.test(c))"
        )
        assert controls == []
        assert seen.page.title()


@pytest.mark.parametrize("name", ["demo", "hostile-imported"])
def test_each_figure_gives_its_data(browser: Browser, page_of: Callable[[str], Path], name: str) -> None:
    """The links to data give CSV files with as many rows as they say, and no cell that a spreadsheet would run."""
    with looking(browser, page_of(name)) as seen:
        n_links = seen.page.locator("a[download]").count()
    assert n_links >= 3
    for start in range(0, n_links, DOWNLOADS_MAX):
        with looking(browser, page_of(name)) as seen:
            for number in range(start, min(start + DOWNLOADS_MAX, n_links)):
                link = seen.page.locator("a[download]").nth(number)
                with seen.page.expect_download() as download:
                    link.click()
                rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text())))
                assert f"{len(rows) - 1:,} row" in link.inner_text()
                assert {len(row) for row in rows} == {len(rows[0])}
                assert not any(cell.startswith(("=", "@", "\t", "\r")) for row in rows for cell in row)
