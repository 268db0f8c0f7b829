"""Buckets that a lake can be in, and machines that have mirrors of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs import s3


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Shop]:
    with s3.served() as shop:
        for name, value in shop.environ.items():
            monkeypatch.setenv(name, value)
        yield shop


@pytest.fixture(autouse=True)
def mirrors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No mirror of a test is among a person's own."""
    monkeypatch.setenv("BATCHPOND_MIRRORS", str(tmp_path / "mirrors"))
    return tmp_path / "mirrors"
