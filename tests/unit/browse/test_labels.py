"""Labels given on the pages: blind if wanted, durable at once, without the lake's lock, at last judgments."""

from __future__ import annotations

import csv
import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import batchpond
from batchpond.interop import labels
from batchpond.lake.schemas import ITEMS
from batchpond.lake.store import Store
from batchpond.views import refresh
from batchpond_browse.spool import FILE, Label, Spool
from tests.flow.test_labels import STUDY, judged_lake
from tests.rigs import report as report_support
from tests.unit.browse.test_pages import client_of, get

CASE = {"rubric": "unspecified", "lo": "s00", "hi": "s01"}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_lake(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def lake(judged: Path, tmp_path: Path) -> Path:
    """A lake of one's own."""
    shutil.copytree(judged, tmp_path / "lake")
    return tmp_path / "lake"


def form_of(text: str) -> dict[str, str]:
    """Return what the page's label form sends beside the button."""
    form = text.split('action="/label"')[1].split("</form>", maxsplit=1)[0]
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)}


def give(client: TestClient, label: str, rater: str = "anna", comment: str = "", **case: str) -> None:
    form = form_of(get(client, "case", study=STUDY, **(case or CASE)))
    answer = client.post("/label", data={**form, "label": label, "rater": rater, "comment": comment})
    assert answer.status_code == 303


def said(lake: Path) -> list[tuple[object, ...]]:
    columns = "item_first, item_second, verdict, request_model, explanation"
    return batchpond.Lake(lake).sql(
        f"select {columns} from imported_judgments where provider = 'human' order by all"
    ).rows()  # fmt: skip


def test_labels_become_peoples_judgments_when_they_are_handed_in(lake: Path) -> None:
    """The last one of a pair and a rater counts, one that was taken back does not; `truths` has what was said."""
    client = client_of(lake)
    give(client, "1")
    give(client, "2", comment='hard, "both"\nare good')
    give(client, "tie", rater="ben")
    give(client, "1", lo="s02", hi="s05", rubric="unspecified")
    give(client, "", lo="s02", hi="s05", rubric="unspecified")
    assert said(lake) == []
    assert "Hand in 2 labels" in get(client, "")
    assert client.post("/hand-in", data={"back": "/"}).status_code == 303
    assert said(lake) == [("s00", "s01", "second", "anna", 'hard, "both" are good'), ("s00", "s01", "tie", "ben", None)]
    assert batchpond.Lake(lake).sql("select item_lo, item_hi, n_votes from truths").rows() == [("s00", "s01", 2)]
    assert "Hand in" not in get(client, "")
    assert (lake / FILE).read_bytes() == b""


def test_what_was_handed_in_is_shown_and_not_asked_again(lake: Path) -> None:
    """As that rater's label, which another takes the place of; another rater is asked."""
    client = client_of(lake)
    give(client, "2")
    client.post("/hand-in", data={})
    client.post("/reader", data={"rater": "anna", "back": "/"})
    text = get(client, "case", study=STUDY, **CASE)
    assert re.search(r'value="2" data-key="2" aria-pressed="true"', text)
    assert "is a judgment of the lake" in text
    client.post("/reader", data={"rater": "ben", "back": "/"})
    assert 'aria-pressed="true"' not in get(client, "case", study=STUDY, **CASE)


