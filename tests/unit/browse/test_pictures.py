"""Pages show the pictures of items and of what a judge was asked, and lead to their documents."""

from __future__ import annotations

import html
import re
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from PIL import Image

from batchpond.lake.schemas import BLOBS
from batchpond.views import database
from batchpond_browse import bundle
from tests.flow.test_media import PICTURES, with_photos
from tests.rigs import swept
from tests.rigs.pictures import compressed_pdf, png
from tests.rigs.report import Page
from tests.rigs.sim_study import STUDY, Rig
from tests.unit.browse.test_pages import client_of, get

DOCUMENTS = {name: compressed_pdf(n) for n, name in enumerate("ab", 1)}


def judged(tmp_path: Path, shown: dict[str, bytes], model: str = "claude-haiku-4-5") -> Rig:
    """Return a lake whose items have these pictures, all pairs of them judged."""
    rig = Rig(tmp_path, models=(model,), max_requests=50)
    with_photos(rig.study_path, shown)
    rig.settle()
    return rig


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A lake of three pictures and all their pairs, for tests that only look."""
    return judged(tmp_path_factory.mktemp("pictured"), PICTURES)


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A lake of two documents, for tests that only look."""
    return judged(tmp_path_factory.mktemp("documented"), DOCUMENTS)


def images(text: str) -> list[tuple[str, str]]:
    """Return address and words of each picture of a page, which is loaded once it is seen."""
    found = Page(text).all("img")
    assert all(one["loading"] == "lazy" for one in found)
    return [(one["src"] or "", one["alt"] or "") for one in found]


def test_a_judgment_shows_what_the_judge_was_shown(pictured: Rig) -> None:
    """In the order of the prompt, from this machine alone; the page itself does not grow with them."""
    client = client_of(pictured.lake)
    found = pictured.rows("select slot, item_first, item_second from plan order by slot", "plan")
    assert len(found) == 6
    for slot, first, second in swept.every(2, found):
        text = get(client, "row", study=STUDY, row=f"r{int(str(slot)):012d}")
        assert [client.get(there).content for there, _ in images(text)] == [PICTURES[str(first)], PICTURES[str(second)]]
        assert text.count("[picture or document]") == 2
        assert "<dt>pictures</dt>" not in text
        assert ";base64," not in text


def test_a_pair_shows_the_picture_of_each_text_to_who_labels_it_too(pictured: Rig) -> None:
    """Its words are the item's id and column; whoever labels blind is not told which item it is."""
    client = client_of(pictured.lake)
    text = get(client, "case", study=STUDY, lo="a", hi="c")
    assert [words for _, words in images(text)] == ["a, photo", "c, photo"]
    assert [client.get(there).content for there, _ in images(text)] == [PICTURES["a"], PICTURES["c"]]
    client.cookies.set("batchpond-blind", "1")
    blind = images(get(client, "case", study=STUDY, lo="a", hi="c"))
    assert {words for _, words in blind} == {"Text 1, photo", "Text 2, photo"}
    assert {client.get(there).content for there, _ in blind} == {PICTURES["a"], PICTURES["c"]}


def test_bytes_are_served_as_what_they_are_and_never_as_a_page(pictured: Rig) -> None:
    """By digest alone; nothing runs in them, nothing guesses their kind, nobody without the token gets them."""
    client = client_of(pictured.lake)
    ((there, _), *_) = images(get(client, "case", study=STUDY, lo="a", hi="b"))
    answer = client.get(there)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'"
    assert client_of(pictured.lake, is_reader=False).get(there).status_code == 403
    for wrong in ("", "0" * 64, "' or true --", "../batchpond.json"):
        answer = client.get("/blob", params={"sha256": wrong})
        assert (answer.status_code, "holds no such picture" in answer.text) == (400, True)


def test_a_document_is_a_link_that_is_downloaded(documented: Rig) -> None:
    """With its kind and size; what opens documents is not the page."""
    client = client_of(documented.lake)
    text = get(client, "case", study=STUDY, lo="a", hi="b")
    assert not images(text)
    links = [html.unescape(one) for one in re.findall(r'href="(/blob[^"]+)"', text)]
    answers = [client.get(one) for one in links]
    assert [answer.content for answer in answers] == [DOCUMENTS["a"], DOCUMENTS["b"]]
    assert {answer.headers["content-disposition"] for answer in answers} == {"attachment"}
    assert f"a, photo: application/pdf, {len(DOCUMENTS['a']):,} bytes" in text


