"""What planned versions say of themselves: read once, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from batchpond.lake.disk import read_rows
from batchpond.lake.schemas import STUDIES
from batchpond.lake.store import Store
from batchpond.plan import versions


def publish(store: Store, number: int) -> None:
    row = {"study_version": f"v{number}", "config": "{}", "n_requests": number, "parsers": f'{{"p{number}": {{}}}}'}
    name = f"p_study=s{number}/v{number}"
    store.publish(STUDIES, name, pa.Table.from_pylist([row], schema=STUDIES.schema))


def test_each_version_is_read_once_and_a_new_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that asks for every study opens no file again, and the next one only what was planned meanwhile."""
    store = Store.init(tmp_path / "lake")
    for number in range(5):
        publish(store, number)
    opened: list[Path] = []

    def counted(path: Path, columns: Sequence[str]) -> Any:
        opened.append(path)
        return read_rows(path, columns)

    monkeypatch.setattr(versions, "read_rows", counted)
    assert [versions.study_column(store, f"v{number}", "n_requests") for number in range(5)] == [0, 1, 2, 3, 4]
    assert len(opened) == 5
    versions.keep(store)
    publish(store, 5)
    opened.clear()
    following = Store.open(store.path)
    assert [versions.study_column(following, f"v{number}", "n_requests") for number in range(6)] == [0, 1, 2, 3, 4, 5]
    assert versions.parsers(following) == {f"p{number}": {} for number in range(6)}
    assert {path.stem for path in opened} == {"v5"}
