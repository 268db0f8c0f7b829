"""The pages over real lakes: what each shows is what its SQL gives, whatever is in the lake, and nothing is written."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import duckdb
import pytest
from httpx import Response
from starlette.testclient import TestClient

import batchpond
from batchpond.api import _report_page as report_page
from batchpond.text import UNSAFE_BUT_NEWLINE
from batchpond_browse import cases, lists
from batchpond_browse.asking import Lake, Query, Row
from batchpond_browse.lists import Wish
from batchpond_browse.server import Browser, Guard
from tests.flow.test_labels import STUDY as ESSAYS
from tests.flow.test_labels import judged_lake
from tests.flow.test_listwise import finished, toml
from tests.rigs import browse as rig
from tests.rigs import report as report_support
from tests.rigs import swept
from tests.rigs.lakes import LakeBuilder
from tests.rigs.report import Page

TOKEN = "a-token"
PORT = 8000
ADDRESS = f"http://127.0.0.1:{PORT}"


lake_of = cache(Lake)


def client_of(lake: Path, *, is_reader: bool = True) -> TestClient:
    """Return a client of a lake's pages, with the cookie of its reader or without."""
    app = Guard(Browser(lake, make_report=partial(report_page, lake)).app(), TOKEN, PORT)
    cookies = {app.cookie(): TOKEN} if is_reader else {}
    return TestClient(app, base_url=ADDRESS, cookies=cookies, headers={"origin": ADDRESS}, follow_redirects=False)


reader_of = cache(client_of)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rig.build(tmp_path_factory.mktemp("planned") / "lake")


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with every task, and one whose names and answers attack."""
    return report_support.build(tmp_path_factory.mktemp("every") / "lake")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of pairs that judges compared, for tests that only look."""
    return judged_lake(tmp_path_factory.mktemp("judged"))


@cache
def report_of(lake: Path, study: str) -> Response:
    return client_of(lake).get(f"/report?{urlencode({'study': study})}")


def get(client: TestClient, page: str, **given: str) -> str:
    answer = client.get(f"/{page}?{urlencode(given)}")
    assert answer.status_code == 200, answer.text
    return answer.text


def sql_of(text: str) -> str:
    found = re.search(r"<code>(.*?)</code></pre>", text, re.DOTALL)
    assert found
    return html.unescape(found[1])


def opened(text: str) -> list[str]:
    """Return where the rows of a page lead."""
    return [html.unescape(there) for there in re.findall(r'<a href="([^"]+)" class="open"', text)]


@pytest.mark.parametrize(
    ("page", "given"),
    [
        ("", {}), ("study", {"study": rig.STUDY}), ("rows", {"study": rig.STUDY}), ("pairs", {"study": rig.STUDY}),
        ("case", {"study": rig.STUDY, "rubric": "quality", "lo": "alpha", "hi": "beta"}),
        ("row", {"study": rig.STUDY, "row": "r000000000001"}),
    ],
)  # fmt: skip
def test_without_the_token_nobody_sees_anything(planned: Path, page: str, given: dict[str, str]) -> None:
    """No cookie, a wrong one, another name for this machine, another page's origin: refused, and nothing is said."""
    path = f"/{page}?{urlencode(given)}"
    stranger, reader = client_of(planned, is_reader=False), reader_of(planned)
    assert reader.get(path).status_code == 200
    refused = [
        stranger.get(path), stranger.get(path, headers={"cookie": f"batchpond-{PORT}=another"}),
        stranger.get("/", params={"token": "another"}), reader.get(path, headers={"host": "evil.example"}),
        reader.get(path, headers={"origin": "http://evil.example"}), reader.get(path, headers={"origin": "null"}),
    ]  # fmt: skip
    assert [answer.status_code for answer in refused] == [403, 403, 403, 421, 403, 403]
    assert not any("alpha" in answer.text or rig.STUDY in answer.text for answer in refused)
    assert all("default-src 'none'" in answer.headers["content-security-policy"] for answer in refused)


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(planned: Path) -> None:
    """And the address goes on without it."""
    answer = client_of(planned, is_reader=False).get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    attributes = answer.headers["set-cookie"].lower()
    assert "httponly" in attributes
    assert "samesite=strict" in attributes


