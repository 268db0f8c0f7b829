"""The pages of `browse` in a real browser: every control, the keyboard alone, silent, alone, accessible, inert."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

import batchpond
from batchpond.interop.imports import import_judgments
from batchpond.lake.store import Store
from batchpond_browse import bundle, lists
from tests.browser import report_lakes
from tests.browser.browsing import SCHEMES, Seen, chromium, findings, looking
from tests.flow.test_labels import STUDY as ESSAYS
from tests.flow.test_labels import judged_lake
from tests.rigs import browse as rig
from tests.rigs import report as report_support

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (360, 800, 1400)
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}
PAIR = "/case?study=planned&rubric=quality&unit=&lo=alpha&hi=beta"
PLANNED = (
    "/", "/study?study=planned", "/rows?study=planned", "/rows?study=planned&state=refusals", "/pairs?study=planned",
    "/items?study=planned", PAIR, "/row?study=planned&row=r000000000001", "/rows?study=nope",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


PATIENCE_MS = 20_000


@contextmanager
def served(lake: Path, rater: str = "") -> Iterator[str]:
    """Serve a lake's pages; yields the address with its token."""
    with batchpond.Lake(lake).browse(rater=rater) as pages:
        yield pages.address


def go(seen: Seen, address: str, path: str) -> None:
    seen.page.set_default_timeout(PATIENCE_MS)
    seen.page.goto(address.split("/?", maxsplit=1)[0] + path)


