"""Ids are made as the standard library would make them, only sooner."""

from __future__ import annotations

import base64
import hashlib

from hypothesis import given
from hypothesis import strategies as st

from batchpond import ids


@given(kind=st.text(), part=st.text(), length=st.integers(1, 32))
def test_an_id_is_the_beginning_of_a_digest_in_base_32(kind: str, part: str, length: int) -> None:
    """Of any length that an id has: what was bought stays bought."""
    texts = [text.encode("utf-8", "surrogatepass") for text in (kind, part)]
    hashed = hashlib.sha256(b"".join(b"%d:%b" % (len(text), text) for text in texts)).digest()
    expected = base64.b32encode(hashed).decode().lower()[:length]
    assert ids.digest(kind, part, length=length) == expected