def test_a_label_that_was_handed_in_is_changed_or_taken_back_on_its_page(lake: Path) -> None:
    """What is said of it waits as any label does, and counts in the place of the first once it is handed in."""
    client = client_of(lake)
    give(client, "1")
    client.post("/hand-in", data={})
    give(client, "2")
    client.post("/reader", data={"rater": "anna", "back": "/"})
    assert re.search(r'value="2" data-key="2" aria-pressed="true"', get(client, "case", study=STUDY, **CASE))
    give(client, "")
    assert re.search(r'value="1" data-key="1" aria-pressed="true"', get(client, "case", study=STUDY, **CASE))
    give(client, "2", rater="ben")
    give(client, "2")
    assert client.post("/hand-in", data={}).status_code == 303
    assert [(label, rater) for _, _, label, rater, _ in said(lake)] == [("second", "anna"), ("second", "ben")]
    before = batchpond.Lake(lake).sql("select request_model, detail from events where kind = 'relabelled'").rows()
    assert [(rater, json.loads(row)["verdict"]) for rater, row in before] == [("anna", "first")]
    give(client, "")
    assert "taken back once you hand in" in get(client, "case", study=STUDY, **CASE)
    give(client, "")
    assert "is a judgment of the lake" in get(client, "case", study=STUDY, **CASE)
    give(client, "")
    assert client.post("/hand-in", data={}).status_code == 303
    assert [(label, rater) for _, _, label, rater, _ in said(lake)] == [("second", "ben")]
    assert 'aria-pressed="true"' not in get(client, "case", study=STUDY, **CASE)


def test_the_keys_are_those_of_a_sheet(lake: Path) -> None:
    """Every unit that `label` draws has on its page the key that its row of the sheet has."""
    client = client_of(lake)
    drawn = labels.draw(lake, STUDY, 66)
    by_texts = {frozenset(one.texts): one.key[:-1] for one in drawn.questions}
    for lo, hi in (("s00", "s01"), ("s03", "s11"), ("s07", "s08")):
        key = form_of(get(client, "case", study=STUDY, rubric="unspecified", lo=lo, hi=hi))["key"]
        assert key[:-1] == by_texts[frozenset(f"=text of {item} <b>& more</b>" for item in (lo, hi))]


def test_single_items_offer_the_words_of_their_task(tmp_path: Path) -> None:
    """Compliance true and false, a scale its numbers: given by their number, handed in, read as such."""
    lake = report_support.build(tmp_path / "lake")
    rows = [
        {"item_hash": f"h{n}", "item_id": f"u{n}-alpha", "text": f"An answer, {n}.", "metadata": None} for n in (1, 2)
    ]
    store = Store.open(lake)

    store.publish(ITEMS, "texts", rows)
    refresh.refresh(store)
    client = client_of(lake)
    for task, rubric, label in (("compliance", "s1", "false"), ("likert", "clarity", "3.0")):
        text = get(
            client, "case", study="every", task=task, rubric=rubric, unit="u1", item="u1-alpha", candidate="alpha"
        )
        assert f'name="label" value="{label}"' in text
        assert client.post("/label", data={**form_of(text), "label": label, "rater": "anna"}).status_code == 303
    client.post("/hand-in", data={})
    sql = "select task, verdict, score from imported_judgments where request_model = 'anna' order by task"
    assert batchpond.Lake(lake).sql(sql).rows() == [("compliance", "false", None), ("likert", None, 3.0)]


def test_blind_nothing_of_what_judges_said_reaches_the_page_until_a_label_is_given(lake: Path) -> None:
    """Lists, cases and judgments hide it; the texts stand in an order by lot, and the key says which."""
    client = client_of(lake)
    client.post("/reader", data={"rater": "anna", "blind": "1", "back": "/"})
    letters = set()
    for lo, hi in (("s00", "s01"), ("s00", "s02"), ("s00", "s03"), ("s00", "s04"), ("s00", "s05")):
        text = get(client, "case", study=STUDY, rubric="unspecified", lo=lo, hi=hi)
        main = text.split("<main")[1].split("</main>")[0]
        assert not re.search(r"first|second|flip|same|unspecified/a", main.split('class="sides"')[1])
        letter = form_of(text)["key"][-1]
        is_lo_first = main.index(f"text of {lo}") < main.index(f"text of {hi}")
        assert letter == ("a" if is_lo_first else "b")
        letters.add(letter)
    assert letters == {"a", "b"}
    for kind in ("pairs", "rows"):
        assert not re.search(
            r"agreement</span>|flip</span>|decided</span>|>first<|>second<", get(client, kind, study=STUDY)
        )
    give(client, "1")
    assert "Both orders" in get(client, "case", study=STUDY, **CASE)
    assert said(lake) == []


