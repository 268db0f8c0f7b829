"""What the columns of items hold that are shown as media."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms

from batchpond import Lake
from batchpond.errors import StudyError
from batchpond.lake.schemas import ITEMS
from batchpond.lake.store import Store
from batchpond.model import Media
from batchpond.plan.items import each, read_any
from batchpond.plan.media import BYTES_MAX, MediaSpool, told
from batchpond.study.spec import ItemsFrom, ItemsSpec
from batchpond.views.read import smaller
from tests.rigs.item_columns import items_of
from tests.rigs.pictures import compressed_pdf, golden, png

GOLDEN = golden()


@pytest.mark.parametrize("name", GOLDEN)
def test_sizes_and_pages_are_those_that_other_programs_wrote(name: str) -> None:
    """Pillow and pypdf made the files."""
    content, about = GOLDEN[name]
    found = told(content)
    assert found.media_type == ("application/pdf" if name == "pdf" else f"image/{name.partition('_')[0]}")
    assert (found.size_bytes, found.n_pages) == (len(content), about.get("pages"))
    assert [found.width, found.height] == about.get("size", [None, None])


@given(st.sampled_from(sorted(GOLDEN)), st.data())
def test_a_picture_that_is_cut_is_told_or_refused(name: str, data: Any) -> None:
    """Never anything but the size that it has, and never an error of another kind."""
    content, about = GOLDEN[name]
    part = content[: data.draw(st.integers(0, len(content)))]
    with suppress(ValueError, IndexError, struct.error):  # which `take` tells
        found = told(part)
        assert [found.width, found.height] == about.get("size", [None, None])


@given(
    st.binary(max_size=80),
    st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF1234WEBPVP8X"]),
)
def test_any_bytes_are_told_or_refused(rest: bytes, head: bytes) -> None:
    """It ends, whatever the lengths in the bytes say."""
    with suppress(ValueError, IndexError, struct.error):
        found = told(head + rest)
        assert found.width is None or (found.width > 0 and (found.height or 0) > 0)


@pytest.mark.parametrize("n_pages", [1, 3, 250])
def test_pages_are_counted_where_their_objects_are_compressed(n_pages: int) -> None:
    """As in what LaTeX and Word write, where no page object stands in plain bytes."""
    content = compressed_pdf(n_pages)
    assert b"/Page" not in content
    assert told(content).n_pages == n_pages


def locked(password: str) -> bytes:
    """Return a PDF that opens with a password."""
    made, writer = io.BytesIO(), pypdf.PdfWriter(clone_from=io.BytesIO(compressed_pdf(3)))
    writer.encrypt(password, "the owner's", algorithm="RC4-128")
    writer.write(made)
    return made.getvalue()


def test_a_document_with_a_password_is_refused_with_its_place(tmp_path: Path) -> None:
    """One that opens without is counted, whatever its owner forbids."""
    assert told(locked("")).n_pages == 3
    (tmp_path / "locked.pdf").write_bytes(locked("secret"))
    (tmp_path / "i.jsonl").write_text('{"id": "a", "scan": "locked.pdf"}\n')
    with pytest.raises(StudyError, match=r"i.jsonl: line 1: scan 'locked.pdf' cannot be shown: it opens with a pass"):
        taken(tmp_path, "i.jsonl", "scan")


@given(st.integers(0, 600), st.binary(max_size=9))
def test_a_damaged_document_has_the_pages_that_it_had_or_nobody_knows_how_many(at: int, other: bytes) -> None:
    """Never an error of another kind, and nothing on stderr, which belongs to the command."""
    content = compressed_pdf(3)
    with suppress(ValueError):
        told(b"%PDF-" + content[5:at] + other + content[at + len(other) :])
        told(b"%PDF-" + content[5:at])


def test_a_damaged_document_is_told_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """What its reader logs is no word of the command's."""
    assert [told(compressed_pdf(3)[:size]).n_pages for size in (20, 100, -5)] == [None, None, 3]
    assert capfd.readouterr() == ("", "")


