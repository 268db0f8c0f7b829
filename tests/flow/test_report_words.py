"""What a study's file says for its report is in the report, and nowhere in what is asked."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from batchpond.errors import StudyError
from batchpond.lake.records import Planned
from batchpond.plan.cells import config_json
from batchpond.run.forget import Target, forget
from batchpond.run.resolve import reread
from batchpond.study.file import load
from batchpond.study.objects import Study
from batchpond.study.spec import to_json
from batchpond.views.read import run_query
from batchpond_report import build, markdown, page
from tests.flow.test_forget import said
from tests.rigs.lakes import LakeBuilder
from tests.rigs.report import Page
from tests.rigs.sim_inputs import STUDY
from tests.rigs.sim_study import Rig

TITLE, FIRST, SECOND = "Which of the two comes first?", "Ada Vermeulen", "Bo Öst & Sons"
WORDS = f"""
[report]
title = "{TITLE}"
authors = ["{FIRST}", "{SECOND}"]
notes = \"\"\"
Texts of one school year.

Read with <care> and 50 % doubt.
\"\"\"
"""
ASKED = """
    SELECT DISTINCT request_id, cell_id, study_version, direction, item_first FROM plan ORDER BY ALL"""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have reports of few sections: head and end are the same with all."""
    monkeypatch.setattr(build.sections, "SECTIONS", ("coverage", "money"))


