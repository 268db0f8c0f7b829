"""A headless Chromium that looks at a page and notes all that the page does beside being read.

Where BATCHPOND_BROWSER does not name a Chromium, or the packages that drive it are not there, tests skip and say how
to get them. With BATCHPOND_SCREENSHOTS=DIR, what was seen is kept there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VARIABLE: Final = "BATCHPOND_BROWSER"
PICTURES: Final = "BATCHPOND_SCREENSHOTS"
HOW: Final = "bash tests/browser/install.sh .venv/bin/python; then set BATCHPOND_BROWSER=/usr/bin/chromium"
FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_PATIENCE_MS: Final = 180_000
WIDTHS: Final = (375, 768, 1440)
SCHEMES: Final = ("light", "dark")


@dataclass
class Seen:
    """What a page did while it was looked at."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def ask(self, expression: str) -> Any:
        """Return what a JavaScript expression of the test's own gives on the page."""
        return self.page.evaluate(expression)

    def open_all(self) -> None:
        """Open everything that is folded."""
        self.ask("document.querySelectorAll('details').forEach(folded => { folded.open = true })")

    def lake_state(self, name: str) -> None:
        """Keep what is seen, where somebody asked for it."""
        if folder := os.environ.get(PICTURES):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run a Chromium; skips, loudly, where there is none."""
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"no browser: {HOW}")
    if not Path(path).is_file():
        pytest.fail(f"{VARIABLE} names {path}, which is no file: {HOW}")
    try:
        from axe_playwright_python import sync_playwright as _  # noqa: F401, PLC0415 - absent from most environments
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - as above
    except ImportError as error:
        pytest.skip(f"{error}: {HOW}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def looking(
    browser: Browser, place: Path | str, *, width: int = 1440, scheme: str = "light", has_script: bool = True
) -> Iterator[Seen]:
    """Open a file, or an address, as a reader would: at a width, in a scheme, with or without JavaScript."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=has_script,  # type: ignore[arg-type]
        accept_downloads=True, reduced_motion="reduce",
    )  # fmt: skip
    context.set_default_timeout(_PATIENCE_MS)
    page = context.new_page()
    seen = Seen(page)
    page.on("console", lambda message: seen.console.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.console.append(f"error: {error}"))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("dialog", lambda dialog: (seen.dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(place if isinstance(place, str) else place.absolute().as_uri(), wait_until="load")
    try:
        yield seen
    finally:
        context.close()


def findings(seen: Seen) -> list[str]:
    """Return axe's serious and critical findings: the rule, and where."""
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - absent from most environments

    found = Axe().run(seen.page).response
    assert len(found["passes"]) > 10, "axe did not look"
    return [
        f"{rule['impact']} {rule['id']}: {[node['target'] for node in rule['nodes']][:3]}"
        for rule in found["violations"]
        if rule["impact"] in {"serious", "critical"}
    ]
