"""Pages show the pictures of items and of what a judge was asked, and lead to their documents."""

from __future__ import annotations

import html
import re
from pathlib import Path

from batchpond_browse import bundle
from tests.flow.test_media import PICTURES, with_photos
from tests.rigs.pictures import compressed_pdf
from tests.rigs.report import Page
from tests.rigs.sim_study import STUDY, Rig
from tests.unit.browse.test_pages import client_of, get


def judged(tmp_path: Path, shown: dict[str, bytes], model: str = "claude-haiku-4-5") -> Rig:
    """Return a lake whose items have these pictures, all pairs of them judged."""
    rig = Rig(tmp_path, models=(model,), max_requests=50)
    with_photos(rig.study_path, shown)
    rig.settle()
    return rig


def images(text: str) -> list[tuple[str, str]]:
    """Return address and words of each picture of a page, which is loaded once it is seen."""
    found = Page(text).all("img")
    assert all(one["loading"] == "lazy" for one in found)
    return [(one["src"] or "", one["alt"] or "") for one in found]


def test_a_judgment_shows_what_the_judge_was_shown(tmp_path: Path) -> None:
    """In the order of the prompt, from this machine alone; the page itself does not grow with them."""
    rig = judged(tmp_path, PICTURES)
    client = client_of(rig.lake)
    found = rig.rows("select slot, item_first, item_second from plan order by slot", "plan")
    assert len(found) == 6
    for slot, first, second in found:
        text = get(client, "row", study=STUDY, row=f"r{int(str(slot)):012d}")
        assert [client.get(there).content for there, _ in images(text)] == [PICTURES[str(first)], PICTURES[str(second)]]
        assert text.count("[picture or document]") == 2
        assert "<dt>pictures</dt>" not in text
        assert ";base64," not in text


def test_a_pair_shows_the_picture_of_each_text_to_who_labels_it_too(tmp_path: Path) -> None:
    """Its words are the item's id and column; whoever labels blind is not told which item it is."""
    client = client_of(judged(tmp_path, PICTURES).lake)
    text = get(client, "case", study=STUDY, lo="a", hi="c")
    assert [words for _, words in images(text)] == ["a, photo", "c, photo"]
    assert [client.get(there).content for there, _ in images(text)] == [PICTURES["a"], PICTURES["c"]]
    client.cookies.set("batchpond-blind", "1")
    blind = images(get(client, "case", study=STUDY, lo="a", hi="c"))
    assert {words for _, words in blind} == {"Text 1, photo", "Text 2, photo"}
    assert {client.get(there).content for there, _ in blind} == {PICTURES["a"], PICTURES["c"]}


def test_bytes_are_served_as_what_they_are_and_never_as_a_page(tmp_path: Path) -> None:
    """By digest alone; nothing runs in them, nothing guesses their kind, nobody without the token gets them."""
    rig = judged(tmp_path, PICTURES)
    client = client_of(rig.lake)
    ((there, _), *_) = images(get(client, "case", study=STUDY, lo="a", hi="b"))
    answer = client.get(there)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'"
    assert client_of(rig.lake, is_reader=False).get(there).status_code == 403
    for wrong in ("", "0" * 64, "' or true --", "../batchpond.json"):
        answer = client.get("/blob", params={"sha256": wrong})
        assert (answer.status_code, "holds no such picture" in answer.text) == (400, True)


def test_a_document_is_a_link_that_is_downloaded(tmp_path: Path) -> None:
    """With its kind and size; what opens documents is not the page."""
    documents = {name: compressed_pdf(n) for n, name in enumerate("abc", 1)}
    client = client_of(judged(tmp_path, documents).lake)
    text = get(client, "case", study=STUDY, lo="a", hi="b")
    assert not images(text)
    links = [html.unescape(one) for one in re.findall(r'href="(/blob[^"]+)"', text)]
    answers = [client.get(one) for one in links]
    assert [answer.content for answer in answers] == [documents["a"], documents["b"]]
    assert {answer.headers["content-disposition"] for answer in answers} == {"attachment"}
    assert f"a, photo: application/pdf, {len(documents['a']):,} bytes" in text


def test_a_bundle_names_what_its_pages_cannot_hold(tmp_path: Path) -> None:
    """With its kind and size; nothing in the files leads to a server."""
    rig = judged(tmp_path / "lake", PICTURES)
    bundle.write(rig.lake, tmp_path / "bundle")
    cases = [path.read_text("utf-8") for path in (tmp_path / "bundle").glob("case-*.html")]
    assert len(cases) == 3
    assert not [text for text in cases if images(text) or "/blob" in text]
    assert any(f"a, photo: image/png, {len(PICTURES['a']):,} bytes" in text for text in cases)