def test_labels_are_given_while_a_writer_works_and_handed_in_after_it(lake: Path) -> None:
    """To label takes no lock of the lake; to hand in says that a writer is busy, and keeps every label."""
    client = client_of(lake)
    with Store.open(lake).lock("sync"):
        give(client, "1")
        answer = client.post("/hand-in", data={})
        assert answer.status_code == 500
        assert "busy" in answer.text or "sync" in answer.text
        assert len(Spool(lake).waiting()) == 1
    client.post("/hand-in", data={})
    assert len(said(lake)) == 1


def test_a_label_survives_the_server_and_a_cut_off_line_spoils_no_other(lake: Path) -> None:
    """What waits is in the file alone; a line that power cut is none, and what is written after it counts."""
    Spool(lake).give(Label(STUDY, "k" * 20 + "a", "1", "anna", ""))
    with (lake / FILE).open("ab") as file:
        file.write(b'essays,"torn')
    Spool(lake).give(Label(STUDY, "l" * 20 + "a", "2", "anna", "x" * 10))
    assert [(one.key[0], one.label) for one in Spool(lake).waiting()] == [("k", "1"), ("l", "2")]
    assert (lake / FILE).stat().st_mode & 0o777 == 0o600


def test_a_blank_label_takes_one_back_and_holds_up_no_other(lake: Path) -> None:
    client = client_of(lake)
    give(client, "1")
    give(client, "2", rater="bert")
    give(client, "  ")
    assert [one.rater for one in Spool(lake).waiting()] == ["bert"]
    assert client.post("/hand-in", data={}).status_code == 303
    assert [row[3] for row in said(lake)] == ["bert"]


def test_labels_that_the_lake_cannot_take_are_kept_and_said(lake: Path) -> None:
    """One of a unit that is gone: nothing is handed in, and the message names the key and the file that has it."""
    client = client_of(lake)
    give(client, "1")
    Spool(lake).give(Label(STUDY, "k" * 20 + "a", "1", "anna", ""))
    answer = client.post("/hand-in", data={})
    assert answer.status_code == 400
    assert "k" * 20 in answer.text
    assert FILE in answer.text
    assert (len(Spool(lake).waiting()), said(lake)) == (2, [])
    assert [path.name for path in lake.glob(".*.csv")] == []


def test_a_label_needs_a_name_and_a_unit(lake: Path) -> None:
    client = client_of(lake)
    form = form_of(get(client, "case", study=STUDY, **CASE))
    for data in ({**form, "rater": " ", "label": "1"}, {**form, "rater": "anna", "key": "", "label": "1"}):
        assert client.post("/label", data=data).status_code == 400
    assert Spool(lake).waiting() == []


def test_where_no_label_can_be_kept_it_is_said_and_all_else_is_shown(lake: Path) -> None:
    """A lake on a disk that takes nothing: the pages are there, a label is an error that says so."""
    client = client_of(lake)
    form = form_of(get(client, "case", study=STUDY, **CASE))
    (lake / FILE).symlink_to("/nowhere/at/all")
    answer = client.post("/label", data={**form, "rater": "anna", "label": "1"})
    assert answer.status_code == 500
    assert "can be written to" in answer.text
    assert "s00 and s01" in get(client, "case", study=STUDY, **CASE)


@pytest.mark.parametrize("back", ["//evil.example/x", "https://evil.example", "/\\evil.example", ""])
def test_a_form_leads_back_only_into_the_pages(lake: Path, back: str) -> None:
    assert client_of(lake).post("/reader", data={"blind": "0", "back": back}).headers["location"] == "/"


def test_the_waiting_file_is_one_that_import_labels_reads(lake: Path, tmp_path: Path) -> None:
    """By hand, too: with the head that it needs, its columns are a sheet's."""
    client = client_of(lake)
    give(client, "1")
    path = tmp_path / "sheet.csv"
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([Label._fields, *Spool(lake).waiting()])
    labels.hand_in(lake, path)
    assert said(lake) == [("s00", "s01", "first", "anna", None)]