def test_without_its_reader_compressed_pages_are_not_known_and_never_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that stand in plain bytes are counted all the same."""
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert told(compressed_pdf(3)).n_pages is None
    assert told(GOLDEN["pdf"][0]).n_pages == GOLDEN["pdf"][1]["pages"]


def test_a_document_that_many_items_show_is_read_once() -> None:
    """What is known of its bytes is known."""
    content = compressed_pdf(3)
    name = told(content).sha256
    assert told(content, {name: Media("application/pdf", name, n_pages=7)}).n_pages == 7


def test_the_reader_of_documents_is_loaded_for_documents_alone() -> None:
    """Pictures do without."""
    code = "import sys; from batchpond.plan.media import told; from tests.rigs.pictures import png, compressed_pdf\n"
    code += "told(png(3, 3)); print('pypdf' in sys.modules); told(compressed_pdf(1)); print('pypdf' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["False", "True"]


def taken(
    tmp_path: Path, location: str, *columns: str, source: ItemsFrom | None = None
) -> tuple[list[Any], MediaSpool]:
    """Return the items of a source with their media columns read in, in both ways that there are."""
    store = Store.init(tmp_path / "lake")
    spec = ItemsSpec(ItemsFrom(Path(location).suffix[1:]), location, text_column="caption")
    with MediaSpool(store) as spool, MediaSpool(store) as other:
        found = items_of(each(spec, tmp_path, None, partial(spool.take, spec, columns, tmp_path)))
        assert found == read_any(spec, tmp_path, None, partial(other.take, spec, columns, tmp_path))
        assert spool.found == other.found
        return found, spool


def test_a_path_starts_at_the_items_file(tmp_path: Path) -> None:
    """What an item keeps is what the bytes are; an empty cell is nothing, and a text need not be there."""
    (tmp_path / "in" / "pics").mkdir(parents=True)
    (tmp_path / "in" / "pics" / "a.bin").write_bytes(png(8, 9))
    (tmp_path / "in" / "items.csv").write_text("id,photo,note\na,pics/a.bin,x\nb,,y\n")
    (first, second), spool = taken(tmp_path, "in/items.csv", "photo")
    (media,) = spool.found.values()
    assert (media.media_type, media.width, media.height) == ("image/png", 8, 9)
    assert first.text == second.text == ""
    assert media.sha256 in (first.metadata or "")
    assert ".bin" not in (first.metadata or "")
    assert second.metadata == '{"note":"y"}'


@pytest.mark.parametrize("is_struct", [False, True])
def test_bytes_of_parquet_are_taken_once(tmp_path: Path, *, is_struct: bool) -> None:
    """As they stand, or as data sets of Hugging Face have them."""
    contents = [png(3, 3, 1), png(3, 3, 2), png(3, 3, 1)]
    photos = [{"bytes": content, "path": None} for content in contents] if is_struct else contents
    pl.DataFrame({"id": ["a", "b", "c"], "caption": ["x"] * 3, "photo": photos}).write_parquet(tmp_path / "i.parquet")
    items, spool = taken(tmp_path, "i.parquet", "photo")
    assert len(spool.found) == 2
    assert items[0].metadata == items[2].metadata != items[1].metadata
    assert items[0].item_hash != items[2].item_hash


def test_an_address_is_kept_as_it_is_and_nothing_is_fetched(tmp_path: Path) -> None:
    """Nothing listens there."""
    (tmp_path / "i.jsonl").write_text('{"id": "a", "caption": "x", "photo": "https://127.0.0.1:1/a.png"}\n')
    (item,), spool = taken(tmp_path, "i.jsonl", "photo")
    assert item.metadata == '{"photo":{"media_type":"image/*","url":"https://127.0.0.1:1/a.png"}}'
    assert [media.url for media in spool.found.values()] == ["https://127.0.0.1:1/a.png"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('"none.png"', "line 2: photo 'none.png' cannot be shown: No such file"),
        ('"text.txt"', "it is no PNG, JPEG, WebP, GIF or PDF"),
        ('"cut.png"', "line 2: photo 'cut.png' cannot be shown"),
        ('"."', "Is a directory"),
        ("7", "cannot be shown: memoryview: a bytes-like object is required"),
        ('"large.png"', f"it has more than {BYTES_MAX:,} bytes"),
        ('"a\\u0000b"', "embedded null byte"),
    ],
)
def test_what_cannot_be_shown_is_told_with_its_place(tmp_path: Path, value: str, why: str) -> None:
    """One error, with file, line and column."""
    (tmp_path / "ok.png").write_bytes(png(2, 2))
    (tmp_path / "text.txt").write_text("a picture of a cat")
    (tmp_path / "cut.png").write_bytes(png(2, 2)[:20])
    with (tmp_path / "large.png").open("wb") as file:
        file.write(png(2, 2))
        file.truncate(BYTES_MAX + 5)
    rows = f'{{"id": "a", "photo": "ok.png"}}\n{{"id": "b", "photo": {value}}}\n'
    (tmp_path / "i.jsonl").write_text(rows)
    with pytest.raises(StudyError) as caught:
        taken(tmp_path, "i.jsonl", "photo")
    assert caught.value.message.startswith("i.jsonl: line 2: photo")
    assert why in caught.value.message


@pytest.mark.parametrize("name", [name for name, (_, about) in GOLDEN.items() if "size" in about])
def test_a_picture_of_any_kind_is_made_smaller(name: str) -> None:
    """Its longer side is as asked, its sides keep their ratio, and a GIF becomes a PNG."""
    content, about = GOLDEN[name]
    width, height = about["size"]
    bound = max(width, height) // 2
    found = told(smaller(content, bound))
    assert max(found.width or 0, found.height or 0) == bound
    assert abs((found.width or 0) * height - (found.height or 0) * width) <= max(width, height)
    assert found.media_type == ("image/png" if name.startswith("gif") else told(content).media_type)


def test_a_photo_that_says_how_it_was_held_is_turned_upright() -> None:
    """Whoever shrinks it drops what says so."""
    photo, made = Image.new("RGB", (80, 40), "red"), io.BytesIO()
    photo.paste("blue", (0, 0, 40, 40))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by 90 degrees to the right: its left side is its top then
    photo.save(made, "JPEG", exif=exif)
    with Image.open(io.BytesIO(smaller(made.getvalue(), 20))) as seen:
        assert seen.size == (10, 20)
        red, _, blue = seen.convert("RGB").split()
    assert [blue.getpixel((5, at)) > 200 for at in (2, 17)] == [True, False]
    assert [red.getpixel((5, at)) > 200 for at in (2, 17)] == [False, True]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_what_the_numbers_of_colours_mean_stays_with_them(form: str) -> None:
    """Without its profile a photo of a wide gamut looks pale."""
    profile, made = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(), io.BytesIO()
    Image.new("RGB", (80, 40), "red").save(made, form, icc_profile=profile)
    with Image.open(io.BytesIO(smaller(made.getvalue(), 20))) as seen:
        assert seen.info["icc_profile"] == profile


def test_only_what_is_larger_is_made_smaller_and_known_again_by_what_it_was_made_of(tmp_path: Path) -> None:
    """What the lake made of a picture before is shown again: other bytes would be another question."""
    store = Store.init(tmp_path / "lake")
    (tmp_path / "large.png").write_bytes(png(80, 60, 1))
    (tmp_path / "small.png").write_bytes(png(40, 30, 2))
    (tmp_path / "i.jsonl").write_text(
        "".join(f'{{"id": "{name}", "photo": "{name}.png"}}\n' for name in ("large", "small"))
    )
    spec = ItemsSpec(ItemsFrom.JSONL, "i.jsonl", text_column="caption", media_max_px=40)

    def items_now() -> list[Any]:
        with MediaSpool(store) as spool:
            found = items_of(each(spec, tmp_path, None, partial(spool.take, spec, ["photo"], tmp_path)))
            spool.publish(store)
            return found

    large, small = items_now()
    source = told(png(80, 60, 1)).sha256
    shown = json.loads(large.metadata or "")["photo"]
    assert (shown["width"], shown["height"], shown["made_of"]) == (40, 30, f"{source}@40")
    assert "made_of" not in (small.metadata or "")
    assert told(png(40, 30, 2)).sha256 in (small.metadata or "")
    other = png(40, 30, 3)  # as another library would have made it
    with MediaSpool(store) as spool:
        spool._keep(told(other), other)
        spool.publish(store)
    metadata = (large.metadata or "").replace(told(smaller(png(80, 60, 1), 40)).sha256, told(other).sha256)
    row = {name: [None] for name in ITEMS.schema.names} | {"item_id": ["large"], "metadata": [metadata]}
    store.publish(ITEMS, "other", pa.table(row, schema=ITEMS.schema))
    assert told(other).sha256 in (items_now()[0].metadata or "")
    assert Lake(store.path).sql("SELECT count(*) FROM blobs").rows() == [(3,)]
