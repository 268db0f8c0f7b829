"""How many files a batch costs, by count: what needs no durability of its own stands together."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchpond.lake.attempts import Phase
from batchpond.lake.events import read
from batchpond.lake.records import Created, Downloaded, Intent, Sent, Sharded, Status, Uploaded, Verified
from batchpond.run import collect, send
from tests.rigs.sim_study import Rig


def test_a_batch_takes_three_files_of_events_to_send_and_none_of_its_own_to_collect(tmp_path: Path) -> None:
    """Its intent, its upload with its `sent`, and its answer to the create; nobody lists files before its upload."""
    rig = Rig(tmp_path, max_requests=2, with_lens=False)
    rig.plan()
    n_before = len(rig.store().published("events"))
    rig.submit()
    n_batches = len(rig.attempts())
    assert n_batches > 3
    n_sent = len(rig.store().published("events")) - n_before
    assert n_sent == 2 + 3 * n_batches  # the approval, and all shards, which hold every request
    assert rig.wire.calls["GET /files"] == 0
    rig.clock.advance(100_000)
    rig.sync()
    assert {one.phase for one in rig.attempts()} == {Phase.VERIFIED}
    assert len(rig.store().published("events")) - n_before - n_sent == 2  # what the page says, and what came of it
    kinds = [type(event) for event in read(rig.store())]
    for kind in (Sharded, Intent, Uploaded, Sent, Created, Status, Downloaded, Verified):
        assert kinds.count(kind) >= n_batches, kind


@pytest.mark.parametrize(("large", "phase"), [(1, Phase.UPLOADED), (1_000, Phase.INTENT)])
def test_a_large_batch_has_its_upload_on_record_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, phase: Phase
) -> None:
    """Who dies after it need not look for it; of a small one the listing of files tells."""
    monkeypatch.setattr(send, "LARGE", large)
    rig = Rig(tmp_path, with_lens=False)
    rig.plan()
    rig.crash_at = "S6"
    assert not rig.survive(rig.submit)
    assert [one.phase for one in rig.attempts()] == [phase]
    rig.settle()
    assert rig.wire.calls["POST /files"] == len(rig.attempts())


@pytest.mark.parametrize(("large", "n_more"), [(1, 0), (1_000, 1)])
def test_a_large_batch_has_its_download_on_record_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int, n_more: int
) -> None:
    """Who dies before it is read downloads a small one again, a large one not; and what travelled beside it."""
    monkeypatch.setattr(collect, "LARGE", large)
    rig = Rig(tmp_path, with_lens=False)
    rig.plan()
    rig.submit()
    rig.clock.advance(100_000)
    rig.crash_at = "Y8"
    assert not rig.survive(rig.sync)
    assert sum(len(one.downloads) for one in rig.attempts()) == 1 - n_more
    rig.settle()
    n_downloads = sum(n for call, n in rig.wire.calls.items() if call.endswith("/content"))
    assert n_downloads == len(rig.attempts()) + n_more + collect.AT_ONCE - 1
