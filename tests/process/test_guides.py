"""README and guides, tried: every command, program, query and study in them runs against simulated providers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.forked import program
from tests.rigs.pages import PAGES, blocks, desk, providers


@pytest.fixture(scope="module")
def tools() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, program(Path(folder)) as found:  # a socket's path has to be short
        yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_works_as_it_says(
    page: Path, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the page, in an empty folder and with new accounts, as somebody does who follows it."""
    folder = tmp_path / page.stem
    folder.mkdir()
    with providers() as simulated:
        at = desk(folder, tools, simulated)
        monkeypatch.chdir(folder)
        for name, value in at.variables.items():
            monkeypatch.setenv(name, value)
        for block in blocks(page):
            at.take(block)
