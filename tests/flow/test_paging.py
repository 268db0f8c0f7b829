"""Absence is read from whole listings only: a full page that calls itself the last is asked on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from batchpond.lake.attempts import Phase
from batchpond.providers.openai.dialect import DIALECT
from batchpond.run.find import list_since
from batchpond_sim.world.world import Settings
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.sim_study import LATENCY_S, START, Rig

N_REQUESTS = 12
PAGE = DIALECT.DESCRIPTOR.list_page_size


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """One shard of twelve requests, planned, in an account that others use too."""
    rig = Rig(tmp_path, Settings(seed=1, latency_s=LATENCY_S), max_requests=50, models=("gpt-4.1-mini",),
              with_lens=False)  # fmt: skip
    rig.plan()
    yield rig
    rig.world.close()


def others_create(rig: Rig, n: int) -> None:
    """Let somebody else make `n` batches in the same account."""
    body = {"model": "gpt-4.1-mini", "messages": [{"role": "user", "content": "hello"}]}
    line = json.dumps({"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": body})
    with httpx.Client(
        base_url=SIMULATED["openai"].base_url,
        transport=rig.wire._inner,
        headers={"Authorization": f"Bearer {rig.key}"},
    ) as http:
        file = http.post("/files", files={"file": ("in.jsonl", line)}, data={"purpose": "batch"}).json()
        asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        for _ in range(n):
            assert http.post("/batches", json=asked).status_code == 200


def listed(rig: Rig) -> tuple[int, bool, int]:
    """Return how many batches a listing shows, whether it is whole, and how many pages it took."""
    before = rig.wire.calls["GET /batches"]
    listing = list_since(rig.providers().get("openai"), START)
    return len(listing.batches), listing.is_complete, rig.wire.calls["GET /batches"] - before


@pytest.mark.parametrize(("n_batches", "n_pages"), [(PAGE - 1, 1), (PAGE, 2), (PAGE + 1, 2), (2 * PAGE, 3)], ids=str)
@pytest.mark.parametrize("is_lying", [False, True], ids=["honest", "has_more always false"])
def test_every_batch_is_listed_whatever_has_more_says(rig: Rig, n_batches: int, n_pages: int, is_lying: bool) -> None:
    others_create(rig, n_batches)
    if is_lying:
        rig.world.add_fault("batches.list@*:has_more_lies=false")
    assert listed(rig) == (n_batches, True, n_pages)


def test_a_batch_behind_a_full_page_that_calls_itself_the_last_is_not_bought_again(rig: Rig) -> None:
    rig.world.add_fault("batches.create@1:reset_after")
    rig.world.add_fault("batches.create@1:stale_list=60")
    rig.submit()
    assert rig.only().phase is Phase.UNKNOWN
    others_create(rig, PAGE)
    rig.world.add_fault("batches.list@*:has_more_lies=false")
    for _ in range(3):
        rig.clock.advance(1_000)
        rig.sync()
    assert (len(rig.attempts()), rig.wire.n_create_posts) == (1, 1)
    assert len(rig.answers()) == N_REQUESTS
