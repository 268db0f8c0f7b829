"""What is due, and how it is cut: each request once, whatever is planned, sampled or planned anew."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batchpond.errors import LakeError, UsageError
from batchpond.lake import jsonl
from batchpond.lake.attempts import fold
from batchpond.lake.events import read
from batchpond.lake.store import Store
from batchpond.plan import verb as plan
from batchpond.plan.versions import Again
from batchpond.providers import registry
from batchpond.run import due, submit, sync
from batchpond.run.session import Providers
from batchpond.study import file as study
from batchpond.views.read import rows
from batchpond_sim.world.world import Settings, World
from tests.golden.bought import record
from tests.rigs.clock import ManualClock
from tests.rigs.sim_cache import without_lens
from tests.rigs.sim_transport import SimulatorTransport

STUDY = """
study = "due"
[items]
path = "items.csv"
[pairs]
reverse = 1.0
[[rubrics]]
use = "overall_quality"
[[templates]]
use = "concise"
[[templates]]
use = "plain"
[[models]]
provider = "openai"
model = "gpt-4.1-mini"
max_output_tokens = 50
"""


@pytest.fixture(scope="module", autouse=True)
def _no_lens() -> Iterator[None]:
    """What is looked at here are the lake's tables; a view is worked out when one is asked for."""
    with without_lens():
        yield


class Rig:
    """A lake, a simulated provider and a clock that they share."""

    def __init__(self, folder: Path, extra: str = "", n_items: int = 5) -> None:
        self.clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))
        self.folder = folder
        self.store = Store.init(folder / "lake", self.clock)
        self.world = World(folder / "world", Settings(seed=1, latency_s=(10, 20)), self.clock)
        transport = SimulatorTransport(self.world, self.clock)
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1/openai/v1"}
        self.providers = Providers(
            lambda name: registry.connect(name, self.clock, transport=transport, environ=environ)
        )
        (folder / "items.csv").write_text("id,text\n" + "".join(f"i{n},essay {n}\n" for n in range(n_items)))
        self.plan(extra)

    def plan(self, extra: str = "") -> None:
        (self.folder / "study.toml").write_text(STUDY + extra)
        plan.plan_study(self.store, study.load(self.folder / "study.toml"))

    def submit(self, limit: int | None = None, *, max_cost_usd: float | None = None, again: bool = False) -> int:
        report = submit.submit(
            self.store, "due", submit.Bounds(max_cost_usd, limit), confirm=lambda _: True,
            providers=self.providers, again=Again() if again else None,
        )  # fmt: skip
        return report.preview.n_requests

    def finish(self) -> None:
        for _ in range(10):
            self.clock.advance(3600)
            if not sync.sync_once(self.store, providers=self.providers).n_pending:
                return
        raise AssertionError("the batches did not end")

    def shard_sizes(self) -> list[int]:
        return sorted(pq.read_metadata(path).num_rows for path in self.store.files("shard_requests"))

    def asked(self) -> Counter[str]:
        """How often each request was sent, by what the provider holds."""
        intents = fold(read(self.store)).attempts.values()
        sent = [a for a in intents if a.batch_id is not None]
        return Counter(
            request_id
            for attempt in sent
            for request_id in jsonl.shard_lines(self.store, attempt.provider, attempt.shard_id).request_ids
        )


BOUGHT = ("task_likert", "task_prompts_regex", "task_listwise", "task_ranking", "task_compliance", "stages_ratings")


@pytest.mark.parametrize("name", BOUGHT)
def test_requests_of_one_template_and_rubric_go_together(tmp_path: Path, name: str) -> None:
    """What a provider keeps of how they begin is read while it is kept, whatever the task; `plan` cuts alike."""
    store = Store.init(tmp_path / "lake", ManualClock(datetime(2026, 11, 21, tzinfo=UTC)))
    told = plan.plan_study(store, study.load(record.STUDIES / f"{name}.toml"))
    version, state = told.study_version, fold(read(store))
    for sample in (None, 5):
        found = [one.lines for one in due.new_shards(store, state, told.study, version, sample)]
        asked = pa.concat_tables(found).select(["request_model", "stage", "thinking", "template_id", "rubric_id"])
        runs = [key for key, _ in itertools.groupby(tuple(row.values()) for row in asked.to_pylist())]
        assert len(runs) == len(set(runs))
        assert sum(map(len, found)) == (told.n_to_ask if sample is None else sample)
    assert told.n_shards == len(list(due.new_shards(store, state, told.study, version, None)))