def is_alone(seen: Seen, address: str) -> bool:
    """Whether nothing was asked of any other server."""
    return all(request.startswith(address.split("?", maxsplit=1)[0]) for request in seen.requests)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(rig.build(tmp_path_factory.mktemp("planned") / "lake")) as address:
        yield address


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A study with all tasks."""
    with served(report_support.build(tmp_path_factory.mktemp("every") / "lake")) as address:
        yield address


@pytest.fixture
def essays(tmp_path: Path) -> Path:
    return judged_lake(tmp_path)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pages_are_silent_alone_accessible_and_fit(browser: Browser, planned: str, width: int, scheme: str) -> None:
    with looking(browser, planned, width=width, scheme=scheme) as seen:
        for number, path in enumerate(PLANNED):
            go(seen, planned, path)
            seen.open_all()
            seen.lake_state(f"browse-{number}-{width}-{scheme}")
            assert findings(seen) == [], path
            assert seen.ask("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert is_alone(seen, planned)
        assert seen.dialogs == []
        assert [line for line in seen.console if "400 (Bad Request)" not in line] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_report_is_a_tab_silent_alone_accessible_and_fits(
    browser: Browser, every: str, width: int, scheme: str
) -> None:
    """It is a click away from a study's page, in the reader's scheme, and back again; folded or all open."""
    with looking(browser, every, width=width, scheme=scheme) as seen:
        page = seen.page
        go(seen, every, "/study?study=every")
        with page.expect_navigation():
            page.get_by_role("link", name="Report", exact=True).click()
        assert page.locator("h1").inner_text() == "every"
        assert seen.ask("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]
        for is_open in (False, True):
            if is_open:
                seen.open_all()
            seen.lake_state(f"browse-report-{width}-{scheme}{'-open' if is_open else ''}")
            assert findings(seen) == []
            assert seen.ask("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.locator("figure svg").count() >= 3
        with page.expect_navigation():
            page.get_by_role("link", name="All judgments").click()
        assert page.url.endswith("/rows?study=every")
        assert is_alone(seen, every)
        assert seen.dialogs == []
        assert seen.console == []


def test_a_row_of_the_report_leads_to_its_judgments(browser: Browser, every: str) -> None:
    """By mouse and by keyboard, to rows of that judge alone; the same row, drawn as a link, can be told apart."""
    with looking(browser, every) as seen:
        page = seen.page
        for judge in ("openai/m1/none", "anthropic/m2/none"):
            go(seen, every, "/report?study=every")
            link = page.locator(f"tbody th a[href*='judge={judge.replace('/', '%2F')}']").first
            assert "underline" in str(link.evaluate("a => getComputedStyle(a).textDecorationLine"))
            link.focus()
            with page.expect_navigation():
                page.keyboard.press("Enter") if judge.startswith("openai") else link.click()
            assert page.locator("select[name=judge]").input_value() == judge
            n_rows = page.locator("tr[data-row]").count()
            seen.lake_state(f"browse-behind-{judge.partition('/')[0]}")
            assert n_rows > 0
            assert page.locator("tr[data-row]").filter(has_text=judge.split("/")[1]).count() == n_rows
        assert is_alone(seen, every)
        assert seen.console == []


def test_who_labels_blind_has_no_report(browser: Browser, essays: Path) -> None:
    """The tab goes with the key b, its address shows none, and both come back."""
    with served(essays) as address, looking(browser, address) as seen:
        page = seen.page
        go(seen, address, f"/study?study={ESSAYS}")
        tab = page.get_by_role("link", name="Report", exact=True)
        for n_tabs in (0, 1):
            with page.expect_navigation():
                page.keyboard.press("b")
            assert tab.count() == n_tabs
            if not n_tabs:
                go(seen, address, f"/report?study={ESSAYS}")
                assert page.locator("figure, table").count() == 0
                go(seen, address, f"/study?study={ESSAYS}")
        assert [line for line in seen.console if "400 (Bad Request)" not in line] == []


def test_the_token_does_not_stay_in_the_address(browser: Browser, planned: str) -> None:
    with looking(browser, planned) as seen:
        assert seen.page.url == planned.split("?", maxsplit=1)[0]
        assert seen.ask("document.cookie") == ""


def test_by_keyboard_alone_from_the_first_page_to_a_judgment_and_back(browser: Browser, planned: str) -> None:
    """j, Enter, u, k, n, / and Escape, as the page lists them."""
    with looking(browser, planned) as seen:
        keyboard, page = seen.page.keyboard, seen.page

        def press(key: str, ends: str) -> None:
            with page.expect_navigation():
                keyboard.press(key)
            assert page.url.endswith(ends), (key, page.url)

        keyboard.press("j")
        keyboard.press("j")
        press("Enter", "/study?study=planned")
        keyboard.press("j")
        press("Enter", "judge=openai%2Fm1%2Fnone")
        for _ in range(3):
            keyboard.press("j")
        keyboard.press("k")
        assert page.locator("tr.here").count() == 1
        press("Enter", "row=r000000000002")
        press("j", "row=r000000000004")
        press("k", "row=r000000000002")
        press("u", "lo=alpha&hi=delta")
        go(seen, planned, "/rows?study=planned")
        keyboard.press("/")
        page.keyboard.type("needle")
        with page.expect_navigation():
            keyboard.press("Enter")
        assert page.locator("tr[data-row]").count() == 3
        keyboard.press("/")
        keyboard.press("Escape")
        keyboard.press("?")
        assert page.locator("details.keys").get_attribute("open") is not None
        press("u", "/study?study=planned")
        press("u", "/")
        assert seen.console == []


def test_filters_orders_and_pages_are_controls(browser: Browser, planned: str) -> None:
    """A filter shows its rows as soon as it is chosen, a head orders, again the other way, `All` takes it all back."""
    with looking(browser, planned) as seen:
        page = seen.page
        go(seen, planned, "/rows?study=planned")
        n_all = page.locator("tr[data-row]").count()
        with page.expect_navigation():
            page.locator("select[name=state]").select_option("refusals")
        assert set(page.locator("tr[data-row] .state").all_inner_texts()) == {"refused"}
        for ways in ("descending", "ascending"):
            with page.expect_navigation():
                page.get_by_role("link", name="Cost").click()
            assert page.locator("th[aria-sort]").get_attribute("aria-sort") == ways
        assert set(page.locator("tr[data-row] .state").all_inner_texts()) == {"refused"}
        with page.expect_navigation():
            page.get_by_role("link", name="All", exact=True).click()
        assert page.locator("tr[data-row]").count() == n_all


def test_a_search_of_a_large_study_goes_on_by_itself_until_somebody_stops_it(
    browser: Browser, planned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds is added to the page, j and k lead to it, Escape or the button stop it, and a click goes on."""
    monkeypatch.setattr(lists, "STRETCH_SLOTS", 3)
    monkeypatch.setattr(lists, "LOOK_S", -1.0)
    with looking(browser, planned) as seen:
        page = seen.page
        go(seen, planned, "/rows?study=planned&q=needle")
        page.locator("[data-further]").wait_for(state="detached")
        found = page.locator("tr[data-row] a.open").evaluate_all("all => all.map((one) => one.href)")
        assert len(found) > 1
        assert sorted(set(found)) == found
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url(found[1])
        page.locator("#previous").wait_for()
        for stop in (lambda: page.keyboard.press("Escape"), lambda: page.get_by_role("button", name="Stop").click()):
            go(seen, planned, "/rows?study=planned&q=nowhere")
            stop()
            further = page.get_by_role("link", name="Look further")
            n_looks, left = sum("&from=" in one for one in seen.requests), further.get_attribute("href")
            page.wait_for_timeout(1_500)
            assert sum("&from=" in one for one in seen.requests) == n_looks
            assert further.get_attribute("href") == left
            assert not page.get_by_role("button", name="Stop").is_visible()
        assert findings(seen) == []
        with page.expect_navigation():
            further.click()
        page.get_by_text("Nothing more.").wait_for()
        assert seen.console == []
    with looking(browser, planned, has_script=False) as seen:
        go(seen, planned, "/rows?study=planned&q=nowhere")
        with seen.page.expect_navigation():
            seen.page.get_by_role("link", name="Look further").click()
        assert "more to look at" in seen.page.locator("#further").inner_text()


