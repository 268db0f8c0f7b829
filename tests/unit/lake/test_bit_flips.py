"""A byte that changed on disk is found by a deep look where it changes what the lake says, and the file is named."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from batchpond.doctor import Level, examine
from batchpond.errors import ExitCode, LakeError
from batchpond.lake.disk import read_through
from batchpond.lake.schemas import RAW, REQUESTS, RESPONSES, Table
from batchpond.lake.store import Store

N_ROWS = 400
N_FLIPS = 60


def rows(table: Table, seed: int) -> list[dict[str, object]]:
    """Return rows of texts that hardly compress, so that most of a file is theirs."""
    draw = random.Random(seed)
    kinds = {"string": lambda: f"{draw.getrandbits(400):x}", "int64": lambda: draw.getrandbits(40),
             "int32": lambda: draw.getrandbits(20), "binary": lambda: draw.randbytes(30)}  # fmt: skip
    return [
        {name: kinds[kind]() if kind in kinds else None for name, kind in table.columns if kind != "float64"}
        for _ in range(N_ROWS)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.init(tmp_path / "lake")


def pages_end(path: Path) -> int:
    """Return where the pages of a file end and its footer begins."""
    return path.stat().st_size - 8 - int.from_bytes(path.read_bytes()[-8:-4], "little")


@pytest.mark.parametrize("table", [REQUESTS, RAW, RESPONSES], ids=lambda table: table.name)
def test_a_flipped_bit_changes_no_row_that_is_read(store: Store, table: Table) -> None:
    """It is found wherever content lies; statistics in a page's head are all that it may change unseen."""
    store.publish(table, "p_provider=x/a", rows(table, 1))
    (path,) = store.files(table.name)
    sound, content = path.read_bytes(), pq.read_table(path)
    path.chmod(0o600)
    draw = random.Random(2)
    n_found = 0
    for _ in range(N_FLIPS):
        at = draw.randrange(4, pages_end(path))
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << draw.randrange(8)]) + sound[at + 1 :])
        try:
            read_through(path)
        except LakeError:
            n_found += 1
        else:
            assert pq.read_table(path).equals(content)
    assert n_found > 0.9 * N_FLIPS
    path.write_bytes(sound)
    assert read_through(path) == N_ROWS


@pytest.mark.parametrize(("table", "advice"), [(RAW, "backup"), (RESPONSES, "makes it again")], ids=["fact", "derived"])
def test_the_deep_look_names_the_file_and_what_to_do(store: Store, table: Table, advice: str) -> None:
    store.publish(table, "p_provider=x/a", rows(table, 1))
    store.publish(table, "p_provider=x/b", rows(table, 2))
    files = [found for found in examine(store, is_deep=True) if found.check == "files"]
    assert [(found.level, f"{2 * N_ROWS:,} rows read" in found.message) for found in files] == [(Level.OK, True)]
    path = store.files(table.name)[0]
    content = bytearray(path.read_bytes())
    content[pages_end(path) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    (found,) = [found for found in examine(store, is_deep=True) if found.check == "files"]
    assert (found.level, found.exit_code) == (Level.ERROR, ExitCode.LAKE)
    assert path.name in found.message
    assert advice in (found.hint or "")
