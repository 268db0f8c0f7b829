"""Marks in kept bodies, and the blobs that are put in their place."""

from __future__ import annotations

import base64
import hashlib
import tracemalloc
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import LakeError
from batchpond.lake.jsonl import Blobs, Embedded, sent_bytes
from batchpond.lake.schemas import BLOBS
from batchpond.lake.store import Store
from batchpond.model import Media
from batchpond.plan.cells import canonical
from batchpond.plan.media import told
from tests.rigs.pictures import png

PICTURE = png(5, 4)
DIGEST = hashlib.sha256(PICTURE).hexdigest()
MARK = f"\\/blob\\/{DIGEST}.{len(PICTURE)}"


def store_with(path: Path, *contents: bytes) -> Store:
    store = Store.init(path)
    known = [told(content) for content in contents]
    columns = [[getattr(one, name) for one in known] for name in ("sha256", "media_type", "size_bytes")]
    store.publish(BLOBS, "some", pa.table([*columns, list(contents)], schema=BLOBS.schema))
    return store


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Blobs:
    return Blobs(store_with(tmp_path_factory.mktemp("lake"), PICTURE, png(6, 6, 1)))


@given(
    st.lists(
        st.one_of(st.text(), st.sampled_from([MARK, MARK.replace("\\", ""), "\\" + MARK, f'"{MARK}', MARK * 2, "\\"])),
        max_size=6,
    )
)
def test_no_text_can_name_a_blob(blobs: Blobs, texts: list[str]) -> None:
    """Whatever a study's texts are, a body without pictures is sent as it is kept."""
    for text in (*texts, "".join(texts)):
        body = canonical({"messages": [{"role": "user", "content": text}]})
        assert blobs.expanded(body) == body
        assert sent_bytes(body) == len(body)


@given(st.text(), st.text())
def test_a_mark_becomes_the_bytes_and_nothing_else_changes(blobs: Blobs, before: str, after: str) -> None:
    """The kept body is JSON, and the sent one the same but for the bytes; its size is known from the kept one."""
    media = Media("image/png", DIGEST, len(PICTURE))
    body = {"a": before, "url": Embedded(f"data:{before}", media), "z": [after, Embedded("", media)]}
    kept = canonical(body)
    assert orjson.loads(kept)["a"] == before
    sent = blobs.expanded(kept)
    data = base64.b64encode(PICTURE).decode()
    assert orjson.loads(sent) == {"a": before, "url": f"data:{before}{data}", "z": [after, data]}
    assert sent_bytes(kept) == len(sent)


def test_what_is_shown_is_there_or_nothing_is_sent(tmp_path: Path) -> None:
    """A lake that lacks a blob says which."""
    store = store_with(tmp_path / "lake", PICTURE)
    body = canonical({"x": Embedded("", Media("image/png", "0" * 64, 3))})
    with pytest.raises(LakeError, match="0000, which is not in the lake's blobs"):
        Blobs(store).expanded(body)


def test_a_damaged_blob_is_not_sent(tmp_path: Path) -> None:
    """Its page no longer has its checksum."""
    store = store_with(tmp_path / "lake", PICTURE)
    (path,) = store.files("blobs")
    data = path.read_bytes()
    at = data.index(PICTURE) + len(PICTURE) // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    body = canonical({"x": Embedded("", Media("image/png", DIGEST, len(PICTURE)))})
    with pytest.raises(LakeError, match="its bytes are not those that were written"):
        Blobs(store).expanded(body)


def test_large_ones_are_in_memory_for_their_line_alone(tmp_path: Path) -> None:
    """Whatever many lines show, one line's bytes are held, and what is small."""
    contents = [png(5, 4, number) + bytes(5_000_000) for number in range(6)]
    blobs = Blobs(store_with(tmp_path / "lake", *contents))
    media = [told(content) for content in contents]
    tracemalloc.start()
    try:
        sizes = {len(blobs.expanded(canonical({"x": Embedded("", one)}))) for one in media}
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert min(sizes) > 6_600_000
    assert held < 3_000_000