def test_the_address_with_the_token_leads_to_the_page_it_names(planned: Path) -> None:
    """All but the token stays in the address, as it was."""
    wanted = {"study": "a b", "q": "x&y=ü", "item": ""}
    answer = client_of(planned, is_reader=False).get("/rows", params={"token": TOKEN, **wanted})
    path, _, query = answer.headers["location"].partition("?")
    assert (path, dict(parse_qsl(query, keep_blank_values=True))) == ("/rows", wanted)


def test_answers_are_in_order_whatever_the_scale() -> None:
    """Ratings below zero, of any number of digits and decimals; words among them stay together."""
    order = lists.kinds()["rows"]["sorts"]["answer"]
    scores = [-1500.5, -2.0, -0.25, 0.0, 0.5, 3.0, 9.75, 10.5, 100.0, 1234567.0]
    values = ", ".join(f"(NULL, NULL, CAST({score} AS DOUBLE))" for score in reversed(scores))
    sql = f"SELECT score FROM (VALUES {values}) AS said (verdict, label, score) ORDER BY {order}"
    with duckdb.connect() as connection:
        assert [score for (score,) in connection.sql(sql).fetchall()] == scores


def test_a_case_is_of_one_rubric(tmp_path: Path) -> None:
    """An address that names none of two leads to neither; one of judgments without a rubric leads to those alone."""
    lake = LakeBuilder(tmp_path / "lake")
    pair = {"study": "s", "item_first": "a", "item_second": "b", "verdict": "first", "outcome": "decided"}
    lake.imported([pair | {"rubric_id": "clarity"}, pair | {"rubric_id": "depth"}])
    lake.build()
    address = {"study": "s", "lo": "a", "hi": "b"}
    answer = client_of(tmp_path / "lake").get("/case", params=address)
    assert (answer.status_code, "clarity" in answer.text, "depth" in answer.text) == (400, True, True)
    assert "depth" not in get(client_of(tmp_path / "lake"), "case", **address, rubric="clarity")


def test_a_form_without_an_origin_is_refused(planned: Path) -> None:
    """A browser always names it; whoever does not is no page of this server."""
    client = client_of(planned)
    del client.headers["origin"]
    assert client.post("/label", data={}).status_code == 403
    assert client.get("/").status_code == 200


def test_what_is_not_there_is_said_with_what_to_do(planned: Path) -> None:
    client = reader_of(planned)
    for path, words in (
        ("/study?study=nope", "no study"), ("/rows?study=nope", "no study"), ("/rows", "names no study"),
        ("/rows?study=planned&colour=red", "no filter"), ("/rows?study=planned&state=odd", "one of decided"),
        ("/rows?study=planned&sort=odd", "no order"), ("/pairs?study=planned&sort=flips&after=x&from=y", "no place"),
        ("/row?study=planned&row=r000000009999", "no judgment"), ("/row?study=planned&row=", "no judgment"),
        ("/case?study=planned", "lo and hi"), ("/case?study=planned&lo=a&hi=b", "no judgment"),
        ("/case?study=planned&hi=beta&item=alpha", "lo and hi"), ("/case?study=planned&lo=alpha", "lo and hi"),
        ("/row?study=planned&row=r%C2%B2", "no judgment"),
    ):  # fmt: skip
        answer = client.get(path)
        assert answer.status_code == 400, path
        assert words in html.unescape(answer.text), path


