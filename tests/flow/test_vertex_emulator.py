"""Vertex AI over a Cloud Storage emulator that is not ours: jobs are simulated, every object is the emulator's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gcp_storage_emulator.server import create_server

from batchpond.clock import SystemClock
from batchpond.lake import tables
from batchpond.lake.attempts import Phase, fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.providers import registry
from batchpond.run import submit, sync
from batchpond.run.session import Providers
from batchpond.study import file as study
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study

BUCKET = "study-bucket"
MODEL = "publishers/google/models/gemini-2.5-flash-lite"


@pytest.fixture
def emulator() -> Iterator[str]:
    """A storage emulator with one bucket, on a loopback port."""
    running = create_server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    running.start()
    try:
        yield f"http://127.0.0.1:{running._api._httpd.server_address[1]}"
    finally:
        running.stop()


def test_a_study_goes_through_a_storage_that_is_not_ours(emulator: str, tmp_path: Path) -> None:
    """Payloads are uploaded there, the jobs read and write there, every answer comes back; a second pass is a no-op."""
    settings = Settings(seed=3, latency_s=(5.0, 10.0), faults=("batches.create@1:shards=2",), storage_url=emulator)
    plan.plan_study(Store.init(tmp_path / "lake"), study.load(write_study(tmp_path, max_requests=6, models=(MODEL,))))
    store = Store.open(tmp_path / "lake")
    with server.running(settings) as sim:
        environ = os.environ | {
            "GOOGLE_VERTEX_BASE_URL": sim.base_url_of("vertex"),
            "STORAGE_EMULATOR_HOST": emulator,
            "GOOGLE_OAUTH_ACCESS_TOKEN": "ya29.of-the-test",
            "BATCHPOND_VERTEX_BUCKET": f"gs://{BUCKET}/studies/one",
        }
        wire = registry.connect("vertex", SystemClock(), environ=environ)
        providers = Providers(lambda _: wire)
        submit.submit(store, STUDY, confirm=lambda _: True, providers=providers)
        sim.world.advance(20.0)
        sync.sync_once(store, providers=providers)
        attempts = fold(read(store)).attempts.values()
        assert [attempt.phase for attempt in attempts] == [Phase.VERIFIED, Phase.VERIFIED]
        files = {event.file_id or "" for attempt in attempts for event in attempt.downloads}
        assert len(files) == 3, "one of the two jobs wrote its rows in two objects"
        assert all(name.startswith(f"gs://{BUCKET}/studies/one/") for name in files)
        with tables.connect(store, ["responses"]) as connection:
            found = connection.execute("select count(*), count(distinct request_id) from responses").fetchone()
        assert found == (12, 12)
        before = sorted(path for path in store.path.rglob("*") if path.is_file())
        sync.sync_once(store, providers=providers)
        assert sorted(path for path in store.path.rglob("*") if path.is_file()) == before
        wire.close()
        assert not list(sim.world.path.glob("storage/objects/*")), "nothing was kept beside the emulator"