def test_a_bundle_has_the_pictures_of_its_pages_as_files_beside_them(pictured: Rig, tmp_path: Path) -> None:
    """Byte for byte, each once, under the ending of its kind; no page loads or leads to anything elsewhere."""
    n_files, pages = bundled(pictured, tmp_path / "bundle")
    found = {there: words for name, text in pages.items() if name.startswith("case-") for there, words in images(text)}
    assert sorted(found.values()) == ["a, photo", "b, photo", "c, photo"]
    assert sorted((tmp_path / "bundle" / there).read_bytes() for there in found) == sorted(PICTURES.values())
    assert sorted(Path(there).suffix for there in found) == [".jpeg", ".png", ".png"]
    assert {there for text in pages.values() for there, _ in images(text)} == found.keys()
    assert n_files == len(pages) + len(PICTURES)


def test_a_bundle_makes_large_pictures_smaller_and_names_what_stays_large(tmp_path: Path) -> None:
    """Photos of many pairs are no gigabytes; a page names what it has no file of, with kind and size."""
    large = {"a": png(1_400, 100, 1), "b": png(8, 8, 2), "c": compressed_pdf(1) + b"\n%" * (bundle.FILE_BYTES_MAX // 2)}
    _, pages = bundled(judged(tmp_path / "lake", large), tmp_path / "bundle")
    found = {words: there for text in pages.values() for there, words in images(text)}
    assert len(large["a"]) > bundle.WHOLE_BYTES_MAX
    with Image.open(tmp_path / "bundle" / found["a, photo"]) as picture:
        assert (picture.format, picture.size, Path(found["a, photo"]).suffix) == ("WEBP", (1_024, 73), ".webp")
    assert (tmp_path / "bundle" / found["b, photo"]).read_bytes() == large["b"]
    assert any(f"c, photo: application/pdf, {len(large['c']):,} bytes" in text for text in pages.values())
    sizes = [path.stat().st_size for path in (tmp_path / "bundle").glob("shown-*")]
    assert max(sizes) <= bundle.FILE_BYTES_MAX


def test_a_document_of_a_bundle_is_a_file_that_is_downloaded(documented: Rig, tmp_path: Path) -> None:
    _, pages = bundled(documented, tmp_path / "bundle")
    links = [one for text in pages.values() for one in Page(text).all("a") if "shown-" in (one.get("href") or "")]
    assert all("download" in one and (one["href"] or "").endswith(".pdf") for one in links)
    assert {(tmp_path / "bundle" / str(one["href"])).read_bytes() for one in links} == set(DOCUMENTS.values())


def test_what_is_no_picture_or_document_is_no_file_of_a_bundle(tmp_path: Path) -> None:
    """A lake may come from anybody, and a page or a drawing with a script in it would run where a file is opened."""
    rig = judged(tmp_path / "lake", {name: PICTURES[name] for name in "ab"})
    for path in (rig.lake / "blobs").rglob("*.parquet"):
        rows = pl.read_parquet(path).with_columns(media_type=pl.lit("image/svg+xml"))
        pq.write_table(rows.to_arrow().cast(BLOBS.schema), path)
    database.build(rig.lake, database.listed(rig.lake))
    _, pages = bundled(rig, tmp_path / "bundle")
    assert any("a, photo: image/svg+xml" in text for text in pages.values())
    assert not any(images(text) for text in pages.values())
    assert not [*(tmp_path / "bundle").glob("shown-*")]


def bundled(rig: Rig, folder: Path) -> tuple[int, dict[str, str]]:
    """Return how many files a bundle has, and its pages by name, whose links and pictures are files of the folder."""
    n_files = bundle.write(rig.lake, folder)
    pages = {path.name: path.read_text("utf-8") for path in folder.glob("*.html")}
    for text in pages.values():
        there = [one.get("href") for one in Page(text).all("a")] + [one["src"] for one in Page(text).all("img")]
        names = [html.unescape(one or "").partition("#")[0] for one in there]
        assert not [name for name in names if name and ("/" in name or not (folder / name).is_file())]
    return n_files, pages