@pytest.mark.parametrize(
    ("extra", "sizes"),
    [
        ("", [40]),
        ("[shards]\nmax_requests = 15\n", [10, 15, 15]),
        ("[shards]\nsegments = 3\n", [13, 13, 14]),
        ("[shards]\nper_cell = true\n", [20, 20]),
        ("[shards]\nper_cell = true\nsegments = 3\n", [6, 6, 7, 7, 7, 7]),
    ],
)
def test_shards_are_cut_as_the_study_says(tmp_path: Path, extra: str, sizes: list[int]) -> None:
    rig = Rig(tmp_path, extra)
    assert rig.submit() == 40
    assert rig.shard_sizes() == sizes
    assert len(rig.world.ledger.batches) == len(sizes)
    assert set(rig.asked().values()) == {1}


def test_a_larger_sample_contains_a_smaller_one_and_the_rest_follows(tmp_path: Path) -> None:
    """Nothing is asked twice, and a sample holds whole pairs over all cells."""
    rig = Rig(tmp_path)
    assert rig.submit(limit=8) == 8
    first = set(rig.asked())
    rig.finish()
    answered = [row for row in rows(rig.store.path, "results", order=("slot",)) if row["outcome"] is not None]
    assert Counter(row["pair_id"] for row in answered) == dict.fromkeys({row["pair_id"] for row in answered}, 4)
    assert rig.submit(limit=8) == 0
    assert rig.submit(limit=12) == 4
    assert first < set(rig.asked())
    assert rig.submit() == 28
    assert rig.asked() == Counter(dict.fromkeys(rig.asked(), 1))
    assert len(rig.asked()) == 40


def test_an_answered_request_is_asked_again_only_when_told_to(tmp_path: Path) -> None:
    """The first success stays the result; the second answer stands beside it."""
    rig = Rig(tmp_path)
    rig.submit()
    rig.finish()
    assert rig.submit() == 0
    before = rows(rig.store.path, "results", order=("slot",))
    assert rig.submit(again=True) == 40
    assert rig.submit(again=True) == 0, "what is on its way is not asked a third time"
    rig.finish()
    assert set(rig.asked().values()) == {2}
    assert [row["attempt_id"] for row in rows(rig.store.path, "results", order=("slot",))] == [
        row["attempt_id"] for row in before
    ]
    kept = rows(rig.store.path, "result_attempts", order=("slot", "attempt_order"))
    assert Counter(row["is_accepted"] for row in kept) == {True: 40, False: 40}
    assert {row["n_extra"] for row in rows(rig.store.path, "coverage", order=("template_id",))} == {20}


def test_planning_back_and_forth_never_asks_a_request_twice(tmp_path: Path) -> None:
    """A shard of an earlier plan that was not sent gives its requests up for good."""
    rig = Rig(tmp_path, "[shards]\nmax_requests = 15\n")
    version = fold(read(rig.store)).current_versions["due"]
    (rig.store.path / "config.toml").write_text("[limits.openai]\nopen_batches = 1\n")
    rig.submit()
    assert sum(rig.asked().values()) == 15
    rig.plan("[shards]\nmax_requests = 10\n")
    rig.submit()
    rig.finish()
    rig.plan("[shards]\nmax_requests = 15\n")
    assert fold(read(rig.store)).current_versions["due"] == version
    rig.submit()
    rig.finish()
    assert rig.asked() == Counter(dict.fromkeys(rig.asked(), 1))
    assert len(rig.asked()) == 40


