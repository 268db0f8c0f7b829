"""Sections of the report: each is listed, declares itself in a file or a module, and is added as its README says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

from batchpond.views import database
from batchpond_report import build, declared, page, sections
from batchpond_report.declared import Chapter, Declared
from batchpond_report.numbers import Kind
from batchpond_report.parts import Column
from batchpond_report.source import opened
from tests.rigs.report import Page
from tests.rigs.report import build as build_lake

FOLDER = Path(sections.__file__).parent
AROUND = ("facts", "compared", "methods")  # what every report begins and ends with, and two sides
README = (FOLDER.parent / "README.md").read_text()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lake(tmp_path_factory.mktemp("sections") / "lake")


def exhibits() -> Iterator[Declared]:
    """Yield every exhibit that a section's file or module declares."""
    for name in (*AROUND, *sections.SECTIONS):
        yield from declared.exhibits(name).values()
        if (FOLDER / f"{name}.py").exists():
            module = import_module(f"{sections.__name__}.{name}")
            yield from (found for found in vars(module).values() if isinstance(found, Declared))


def test_the_list_names_every_section_once() -> None:
    """No file or module is left out of the list, and none is missing but what stands before or after them all."""
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", *AROUND}
    files = {path.stem for path in FOLDER.glob("*.toml")} - {*AROUND}
    assert set(sections.SECTIONS) == modules | files
    assert len(sections.SECTIONS) == len(modules | files)
    assert all(callable(import_module(f"{sections.__name__}.{name}").section) for name in modules)
    assert all(declared.chapter(name).parts for name in files)


def test_a_word_that_nothing_knows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt field, kind or key in a section's file is an error, and never an exhibit that lacks something."""
    with pytest.raises(KeyError, match="repeat"):
        declared.chapter("repeats", repeat=lambda exhibit: exhibit)
    monkeypatch.setattr(declared, "FOLDER", tmp_path)
    good = (FOLDER / "repeats.toml").read_text()
    for told, wrong, error in (
        ("has_ends", "has_end", TypeError), ("share =", "shares =", ValueError), ("where", "were", TypeError),
        ('"repeats"\ntitle = "Agr', '"repeats"\ntitel = "Agr', TypeError), ("needs", "need", ValueError),
    ):  # fmt: skip
        assert told in good
        (tmp_path / "repeats.toml").write_text(good.replace(told, wrong))
        with pytest.raises(error):
            declared.chapter("repeats")


def test_a_section_is_added_as_the_readme_says(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's example, as a module of the folder and a name in the list, is in the page with figure and table."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "toy.py").write_text(example)
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])
    monkeypatch.setattr(sections, "SECTIONS", ("coverage", "toy"))
    monkeypatch.delitem(sys.modules, f"{sections.__name__}.toy", raising=False)
    try:
        report = build.build(lake, "every")
    finally:
        sys.modules.pop(f"{sections.__name__}.toy", None)
    assert [section.key for section in report.sections] == ["study", "coverage", "valid", "methods", "cite"]
    (exhibit,) = report.sections[2].parts
    html = page.render(report)
    found = Page(html)
    assert {"valid", "valid-figure", "valid-caption"} <= {a.get("id") for _, a in found.elements}
    assert "n = 4 to 36 answers per cell, 264 of them valid in all. Nothing was left out." in html
    assert exhibit in report.exhibits()


def test_the_readme_names_what_is_there() -> None:
    """Each file and word of the page's checklist exists."""
    for name in re.findall(r"^\| `([\w./]+)` \|", README, re.MULTILINE):
        assert (FOLDER.parent / name).exists(), name
    for word in ("Declared", "Chapter"):
        assert hasattr(declared, word)
        assert f"`{word}`" in README
    assert "`SECTIONS`" in README


def test_each_name_of_an_exhibit_is_declared_once() -> None:
    """Keys are unique and safe in addresses; no column stands twice in a table, and its figure has a value to draw."""
    found = list(exhibits())
    keys = [exhibit.key for exhibit in found]
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[a-z][a-z-]*", key) for key in keys)
    for exhibit in found:
        names = [column.name for column in exhibit.columns]
        assert len(set(names)) == len(names), exhibit.key
        assert not set(names) & set(exhibit.also.split()), exhibit.key
        if exhibit.figure is not None:
            roles = {column.role for column in exhibit.columns} | set(exhibit.figure.roles)
            assert "value" in roles, exhibit.key


def test_a_word_in_the_place_of_null_stands_in_a_column_of_text() -> None:
    """One that is printed as a number would be read as one, and no report be made."""
    kinds = {(one.key, column.name): column.kind for one in exhibits() for column in one.columns}
    words = [(one.key, name) for one in exhibits() for name in one.missing]
    assert [word for word in words if kinds.get(word, Kind.TEXT) not in {Kind.TEXT, Kind.RANGE}] == []


def test_every_declared_query_runs_on_the_views(lake: Path) -> None:
    """Where the small studies of other tests have no rows, a misspelt column would hide: each SELECT binds."""
    with opened(lake, "every") as source, closing(database.connect(lake)) as lens:
        for exhibit in exhibits():
            if exhibit.view:
                rows = lens.sql(exhibit.sql(source))
                assert rows.columns[: len(exhibit.cells)] == list(exhibit.cells), exhibit.key


def test_a_query_says_what_it_selects_in_upper_case_keywords(lake: Path) -> None:
    """The SQL that a reader copies is written as the views are."""
    keywords = re.compile(r"\b(select|from|where|group by|order by|and|as|union all|count\(distinct)\b")
    with opened(lake, "every") as source:
        texts = [exhibit.sql(source) for exhibit in exhibits() if exhibit.view]
    assert not [found.group() for text in texts for found in keywords.finditer(text)]
    assert all(text.startswith("SELECT ") and "\nORDER BY " in text for text in texts)


def test_a_chapter_with_nothing_to_show_is_left_out(lake: Path) -> None:
    """A section whose view has no row of the study, or whose need is not met, is None, not an empty heading."""
    bare = Declared(key="a", title="A", caption="n = {n_planned}", view="metric_completion", where="false",
                    cells=("template_id",), columns=(Column("n_planned", "planned"),))  # fmt: skip
    with opened(lake, "every") as source:
        assert Chapter(key="a", title="A", parts=(bare,))(source) is None
        assert Chapter(key="a", title="A", parts=(bare,), needs=lambda _: False)(source) is None