def test_labels_blind_by_keyboard(browser: Browser, essays: Path) -> None:
    """A name, b, then 1, 2 and t from pair to pair; c takes one back; h hands in, and the lake has the judgments."""
    with served(essays) as address, looking(browser, address) as seen:
        page, keyboard = seen.page, seen.page.keyboard
        go(seen, address, f"/pairs?study={ESSAYS}&sort=lot")
        page.get_by_label("Your name").fill("anna")
        page.get_by_label("Your name").press("Escape")
        with page.expect_navigation():
            keyboard.press("b")
        assert page.url.endswith("sort=lot")
        assert page.get_by_label("Your name").input_value() == "anna"
        assert page.locator("tr[data-row] .state").count() == 0
        keyboard.press("j")
        with page.expect_navigation():
            keyboard.press("Enter")
        seen.lake_state("browse-blind")
        places = []
        for key in ("1", "2", "t"):
            places.append(page.url)
            assert page.locator("table").count() == 0
            with page.expect_navigation():
                keyboard.press(key)
        assert len({*places, page.url}) == 4
        with page.expect_navigation():
            keyboard.press("k")
        assert page.get_by_role("button", name="They are equal").get_attribute("aria-pressed") == "true"
        assert page.locator("table").count() == 1
        seen.lake_state("browse-labelled")
        assert findings(seen) == []
        with page.expect_navigation():
            keyboard.press("c")
        with page.expect_navigation():
            keyboard.press("h")
        assert page.get_by_role("button", name="Hand in").count() == 0
        assert seen.console == []
        said = batchpond.Lake(essays).sql(
            "select verdict, request_model from imported_judgments where provider = 'human'"
        )
        assert {row[1] for row in said.rows()} == {"anna"}
        assert len(said) == 2


def test_what_sync_brings_appears_by_itself(browser: Browser, essays: Path, tmp_path: Path) -> None:
    with served(essays) as address, looking(browser, address) as seen:
        seen.page.get_by_text("264").first.wait_for()
        path = tmp_path / "more.csv"
        path.write_text("item_first,item_second,verdict,model\ns00,s01,first,c\n")
        import_judgments(Store.open(essays), path, study=ESSAYS)
        seen.page.get_by_text("265").first.wait_for(timeout=30_000)
        assert "Shows what the lake has" in seen.page.locator("#status").inner_text()
        assert seen.console == []


@pytest.mark.parametrize("study", ["hostile", report_lakes.PAYLOADS[0]])
def test_hostile_names_and_answers_are_only_text(browser: Browser, tmp_path: Path, study: str) -> None:
    """Everything is opened, every first row followed: no script ran, no dialog, nothing asked elsewhere."""
    lake = report_lakes.hostile(tmp_path)
    with served(lake) as address, looking(browser, address, width=800) as seen:
        named = urlencode({"study": study})
        paths = [f"/{name}?{named}" for name in ("study", "pairs", "rows")]
        for path in paths[1:]:
            go(seen, address, path)
            paths.append(str(seen.page.locator("a.open").first.get_attribute("href")))
        for path in paths:
            go(seen, address, path)
            seen.open_all()
            assert seen.ask(f"typeof window.{report_lakes.MARK}") == "undefined"
            assert seen.ask("document.documentElement.scrollWidth <= window.innerWidth")
            assert seen.ask(
                "[...document.body.textContent].filter(c => /[\\u0000-\\u0008\\u001b\\u007f\\u202e]/.test(c)).length"
            ) == 0  # fmt: skip
            assert findings(seen) == []
        assert seen.dialogs == []
        assert is_alone(seen, address)
        assert seen.console == []


def test_the_files_of_a_bundle_work_without_a_server(browser: Browser, tmp_path: Path) -> None:
    """Styled, silent, by keyboard, from a pair to the next, on another machine than the lake's."""
    lake = report_support.build(tmp_path / "lake")
    bundle.write(lake, tmp_path / "made", study="hostile", n_cases=5)
    shutil.move(tmp_path / "made", tmp_path / "moved")
    with looking(browser, tmp_path / "moved" / "index.html") as seen:
        page = seen.page
        page.set_default_timeout(PATIENCE_MS)
        assert seen.ask("getComputedStyle(document.querySelector('table')).borderCollapse") == "collapse"
        for name in ("hostile", "Pairs"):
            with page.expect_navigation():
                page.get_by_role("link", name=name).first.click()
        page.keyboard.press("j")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        before = page.url
        with page.expect_navigation():
            page.keyboard.press("j")
        assert page.url != before
        assert seen.console == []
        assert all(request.startswith("file://") for request in seen.requests)
        seen.lake_state("browse-bundle")
        assert findings(seen) == []