def test_what_the_queue_cannot_hold_follows_in_waves(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    (rig.store.path / "config.toml").write_text('[limits."openai/gpt-4.1-mini"]\nenqueued_tokens = 2500\n')
    rig.submit()
    assert len(rig.world.ledger.batches) == 1
    rig.finish()
    assert len(rig.world.ledger.batches) > 2
    assert set(rig.asked().values()) == {1}
    assert len(rig.asked()) == 40


def test_an_approved_amount_is_never_passed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "[shards]\nmax_requests = 10\n")
    shown = submit.preview(rig.store, fold(read(rig.store)), "due", None)
    worst = shown.cost_max_usd
    assert worst is not None
    with pytest.raises(UsageError, match="exceeds the limit"):
        rig.submit(max_cost_usd=(shown.cost_expected_usd or 0) * 0.9)
    rig.submit(max_cost_usd=worst * 0.9)
    intents = [attempt.intent for attempt in fold(read(rig.store)).attempts.values()]
    assert sum(intent.cost_max_usd or 0 for intent in intents) <= worst * 0.9
    assert len(intents) < 4


def test_a_batch_that_could_pass_the_amount_by_itself_is_refused(tmp_path: Path) -> None:
    """Otherwise it would wait for money for ever."""
    rig = Rig(tmp_path)
    shown = submit.preview(rig.store, fold(read(rig.store)), "due", None)
    with pytest.raises(UsageError, match="one batch may cost"):
        rig.submit(max_cost_usd=((shown.cost_expected_usd or 0) + (shown.cost_max_usd or 0)) / 2)
    assert rig.asked() == Counter()


def test_a_payload_is_built_byte_for_byte_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.submit()
    (attempt,) = fold(read(rig.store)).attempts.values()
    path = rig.store.payload_path(attempt.attempt_id)
    data = path.read_bytes()
    path.unlink()
    built = jsonl.build_payload(rig.store, registry.module("openai"), attempt.intent, attempt.attempt_id)
    assert path.read_bytes() == data
    assert (built.sha256, built.size_bytes) == (attempt.intent.sha256, attempt.intent.size_bytes)


def test_a_request_that_is_not_in_the_lake_stops_the_payload(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.submit()
    (attempt,) = fold(read(rig.store)).attempts.values()
    rig.store.payload_path(attempt.attempt_id).unlink()
    (file,) = rig.store.files("requests")
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.slice(1), file)
    with pytest.raises(LakeError, match="is not in the lake's requests"):
        jsonl.build_payload(rig.store, registry.module("openai"), attempt.intent, attempt.attempt_id)


def test_a_request_that_is_cut_carries_no_words_but_its_own(tmp_path: Path) -> None:
    """A row of each request is sorted: a path or a word that many share would fill the memory, a number does not."""
    rig = Rig(tmp_path, "[shards]\nper_cell = true\n")
    lake_state = fold(read(rig.store))
    for new in due.new_shards(rig.store, lake_state, "due", lake_state.current_versions["due"], None):
        words = {field.name for field in new.lines.schema if pa.types.is_string(field.type)}
        assert words == {"request_id", "group"}
        assert new.lines["template_id"].unique().to_pylist() in (["concise"], ["plain"])


def test_no_two_models_share_a_shard_where_the_plan_says_no_mode() -> None:
    """Plans of before it was on record: a group that is NULL would be that of all models."""
    cells = pa.table({"cell_id": ["a", "b"], "model_no": pa.array([1, 2], pa.int32())})
    part = pa.record_batch(
        {"cell_no": [0, 1], "tier": pa.array([1, 1], pa.int32()), "mode": pa.array([None, None], pa.string())}
    )
    for is_per_cell in (False, True):
        groups = due._with_cells(part, cells, is_per_cell=is_per_cell)["group"].to_pylist()
        assert None not in groups
        assert len(set(groups)) == 2


def test_no_limit_is_taken_from_a_misspelt_setting(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    (rig.store.path / "config.toml").write_text("[limits.openai]\nopen_batch = 1\n")
    with pytest.raises(UsageError, match=r"config\.toml:2: limits\.openai\.open_batch is not a known key") as caught:
        list(due.new_shards(rig.store, fold(read(rig.store)), "due", "v", None))
    assert caught.value.hint == "did you mean `open_batches`?"
