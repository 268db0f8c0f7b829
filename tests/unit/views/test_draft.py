"""A lens is changed where it was written, and is yet what anybody would have written from its files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from batchpond.lake.schemas import ITEMS
from batchpond.lake.store import LENS
from batchpond.views import database, read, refresh
from batchpond.views.draft import AT_HAND, MEMORY_LIMIT, Draft
from tests.rigs.lakes import LakeBuilder

_OTHER = """
import sys
from pathlib import Path
from batchpond.lake.store import Store
from batchpond.views import database
store = Store.open(Path(sys.argv[1]))
database.build(store.path, database.listed(store.path))
"""


@pytest.fixture
def lake(tmp_path: Path) -> LakeBuilder:
    builder = LakeBuilder(tmp_path / "lake")
    item(builder, "one")
    builder.build()
    return builder


def item(lake: LakeBuilder, name: str) -> None:
    lake.rows(ITEMS, [{"item_hash": name, "item_id": name, "text": "t"}])


def items(path: Path, connect: database.Connect = database.connect) -> set[str]:
    with closing(connect(path, memory_limit=MEMORY_LIMIT)) as lens:
        return {name for (name,) in lens.execute("SELECT item_id FROM items").fetchall()}


def at_hand(lake: LakeBuilder) -> Draft | None:
    with AT_HAND.of(lake.path / LENS) as draft:
        return draft


def test_the_next_publication_changes_the_same_draft(lake: LakeBuilder) -> None:
    """No engine is started for it, and what it shows is all that was published."""
    before = at_hand(lake)
    for name in ("two", "three"):
        item(lake, name)
        lake.build()
    assert before is not None
    assert at_hand(lake) is before
    assert items(lake.path) == {"one", "two", "three"}


def test_what_another_process_published_in_between_is_taken_up(lake: LakeBuilder) -> None:
    """The draft at hand is no longer the lens on disk then, and is let go."""
    before = at_hand(lake)
    item(lake, "two")
    subprocess.run([sys.executable, "-c", _OTHER, os.fspath(lake.path)], check=True)
    assert items(lake.path) == {"one", "two"}
    item(lake, "three")
    lake.build()
    assert items(lake.path) == {"one", "two", "three"}
    assert at_hand(lake) is not before


def test_what_is_shown_to_us_alone_is_written_at_the_end(lake: LakeBuilder) -> None:
    """Within a pass our own SQL sees what was published, and the lens on disk stays as it is and is not current."""
    before = (lake.path / LENS).read_bytes()
    for name in ("two", "three"):
        item(lake, name)
        assert refresh.refresh(lake.store, is_for_us=True)
        assert items(lake.path, database.connect_at_hand) > items(lake.path) == {"one"}
    assert (lake.path / LENS).read_bytes() == before
    assert not database.is_current(lake.path, database.listed(lake.path))
    assert refresh.refresh(lake.store)
    assert items(lake.path) == items(lake.path, database.connect_at_hand) == {"one", "two", "three"}
    assert database.is_current(lake.path, database.listed(lake.path))


def test_what_nobody_wrote_at_the_end_is_written_by_the_next(lake: LakeBuilder) -> None:
    """A pass that died after it had looked leaves the lens behind what was published, here and elsewhere."""
    item(lake, "two")
    refresh.refresh(lake.store, is_for_us=True)
    database.connect_at_hand(lake.path).close()
    subprocess.run([sys.executable, "-c", _OTHER, os.fspath(lake.path)], check=True)
    assert items(lake.path) == items(lake.path, database.connect_at_hand) == {"one", "two"}
    item(lake, "three")
    refresh.refresh(lake.store, is_for_us=True)
    AT_HAND.keep(None, None)
    assert items(lake.path, database.connect_at_hand) == {"one", "two"}
    assert refresh.refresh(lake.store)
    assert items(lake.path) == {"one", "two", "three"}


def test_rows_that_are_still_read_do_not_keep_the_lens_from_being_written(lake: LakeBuilder) -> None:
    """The engine writes nothing beside an open read; then the file is made from another draft."""
    for name in ("two", "three"):
        item(lake, name)
    refresh.refresh(lake.store, is_for_us=True)
    rows = read.stream_query(lake.path, "SELECT item_id FROM items, range(100_000)", is_ours=True)
    first = next(rows)
    item(lake, "four")
    assert refresh.refresh(lake.store)
    assert items(lake.path) == {"one", "two", "three", "four"}
    assert first.num_rows + sum(batch.num_rows for batch in rows) == 300_000


def test_two_lakes_in_turns_show_their_own(lake: LakeBuilder, tmp_path: Path) -> None:
    """One draft is at hand; the other lake's is opened from its lens."""
    other = LakeBuilder(tmp_path / "other")
    for number in range(3):
        for one in (lake, other):
            item(one, f"{one.path.name}-{number}")
            one.build()
    assert items(lake.path) == {"one", "lake-0", "lake-1", "lake-2"}
    assert items(other.path) == {"other-0", "other-1", "other-2"}


def test_a_forked_child_and_its_parent_both_go_on(lake: LakeBuilder) -> None:
    """The child has a draft of its own; what it publishes the parent takes up, and neither changes the other's file."""
    item(lake, "two")
    if not (child := os.fork()):
        try:
            lake.build()
        finally:
            os._exit(0 if items(lake.path) == {"one", "two"} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    item(lake, "three")
    lake.build()
    assert items(lake.path) == {"one", "two", "three"}


def test_a_draft_that_fails_is_let_go_and_the_lens_stays(lake: LakeBuilder) -> None:
    """What happened to it may have left it half changed: the next publication begins with the lens on disk."""
    draft = at_hand(lake)
    assert draft is not None
    draft.connection.execute("DROP TABLE lens_lists")
    item(lake, "two")
    lake.build()
    assert items(lake.path) == {"one", "two"}
    draft = at_hand(lake)
    assert draft is not None
    with pytest.raises(duckdb.Error), AT_HAND.of(lake.path / LENS):
        draft.connection.execute("SELECT error('no')")
    assert at_hand(lake) is not draft


def test_nothing_of_a_draft_outlives_its_writer(lake: LakeBuilder, tmp_path: Path) -> None:
    """Not even where the process is killed with one open."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    script = f"{_OTHER}\nprint('built', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", script, os.fspath(lake.path)],
        env=os.environ | {"TMPDIR": os.fspath(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"built\n"
        assert list(folder.iterdir()) == []
        process.send_signal(signal.SIGKILL)
    assert list(folder.iterdir()) == []


def test_what_is_let_go_twice_takes_no_other_file_along(tmp_path: Path) -> None:
    """A failed draft is closed by who filled it and by who had it at hand; its number may have a new owner between."""
    draft = Draft.opened(None, tmp_path)
    draft.close()
    with (tmp_path / "other").open("wb") as other:
        draft.close()
        other.write(b"whole")
    assert (tmp_path / "other").read_bytes() == b"whole"