def rows(rig: Rig, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run_query(rig.lake, sql).to_pylist()
    return found


def say(rig: Rig, words: str) -> None:
    """Write words for the report into the study, in place of those that stand there, and plan it."""
    text = rig.study_path.read_text().partition("\n[report]")[0]
    rig.study_path.write_text(text + words)
    rig.plan()


def planned(rig: Rig) -> list[Planned]:
    return [event for event in rig._events() if isinstance(event, Planned)]


def asked(tmp_path: Path) -> Rig:
    """Return a rig whose study is asked and answered, without a word for the report."""
    rig = Rig(tmp_path, max_requests=4)
    rig.plan()
    rig.submit()
    for _ in range(2):
        rig.clock.advance(1_000)
        rig.sync()
    return rig


def test_words_for_the_report_ask_nothing_and_make_no_version(tmp_path: Path) -> None:
    """Requests, cells and version are the same with them, others and none; each change of them is on record once."""
    rig = Rig(tmp_path, max_requests=4)
    rig.plan()
    rig.submit(limit=4)
    before = rows(rig, ASKED)
    assert [event.words for event in planned(rig)] == [None]
    for words, n_events in ((WORDS, 2), (WORDS, 2), (WORDS.replace(FIRST, "Eve"), 3), ("", 4), ("", 4)):
        say(rig, words)
        assert rows(rig, ASKED) == before
        assert (len(planned(rig)), len(rows(rig, "FROM studies"))) == (n_events, 1)
    rig.clock.advance(1_000)
    assert not [note.message for note in rig.sync().notes if "version" in note.message]  # the approval still holds
    assert planned(rig)[-1].words is None
    rig.world.close()


def test_no_word_for_the_report_is_part_of_what_the_lake_keeps_of_a_study(tmp_path: Path) -> None:
    """A study of pairs, and one of stages, is the same text with and without them."""
    rig = Rig(tmp_path, max_requests=4)
    file = rig.study_path
    file.parent.mkdir(parents=True, exist_ok=True)
    rig.plan()
    bare = load(file)
    file.write_text(file.read_text() + WORDS)
    told = load(file)
    assert (told.words.title, told.words.authors) == (TITLE, (FIRST, SECOND))
    assert config_json(told) == config_json(bare)
    assert to_json(told) == to_json(bare)
    for wrong, why in (("author = 'Ada'", "is not a known key"), ("authors = []", "authors"), ("title = ' '", "title")):
        file.write_text(file.read_text().partition("\n[report]")[0] + f"\n[report]\n{wrong}\n")
        with pytest.raises(StudyError, match=why):
            load(file)
    made = Study(STUDY, report={"title": TITLE, "authors": [FIRST]})
    assert f'[report]\ntitle = "{TITLE}"' in made.to_toml()
    rig.world.close()


def test_the_report_begins_with_them_and_ends_with_how_to_cite_it(tmp_path: Path) -> None:
    """Title, authors, date and notes at the head, a sentence and BibTeX at the end; without them it has its name."""
    rig = asked(tmp_path)
    (now,) = rows(rig, "SELECT study_version FROM studies_current")
    bare = markdown.render(build.build(rig.lake, STUDY))
    assert bare.startswith(f"# {STUDY}\n\nanswers up to 21 November 2026\n")
    assert "report]" not in bare  # the guide says how to set them, not the report
    say(rig, WORDS)
    report = build.build(rig.lake, STUDY)
    text = markdown.render(report)
    head = text.partition("\n## ")[0]
    assert head.startswith(f"# {TITLE}\n\n{FIRST}, Bo Öst &amp; Sons · answers up to 21 November 2026\n\n")
    assert "\nTexts of one school year.\n\nRead with &lt;care&gt; and 50 % doubt.\n" in head
    cite = text.partition("## How to cite\n")[2]
    assert f"{FIRST}, Bo Öst &amp; Sons. {TITLE} (2026). Study {STUDY}, version {now['study_version']}, data" in cite
    assert report.fingerprint[:16] in cite
    (entry, tool) = re.findall(r"^@misc\{.*?^\}", cite, re.MULTILINE | re.DOTALL)
    assert f"  author = {{{FIRST} and Bo Öst \\& Sons}},\n  title = {{{TITLE}}},\n  year = {{2026}},\n" in entry
    assert now["study_version"] in entry
    assert "batchpond" in tool
    html = page.render(report)
    shown = "".join(Page(html).text)
    assert all(part in shown for part in (TITLE, FIRST, SECOND, "Read with <care>", "answers up to", entry))
    (heading,) = re.findall(r"<h1>(.*?)</h1>", html)
    assert heading == TITLE
    rig.world.close()


def test_a_new_reader_keeps_them_and_forget_takes_them_along(tmp_path: Path) -> None:
    """Names of people are in no file of the lake once its study is forgotten; every other event stays."""
    rig = asked(tmp_path)
    say(rig, WORDS)
    reread(rig.store(), STUDY)
    assert [event.words is None for event in planned(rig)] == [True, False, False]
    assert markdown.render(build.build(rig.lake, STUDY)).startswith(f"# {TITLE}\n")
    rig.clock.advance(1_000)
    rig.sync()
    kept = {event.event_id for event in rig._events() if not isinstance(event, Planned)}
    assert FIRST in said(rig.lake)
    with rig._points():
        forget(rig.store(), Target(study=STUDY), providers=rig.providers(), is_local=True)
    assert FIRST not in said(rig.lake)
    assert TITLE not in said(rig.lake)
    assert kept <= {event.event_id for event in rig._events()}
    assert not planned(rig)
    rig.plan()
    assert rows(rig, "SELECT study FROM studies_current") == [{"study": STUDY}]
    rig.world.close()


def test_hostile_words_are_text(tmp_path: Path) -> None:
    """Markup, TeX, line ends and hidden characters in title and names do nothing in page, Markdown or BibTeX."""
    attack = "</h1><script>alert(1)</script> \\input{x} # % \u202egnp"
    rig = asked(tmp_path)
    say(rig, f"\n[report]\ntitle = {os.fsencode(attack).decode()!r}\nauthors = [{attack!r}]\n".replace("\\\\", "\\"))
    report = build.build(rig.lake, STUDY)
    html = page.render(report)
    assert "<script" not in html
    assert "\u202e" not in html + markdown.render(report)
    (bibtex,) = [section.listing for section in report.sections if section.listing]
    title = next(line for line in bibtex.splitlines() if "title" in line)
    assert not set("\\") & set(title.replace("\\#", "").replace("\\%", ""))
    assert bibtex.count("{") == bibtex.count("}")
    rig.world.close()


def test_a_study_that_was_imported_is_cited_by_its_data(tmp_path: Path) -> None:
    """It has no version and no date, and its judgments are told by their fingerprint."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.imported([
        {"study": "other", "import_key": f"k{n}", "item_first": "a", "item_second": f"b{n}", "verdict": "first",
         "outcome": "decided", "template_id": "t", "rubric_id": "r", "provider": "openai", "request_model": "m"}
        for n in range(3)
    ])  # fmt: skip
    lake.build()
    report = build.build(tmp_path / "lake", "other")
    text = markdown.render(report)
    assert text.startswith("# other\n\n3 judgments")
    assert f"\nother. Study other, data fingerprint {report.fingerprint[:16]}. Report by batchpond" in text
    assert "@misc{other-report,\n  title = {other},\n  note" in text
