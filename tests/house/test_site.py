"""The site of the guides: every page has its place in it, and what is made of pages for it is as it should be.

CI builds it, which fails for a link that leads nowhere; here is what the builder cannot know.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
import yaml

import batchpond
from batchpond.cli.frame import GUIDES
from tests.rigs.pages import GUIDES as FOLDER
from tests.rigs.pages import PAGES, ROOT

SITE = ROOT / ".github" / "site"
SPEC = importlib.util.spec_from_file_location("pages", SITE / "pages.py")
assert SPEC is not None
assert SPEC.loader is not None
PAGES_OF_SITE: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(PAGES_OF_SITE)


class Loader(yaml.SafeLoader):
    """Reads MkDocs' settings without what only MkDocs has."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SETTINGS = yaml.load((SITE / "mkdocs.yml").read_text("utf-8"), Loader)  # noqa: S506 - it is a safe loader


def in_nav(node: Any) -> list[str]:
    """Return the pages of a part of the navigation."""
    if isinstance(node, str):
        return [node]
    return [page for one in (node.values() if isinstance(node, dict) else node) for page in in_nav(one)]


NAV = in_nav(SETTINGS["nav"])


def test_every_guide_and_every_further_page_has_one_place_in_the_navigation() -> None:
    assert sorted(NAV) == sorted([*(f"{name}.md" for name in GUIDES), *PAGES_OF_SITE.PLACES, PAGES_OF_SITE.API])


def test_the_guides_are_read_where_they_stand_and_the_site_is_strict() -> None:
    assert (SITE / SETTINGS["docs_dir"]).resolve() == FOLDER
    assert SETTINGS["strict"] is True
    assert set(SETTINGS["validation"].values()) == {"warn"}


@pytest.mark.parametrize("place", PAGES_OF_SITE.PLACES.values())
def test_links_of_pages_from_elsewhere_lead_to_pages_of_the_site(place: str) -> None:
    text = PAGES_OF_SITE.placed((ROOT / place).read_text("utf-8"), place)
    targets = {path for path in re.findall(r"\]\(([^)#]+)", text) if path}
    pictures = {f"images/{path.name}" for path in (ROOT / ".github" / "images").glob("*.png")}
    assert targets <= {*NAV, *pictures}


def test_blocks_have_titles_for_what_they_say_of_themselves() -> None:
    shown = PAGES_OF_SITE.shown("```toml study.toml\n```\n```text output\n```\n```sh no-run: it needs a GPU\n```\n")
    assert shown == '```toml title="study.toml"\n```\n```text title="prints"\n```\n```sh\n```\n'
    for page in PAGES:
        assert "no-r" not in re.sub(r"^[^`].*$", "", PAGES_OF_SITE.shown(page.read_text("utf-8")), flags=re.MULTILINE)


def test_a_bar_in_a_tables_code_is_a_bar() -> None:
    cell, other = "<td><code>html\\|md</code></td>", "<pre><code>a \\| b</code></pre>"
    assert PAGES_OF_SITE.on_page_content(cell + other) == "<td><code>html|md</code></td>" + other


@pytest.mark.parametrize("name", ["report", "browse"])
def test_the_readmes_pictures_stand_in_the_guides_of_the_same_names(name: str) -> None:
    """The guides themselves have none: they are printed in terminals, and the package carries no picture."""
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    assert "![" not in text
    assert f"](images/{name}.png)\n" in PAGES_OF_SITE.pictured(text, f"{name}.md")


def test_the_page_of_the_api_has_everything_that_is_exported() -> None:
    names = {name for name, _ in PAGES_OF_SITE.exported()}
    assert names == {name for name in batchpond.__all__ if not name.startswith("__")}
    page = PAGES_OF_SITE.api()
    assert all(re.search(rf"^::: batchpond[._].*\b{name}$", page, re.MULTILINE) for name in names)


def test_ci_builds_it_by_the_command_that_is_documented() -> None:
    lines = (ROOT / ".github" / "CONTRIBUTING.md").read_text("utf-8").splitlines()
    assert sum("mkdocs build" in line for line in lines) == 1
    assert "grep -m1 -e 'mkdocs build' .github/CONTRIBUTING.md" in (ROOT / ".ci" / "run").read_text()