def test_a_place_that_is_no_number_is_no_error_of_a_large_list(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A superscript is a digit to Python and no number: there is nothing behind it, as in a small list."""
    small = get(reader_of(planned), "rows", study=rig.STUDY, after="r\u00b2")
    monkeypatch.setattr(lists, "STRETCH_SLOTS", 3)
    monkeypatch.setattr(lists, "LOOK_S", 1_000)
    assert get(client_of(planned), "rows", study=rig.STUDY, after="r\u00b2") == small


def test_a_pair_shows_both_texts_every_judge_in_both_orders_and_why(planned: Path) -> None:
    text = get(reader_of(planned), "case", study=rig.STUDY, rubric="quality", lo="alpha", hi="beta")
    for words in ("The text of alpha.", "The text of beta.", "openai/m1/none", "openai/m2/none", "It is short.",
                  "The first is clearer.", "alpha first", "beta first"):  # fmt: skip
        assert words in html.unescape(text), words


def test_a_judgment_shows_prompt_answer_tokens_cost_raw_line_and_history(planned: Path) -> None:
    text = html.unescape(get(reader_of(planned), "row", study=rig.STUDY, row="r000000000001"))
    for words in ("Compare <b>them</b>.", "a NEEDLE in it", "Hm, hm.", "output_tokens", "cost_usd", "Raw line",
                  "batch-A1", "History"):  # fmt: skip
        assert words in text, words


@pytest.mark.parametrize("study", ["every", "hostile"])
def test_whatever_is_in_the_lake_is_only_text(every: Path, study: str) -> None:
    """No element, attribute or address of a page comes from the lake, and no character that reorders or hides."""
    client = reader_of(every)
    pages = ["/", f"/study?study={study}", *(f"/{kind}?study={study}" for kind in ("rows", "pairs", "items"))]
    texts = [client.get(path).text for path in pages]
    inner = list(itertools.chain.from_iterable(opened(text)[:2] for text in texts[2:]))
    assert len(inner) >= 4
    texts += [client.get(path).text for path in inner]
    for text in texts:
        page = Page(text)
        assert [one["src"] for one in page.all("script")] == ["/static/keys.js", "/static/browse.js"]
        assert not page.all("img")
        assert {name for name, _ in page.elements}.isdisjoint({"u", "style", "iframe", "object", "base"})
        for _, attributes in page.elements:
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            assert all(attributes.get(name, "/").startswith(("/", "#")) for name in ("href", "action"))  # type: ignore[union-attr]
        assert not UNSAFE_BUT_NEWLINE.search("".join(page.text))
    assert study == "every" or any("<script>alert(1)</script>" in "".join(Page(text).text) for text in texts)


FILTERS = [
    ("rows", {}), ("rows", {"state": "refusals"}), ("rows", {"state": "open"}), ("rows", {"item": "gamma"}),
    ("rows", {"judge": "openai/m2/none", "template": "t1"}), ("rows", {"q": "needle"}),
    ("rows", {"q": "short"}), ("rows", {"column": "kind=an open question"}), ("pairs", {"column": "ki\"'nd=x"}),
    ("pairs", {"column": "kind=an open question", "standing": "flip"}), ("rows", {"column": "kind"}),
    ("rows", {"q": "gam", "state": "refusals"}), ("rows", {"q": "%_' OR 1=1 --"}),
    ("pairs", {}), ("pairs", {"standing": "flip"}), ("pairs", {"standing": "disagreement"}),
    ("pairs", {"q": "of delta"}), ("pairs", {"judge": "openai/m1/none"}), ("pairs", {"item": "beta", "labels": "none"}),
]  # fmt: skip
# What each filter of judgments says, in other words.
STATES = {
    "decided": "outcome = 'decided'", "tie": "outcome = 'tie'", "refusals": "outcome = 'refused'",
    "unread": "outcome = 'unparsed'", "errors": "outcome = 'error'", "open": "outcome is null",
    "valid": "outcome in ('decided', 'tie')", "no verdict": "outcome in ('refused', 'unparsed')",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "given"), FILTERS, ids=str)
def test_a_list_shows_the_rows_of_its_sql(planned: Path, kind: str, given: dict[str, str]) -> None:
    """In its order and number; the SQL on the page is the one that a user can run."""
    text = get(reader_of(planned), kind, study=rig.STUDY, **given)
    frame = batchpond.Lake(planned).sql(sql_of(text))
    assert len(opened(text)) == len(frame)
    if kind == "rows":
        assert [re.search(r"row=(\w+)", there)[1] for there in opened(text)] == frame["row_key"].to_list()  # type: ignore[index]


@pytest.mark.parametrize(
    ("kind", "given", "after"),
    swept.every(2, [
        ("rows", {}, "r000000000002"), ("rows", {"state": "errors"}, ""), ("rows", {"state": "refusals"}, ""),
        ("rows", {"q": "needle"}, ""), ("pairs", {}, "quality\x1f\x1falpha\x1fdelta"),
        ("pairs", {"standing": "unread"}, ""),
    ]),
)  # fmt: skip
def test_in_a_large_plan_a_page_is_looked_for_where_the_plan_says(
    planned: Path, monkeypatch: pytest.MonkeyPatch, kind: str, given: dict[str, str], after: str
) -> None:
    """Stretch by stretch, it is the page that the SQL gives, for short pages and for long ones."""
    monkeypatch.setattr(lists, "STRETCH_SLOTS", 3)
    monkeypatch.setattr(lists, "STRETCH_CASES", 3)
    monkeypatch.setattr(lists, "LOOK_S", 1_000)
    lake = lake_of(planned)
    for n_rows in (2, 50):
        wish = Wish(kind, rig.STUDY, {**given, "after": after}, n_rows)
        found = lists.page(lake, wish).rows
        assert found == lake.rows(wish.query())[:n_rows]
        assert found


@pytest.mark.parametrize(
    ("kind", "given"),
    swept.some(("rows", {"q": "needle"}), ("rows", {"q": "no such words"}), ("pairs", {"standing": "flip"}),
               swept=[("rows", {"state": "errors"}), ("rows", {}), ("pairs", {"q": "no such words"})]),
)  # fmt: skip
def test_a_look_whose_time_is_over_shows_what_it_found_and_goes_on_from_there(
    planned: Path, monkeypatch: pytest.MonkeyPatch, kind: str, given: dict[str, str]
) -> None:
    """No request looks for long, each says how much is left, and all together find what one would, in its order."""
    monkeypatch.setattr(lists, "STRETCH_SLOTS", 3)
    monkeypatch.setattr(lists, "STRETCH_CASES", 2)
    monkeypatch.setattr(lists, "LOOK_S", -1.0)
    lake, client = lake_of(planned), reader_of(planned)
    found, left = [], []
    more: dict[str, str] | None = given
    while more is not None:
        page = lists.page(lake, Wish(kind, rig.STUDY, more))
        shown = Page(get(client, kind, study=rig.STUDY, **more))
        further = [attributes["href"] for name, attributes in shown.elements if "data-further" in attributes]
        assert len(further) == (page.n_left > 0)
        assert (f"{page.n_left:,} more to look at" in "".join(shown.text)) == (page.n_left > 0)
        found += page.rows
        left.append(page.n_left)
        more = page.more
    whole = lake.rows(Wish(kind, rig.STUDY, given).query())
    assert found == whole
    assert left == sorted(left, reverse=True)
    assert left[0] > 0 == left[-1]


@pytest.fixture(scope="module")
def of_lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("lists"), toml("[lists]\ncount = 8\n")).lake


@pytest.fixture(scope="module")
def of_items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of planned judgments of single items, some of them still out, by two judges, of two candidates."""
    lake = LakeBuilder(tmp_path_factory.mktemp("items") / "lake")
    planned = [
        {"slot": slot, "request_id": f"request{slot:013d}", "task": "compliance", "request_model": f"m{slot % 2}",
         "rubric_id": f"s{slot // 8}", "item_first": f"i{slot // 2:02}", "item_second": None,
         "candidate_first": f"c{slot // 2 % 2}"}
        for slot in range(48)
    ]  # fmt: skip
    lake.plan(planned, study=rig.STUDY)
    names = [row["request_id"] for row in planned]
    lake.sent("A1", "S1", names[:40], study=rig.STUDY)
    said = [
        {"verdict": "true"},
        {"verdict": "false"},
        {"verdict": "true"},
        {"outcome": "unparsed"},
        {"verdict": "false"},
    ]
    lake.lines("A1", [{"request_id": name, "outcome": "decided"} | said[n % 5] for n, name in enumerate(names[:40])])
    lake.ended("A1")
    lake.build()
    return lake.path


@pytest.mark.parametrize("kind", lists.kinds())
@pytest.mark.parametrize("made", swept.some("of_lists", "of_items", "every", swept=["planned"]))
def test_stretches_of_any_study_hold_together_what_the_whole_does(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, made: str, kind: str
) -> None:
    """Of every task, and of pairs that lists imply."""
    monkeypatch.setattr(lists, "STRETCH_SLOTS", 3)
    monkeypatch.setattr(lists, "STRETCH_CASES", 5)
    monkeypatch.setattr(lists, "LOOK_S", 1_000)
    lake = lake_of(request.getfixturevalue(made))
    study = {"of_lists": "demo", "every": "hostile"}.get(made, rig.STUDY)
    wish = Wish(kind, study, {}, 1_000)
    found = lists.page(lake, wish).rows
    assert found == lake.rows(wish.query())
    assert found or kind != ("items" if made == "of_items" else "pairs")


class Whole(Lake):
    """A lake that is looked through whole, whatever is near."""

    def rows(self, asked: Query, near: str = "", *, is_kept: bool = True) -> list[Row]:
        del near
        return super().rows(asked, is_kept=is_kept)


@pytest.mark.parametrize("made", ["planned", "of_lists", "of_items", "every"])
def test_a_judgment_and_its_case_are_those_of_the_whole_lake(request: pytest.FixtureRequest, made: str) -> None:
    """To look only at what is near changes how long it takes, and nothing else."""
    path = request.getfixturevalue(made)
    lake, whole = lake_of(path), Whole(path)
    rows = whole.rows(Query("SELECT * FROM results ORDER BY study, slot"))
    assert len(rows) > 5
    for row in swept.every(3, rows[:: -max(1, len(rows) // 8)]):
        study, key = row["study"], f"r{row['slot']:012d}"
        assert cases.judgment(lake, study, key) == cases.judgment(whole, study, key)
        if names := cases.names_of(row):
            assert cases.case(lake, study, names) == cases.case(whole, study, names)


@pytest.mark.parametrize("state", STATES)
def test_the_states_are_those_of_the_results(planned: Path, state: str) -> None:
    """Each filter by state finds what `results` has under its outcomes, and together they find everything."""
    found = [row["row_key"] for row in lists.page(lake_of(planned), Wish("rows", rig.STUDY, {"state": state})).rows]
    slots = batchpond.Lake(planned).sql(f"select slot from results where {STATES[state]} order by slot")["slot"]
    assert found == [f"r{slot:012d}" for slot in slots]
    assert found


SORTS = [
    *((kind, sort, "") for kind, about in lists.kinds().items() for sort in about["sorts"]),
    *((kind, sort, "down") for kind, about in lists.kinds().items() for sort in about["amounts"]),
    ("rows", "place", "down"), ("rows", "cost", ""), ("pairs", "lot", "down"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sort", "way"), swept.every(2, SORTS), ids=str)
def test_pages_hold_each_row_once_in_the_order_of_all(
    planned: Path, every: Path, kind: str, sort: str, way: str
) -> None:
    """Page by page, without a number of rows to skip, a list is what one page of all would be."""
    path, study, n_rows = (every, "every", 40) if kind == "items" else (planned, rig.STUDY, 7 if kind == "rows" else 2)
    lake, given = lake_of(path), {"sort": sort, "dir": way}
    whole = lists.page(lake, Wish(kind, study, given, 1_000))
    assert whole.more is None
    found = list(pages(lake, kind, study, given, n_rows))
    key = lists.kinds()[kind]["key"]
    assert [row[key] for row in found] == [row[key] for row in whole.rows]
    assert len(found) > n_rows


def pages(lake: Lake, kind: str, study: str, given: dict[str, str], n_rows: int) -> Iterator[dict[str, object]]:
    more: dict[str, str] | None = given
    while more is not None:
        page = lists.page(lake, Wish(kind, study, more, n_rows))
        yield from page.rows
        more = page.more


def test_looking_writes_nothing_and_holds_no_lock(planned: Path) -> None:
    """A writer can take the lake's lock while pages are open, and no file is made or touched."""
    from batchpond.lake.store import Store  # noqa: PLC0415 - the writer beside the reader

    before = {path: path.stat().st_mtime_ns for path in planned.rglob("*")}
    client = client_of(planned)
    with Store.open(planned).lock("test"):
        for page in ("", "study", "rows", "pairs", "items"):
            get(client, page, study=rig.STUDY)
        get(client, "case", study=rig.STUDY, lo="alpha", hi="beta")
        get(client, "row", study=rig.STUDY, row="r000000000000")
    after = {path: path.stat().st_mtime_ns for path in planned.rglob("*")}
    lock = planned / ".lock"
    assert {path: at for path, at in after.items() if path not in {lock, planned}} == {
        path: at for path, at in before.items() if path not in {lock, planned}
    }


def test_what_is_published_meanwhile_is_shown(tmp_path: Path) -> None:
    """The pulse changes with the lake, and the next look has the new rows, though answers are kept until then."""
    from batchpond.interop.imports import import_judgments  # noqa: PLC0415 - the writer beside the reader
    from batchpond.lake.store import Store  # noqa: PLC0415 - the writer beside the reader

    lake = judged_lake(tmp_path)
    client = client_of(lake)
    before = client.get("/pulse").text
    assert "264" in get(client, "")
    path = tmp_path / "more.csv"
    path.write_text("item_first,item_second,verdict,model\ns00,s01,first,c\n")
    import_judgments(Store.open(lake), path, study=ESSAYS)
    assert client.get("/pulse").text != before
    assert "265" in get(client, "")
    assert client.get("/pulse").text == client.get("/pulse").text


def test_rows_of_the_report_lead_to_the_judgments_behind_them(judged: Path, every: Path, planned: Path) -> None:
    """Of every task, findings too: each names a list of this server that holds some, of that cell alone."""
    studies = batchpond.Lake(every).sql("select distinct study from studies_current").to_series().to_list()
    for lake, study in [(judged, ESSAYS), (planned, rig.STUDY), *((every, study) for study in studies)]:
        check_links(lake, study)


def links_to_rows(text: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r'<a href="(/rows[^"]+)"', text)]


def check_links(lake: Path, study: str) -> None:
    client = reader_of(lake)
    assert "/report?study=" in get(client, "study", study=study)
    answer = report_of(lake, study)
    assert answer.status_code == 200, answer.text
    assert "style-src 'unsafe-inline'" in answer.headers["content-security-policy"]
    assert len(answer.headers.get_list("content-security-policy")) == 1
    findings = "".join(re.findall(r'<ol class="findings">(.*?)</ol>', answer.text, re.DOTALL))
    said = [links_to_rows(one) for one in re.findall(r"<li>(.*?)</li>", findings, re.DOTALL)]
    assert said or study != ESSAYS
    assert all(len(there) == 1 for there in said), "each finding leads to what it is about"
    there = links_to_rows(answer.text.replace(findings, ""))
    assert there.count(f"/rows?{urlencode({'study': study})}") == 1, "the head alone leads to all judgments"
    for one in swept.every(2, sorted({*there, *(link for links in said for link in links)})):
        shown = client.get(one)
        assert (shown.status_code, "<tr data-row" in shown.text) == (200, True), one


def test_a_row_of_a_task_leads_to_the_judgments_of_that_task(every: Path) -> None:
    """Two judges' agreement on ratings is not made of what they said of pairs."""
    text = report_of(every, "every").text
    tasks = dict(re.findall(r'<a href="/rows\?study=every&amp;(?:template=t1&amp;)?task=(\w+)">(\w+)</a>', text))
    assert tasks == {name: name for name in ("likert", "compliance", "pressure", "pairwise")}


def test_a_row_of_one_candidate_leads_to_what_was_said_of_that_candidate(of_items: Path) -> None:
    """As many judgments as the row counts: of the same judge, of no other candidate."""
    client = client_of(of_items)
    links = links_to_rows(client.get(f"/report?study={rig.STUDY}").text)
    asked = [dict(parse_qsl(link.partition("?")[2])) for link in links]
    named = {(one["judge"], one["candidate"]) for one in asked if one.keys() >= {"judge", "candidate"}}
    assert {candidate for _, candidate in named} == {"c0", "c1"}
    for judge, candidate in named:
        rows = lists.page(lake_of(of_items), Wish("rows", rig.STUDY, {"judge": judge, "candidate": candidate})).rows
        assert {row["candidate_first"] for row in rows} == {candidate}
        assert len(rows) == 12


def test_each_number_of_the_report_leads_to_the_judgments_that_it_counts(planned: Path, judged: Path) -> None:
    """Of coverage and failures to as many rows; of consistency to pairs, flips among them; a zero leads nowhere."""
    asked: set[tuple[str, str | None]] = set()
    for lake, study in ((planned, rig.STUDY), (judged, ESSAYS)):
        text = report_of(lake, study).text
        numbers = re.findall(r'<a class="number" href="([^"]+)"(?: tabindex="-1")?>([^<]+)</a>', text)
        if lake == judged:  # all were answered: what is new is where pairs flip
            numbers = swept.every(2, [one for one in numbers if one[0].startswith("/pairs")])
        for address, number in numbers:
            there, _, parameters = html.unescape(address).partition("?")
            given = dict(parse_qsl(parameters))
            found = lists.page(lake_of(lake), Wish(there[1:], given.pop("study"), given, 1_000)).rows
            asked.add((there, given.get("state") or given.get("standing")))
            assert found, address
            if "state" in given and number.isdecimal():
                assert len(found) == int(number), address
        assert not re.search(r"<td class=\"n\"><a [^>]*>0(?:\.0\u202f%)?</a>", text)
    states = {"valid", "no verdict", "errors", "open", "refusals", "unread"}
    assert asked == {("/rows", None), ("/pairs", None), ("/pairs", "flip"), *(("/rows", state) for state in states)}


def test_items_are_found_by_a_column_of_theirs(planned: Path) -> None:
    """Judgments and pairs with an item that has the value, of this study's items; of another name or value none."""
    for kind, first, second in (("rows", "item_first", "item_second"), ("pairs", "item_lo", "item_hi")):
        found = lists.page(lake_of(planned), Wish(kind, rig.STUDY, {"column": "kind=an open question"})).rows
        assert found
        assert all("delta" in {row[first], row[second]} for row in found)
        for column in ("kind=an open", "mood=an open question", "=", "kind"):
            assert lists.page(lake_of(planned), Wish(kind, rig.STUDY, {"column": column})).rows == []


def test_a_study_says_what_failed_what_had_no_view_and_that_its_cost_is_simulated(tmp_path: Path) -> None:
    """Not applicable is no unread answer, an error no answer, and what a simulator would have billed not spent."""
    lake = LakeBuilder(tmp_path / "lake")
    fates = ("decided", "not_applicable", "unsure", "unparsed", "error")
    names = [f"request{n:013d}" for n in range(len(fates))]
    lake.plan([{"slot": n, "request_id": name} for n, name in enumerate(names)], study="s")
    lake.sent("A1", "S1", names, study="s", origin="simulated")
    lake.lines(
        "A1",
        [
            {
                "request_id": name,
                "outcome": fate,
                "verdict": "first" if fate == "decided" else None,
                "text": "x",
                "cost_usd": 0.5,
                "origin": "simulated",
            }
            for name, fate in zip(names, fates, strict=True)
        ],
    )
    lake.ended("A1")
    lake.build()
    client = reader_of(lake.store.path)
    overview = " ".join("".join(Page(get(client, "study", study="s")).text).split())
    assert "(simulated, not spent)" in overview
    assert "unreadunsure, n/afailed" in overview
    rows = lists.page(lake_of(lake.store.path), Wish("rows", "s", {"state": "unsure"})).rows
    assert [row["state"] for row in rows] == ["not_applicable", "unsure"]
    (row,) = re.findall(r"<tr data-row>(.*?)</tr>", get(client, ""), re.DOTALL)
    assert re.findall(r"[^<>]+(?=<)", re.sub(r"\s+", " ", row)).count("4") == 1, "answered"
    assert "state=errors" in row


def test_who_labels_blind_sees_no_report(judged: Path) -> None:
    """It says what judges hold; neither link nor page is there until blind is over."""
    client = client_of(judged)
    client.cookies.set("batchpond-blind", "1")
    assert "/report?" not in get(client, "study", study=ESSAYS)
    refused = client.get(f"/report?study={ESSAYS}")
    assert (refused.status_code, "who labels blind" in refused.text) == (400, True)
