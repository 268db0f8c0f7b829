"""Planning into a real lake: complete, idempotent, safe to interrupt, and honest about cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from batchpond import ids
from batchpond.errors import BusyError, StudyError, UsageError
from batchpond.lake import tables
from batchpond.lake.events import EventLog
from batchpond.lake.schemas import RESPONSES, SHARD_REQUESTS
from batchpond.lake.store import Store
from batchpond.lake.tables import connect
from batchpond.plan import write
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from batchpond.study.prices import UNKNOWN
from batchpond.study.spec import Study
from batchpond.tasks import registry as tasks
from batchpond.views import database
from tests.rigs.clock import ManualClock
from tests.rigs.sim_cache import without_lens
from tests.rigs.toy_provider import CHAT, ToyModule, modules

START = datetime(2026, 11, 21, tzinfo=UTC)
STUDY = """\
study = "demo"
rubrics = ["overall_quality"]
templates = ["plain", "concise"]
[items]
path = "samples.csv"
[pairs]
repeats = 2
[[models]]
provider = "openai"
model = "gpt-5.4-mini"
thinking = ["none", "low"]
max_output_tokens = 100
"""


@pytest.fixture(scope="module", autouse=True)
def _no_lens() -> Iterator[None]:
    """What is looked at here are the lake's tables; a view is worked out when one is asked for."""
    with without_lens():
        yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty lake."""
    return Store.init(tmp_path / "lake", ManualClock(START))


def written(folder: Path, n_items: int = 5, text: str = STUDY, sample: str = "text of {}") -> Study:
    """Write a study and its items, and load it."""
    rows = "".join(f"s{number:03d},{sample.format(number)}\n" for number in range(n_items))
    (folder / "samples.csv").write_text("id,text\n" + rows)
    (folder / "study.toml").write_text(text)
    return load(folder / "study.toml")


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Run SQL over the lake's tables."""
    with connect(store, ("requests", "plan", "items", "studies", "rubrics", "templates")) as connection:
        return connection.execute(sql).fetchall()


def tree(store: Store) -> dict[str, tuple[int, int]]:
    """Return every file of the lake but the lock, with size and time."""
    files = [path for path in store.path.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_a_plan_is_complete(store: Store, tmp_path: Path) -> None:
    """Every cell, pair, direction and repeat has its row, and every row its request with the body it names."""
    report = plan_study(store, written(tmp_path), modules=modules)
    assert (report.n_items, report.n_pairs, report.n_cells) == (5, 10, 4)
    assert report.n_plan_rows == report.n_requests == report.n_new == report.n_to_ask == 10 * 2 * 2 * 4
    assert (report.n_shared, report.n_answered_already, report.n_in_shards, report.n_shards) == (0, 0, 0, 1)
    joined = """
        select count(*), count(distinct slot), min(slot), max(slot), count(distinct p.request_id),
            bool_and(r.provider = p.provider and r.endpoint = p.endpoint and r.repeat_no = p.repeat_no),
            bool_and((p.item_first < p.item_second) = p.is_lo_first), count(distinct pair_id),
            bool_and(octet_length(encode(r.body)) = r.size_bytes)
        from plan p join requests r using (request_id)"""
    assert rows(store, joined) == [(160, 160, 0, 159, 160, True, True, 10, True)]
    reversed_rows = """
        select count(*) from plan f join plan r on r.cell_id = f.cell_id and r.pair_id = f.pair_id
            and r.repeat_no = f.repeat_no and f.direction = 'forward' and r.direction = 'reverse'
            and r.item_first = f.item_second and r.item_second = f.item_first"""
    assert rows(store, reversed_rows) == [(80,)]
    body, request_id, repeat_no = rows(store, "select body, request_id, repeat_no from requests")[7]
    assert request_id == ids.request_id("openai", CHAT, "gpt-5.4-mini", body.encode(), repeat_no)
    assert body == orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS).decode()


def test_the_inputs_are_in_the_lake_by_content(store: Store, tmp_path: Path) -> None:
    """Items, rubrics, templates and the study's answer rule are stored, and plan rows refer to them."""
    report = plan_study(store, written(tmp_path), modules=modules)
    missing = """
        select count(*) from plan
        where not exists (select 1 from templates t where t.template_hash = plan.template_hash)
            or not exists (select 1 from rubrics r where r.rubric_hash = plan.rubric_hash)
            or not exists (select 1 from items i where item_hash = item_first_hash and item_id = item_first)
            or not exists (select 1 from items i where item_hash = item_second_hash and item_id = item_second)"""
    assert rows(store, missing) == [(0,)]
    [(name, version, parsers, n_rows)] = rows(store, "select study, study_version, parsers, n_plan_rows from studies")
    assert (name, version, n_rows) == ("demo", report.study_version, 160)
    [(parser_id, spec)] = json.loads(parsers).items()
    tasks.rule_of(spec)
    assert rows(store, "select distinct parser_id, task, mode, round_no, unit_id from plan") == [
        (parser_id, "pairwise", "batch", 1, "")
    ]


def test_planning_again_writes_nothing(store: Store, tmp_path: Path) -> None:
    """The lake's files stay as they are, to the byte and the second, and the report says so."""
    study = written(tmp_path)
    first = plan_study(store, study, modules=modules)
    before = tree(store)
    second = plan_study(store, study, modules=modules)
    assert tree(store) == before
    assert (first.is_new_version, second.is_new_version) == (True, False)
    assert (second.n_new, second.n_requests, second.cost) == (0, first.n_requests, first.cost)
    assert not list((store.path / "_tmp").iterdir())


def test_a_changed_study_reuses_requests(store: Store, tmp_path: Path) -> None:
    """A new version has its own plan rows, adds only what is new, and going back is a new event, not new rows."""
    old = plan_study(store, written(tmp_path, 5), modules=modules)
    new = plan_study(store, written(tmp_path, 6), modules=modules)
    assert new.n_requests - old.n_requests == new.n_new == 5 * 2 * 2 * 4
    assert rows(store, "select count(*), count(distinct request_id) from requests") == [(240, 240)]
    assert rows(store, "select count(*), count(distinct item_hash) from items") == [(6, 6)]
    back = plan_study(store, written(tmp_path, 5), modules=modules)
    assert (back.n_new, back.is_new_version, back.study_version) == (0, True, old.study_version)
    planned = [event.study_version for event in EventLog(store).events]
    assert planned == [old.study_version, new.study_version, old.study_version]
    assert rows(store, "select count(*) from plan") == [(160 + 240,)]


def test_shared_requests_count_once(store: Store, tmp_path: Path) -> None:
    """Items of the same text give the same prompt: one request, several plan rows, one cost."""
    alone = plan_study(store, written(tmp_path, 2, sample="same"), modules=modules)
    assert (alone.n_plan_rows, alone.n_requests, alone.n_shared) == (16, 8, 8)
    both = plan_study(store, written(tmp_path, 4, sample="same"), modules=modules)
    assert (both.n_plan_rows, both.n_requests, both.n_shared, both.n_new) == (96, 8, 88, 0)
    assert both.cost == alone.cost
    assert rows(store, "select count(*), count(distinct request_id) from requests") == [(8, 8)]


def test_files_are_cut_by_rows_and_only_new_rows_are_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many small files: whole new ones, partly new ones and old ones together hold each request once."""
    monkeypatch.setattr("batchpond.plan.write.REQUEST_FILE_ROWS", 37)
    monkeypatch.setattr("batchpond.plan.write.PLAN_FILE_ROWS", 50)
    monkeypatch.setattr("batchpond.lake.schemas.ROW_GROUP_TEXT", 10)
    monkeypatch.setattr("batchpond.lake.schemas.ROW_GROUP_NARROW", 10)
    plan_study(store, written(tmp_path, 5), modules=modules)
    assert len(store.files("requests")) == -(-160 // 40)
    assert len(store.files("plan")) == -(-160 // 50)
    report = plan_study(store, written(tmp_path, 7), modules=modules)
    assert report.n_requests == 21 * 16
    assert rows(store, "select count(*), count(distinct request_id) from requests") == [(336, 336)]
    numbered = "select slot, row_number() over (partition by study_version order by slot) - 1 as expected from plan"
    assert rows(store, f"select bool_and(slot = expected) from ({numbered})") == [(True,)]


def test_what_is_answered_or_in_a_batch_is_not_asked_again(store: Store, tmp_path: Path) -> None:
    """Only matched successes count as answers; a request in a shard waits for that shard."""
    study = written(tmp_path)
    plan_study(store, study, modules=modules)
    names = [name for (name,) in rows(store, "select request_id from plan order by slot limit 10")]
    statuses = ["succeeded"] * 3 + ["errored"] * 2
    answers = [
        {name: None for name in RESPONSES.schema.names} | {"request_id": n, "status": s, "match": "matched"}
        for n, s in zip(names, statuses, strict=False)
    ]
    store.publish(RESPONSES, "p_reader=openai-1/x", [*answers, answers[0] | {"match": "duplicate"}])
    shard = [{"shard_id": "s", "line_number": k, "request_id": n, "request_key": n} for k, n in enumerate(names[:7])]
    store.publish(SHARD_REQUESTS, "p_provider=openai/s", shard)
    report = plan_study(store, study, modules=modules)
    assert (report.n_requests, report.n_answered_already, report.n_in_shards, report.n_to_ask) == (160, 3, 7, 153)
    assert sum(cell.n_to_ask for cell in report.cells) == sum(model.n_to_ask for model in report.models) == 153


def test_a_plan_is_the_same_however_few_are_counted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shared requests, old and new ones, some of them in a batch and answered."""
    found = []
    for at_once in (1 << 18, 60):
        monkeypatch.setattr(tables, "PART_ROWS", at_once)
        monkeypatch.setattr("batchpond.plan.write.REQUEST_FILE_ROWS", at_once)
        lake = Store.init(tmp_path / str(at_once), ManualClock(START))
        plan_study(lake, written(tmp_path, 4), modules=modules)
        names = [name for (name,) in rows(lake, "select distinct request_id from plan order by all")]
        answer = dict.fromkeys(RESPONSES.schema.names) | {"request_id": names[0], "status": "succeeded"}
        lake.publish(RESPONSES, "p_reader=openai-1/x", [answer | {"match": "matched"}])
        shard = [
            {"shard_id": "s", "line_number": k, "request_id": n, "request_key": n} for k, n in enumerate(names[:3])
        ]
        lake.publish(SHARD_REQUESTS, "p_provider=openai/s", shard)
        written(tmp_path, 6)
        with (tmp_path / "samples.csv").open("a") as file:
            file.write("again,text of 1\n")
        report = plan_study(lake, load(tmp_path / "study.toml"), modules=modules)
        found.append((report, sorted(rows(lake, "select request_id from requests"))))
    assert found[0] == found[1]
    assert (report.n_shared, report.n_answered_already, report.n_in_shards) == (88, 1, 3)


def test_cost_is_rough_and_unknown_stays_unknown(store: Store, tmp_path: Path) -> None:
    """Cells add up to the whole; a model without a known price makes the whole unknown, with the way out."""
    report = plan_study(store, written(tmp_path), modules=modules)
    assert report.caveats == ("openai: answers are toys",)  # once in a lake
    assert report.cost.low_usd is not None
    assert report.cost.expected_usd == pytest.approx(sum(cell.cost.expected_usd or 0 for cell in report.cells))
    assert report.estimated_input_tokens == sum(cell.estimated_input_tokens for cell in report.cells) > 0
    more = STUDY + '[[models]]\nprovider = "openai"\nmodel = "not-a-model"\n'
    report = plan_study(store, written(tmp_path, text=more), modules=modules)
    assert (report.cost.low_usd, report.cost.expected_usd, report.cost.worst_usd) == (None, None, None)
    assert report.cost.known_expected_usd == pytest.approx(report.models[0].cost.expected_usd)  # what is known of it
    assert [model.cost == UNKNOWN for model in report.models] == [False, True]
    assert any("no batch price is known for openai/not-a-model" in note for note in report.notes)
    (store.path / "config.toml").write_text('[prices."openai/not-a-model"]\ninput = 1\noutput = 1\n')
    report = plan_study(store, written(tmp_path, text=more), modules=modules)
    assert report.cost.expected_usd is not None
    assert report.cost.worst_usd is None
    assert "without max_output_tokens the worst cost is unknown" in report.notes
    assert report.notes[0] == "openai: not-a-model is a toy"
    assert report.caveats == ()


@pytest.mark.parametrize(
    ("shards", "expected"),
    [("max_requests = 30", 6), ("segments = 3", 3), ("per_cell = true", 4), ("per_cell = true\nsegments = 3", 12)],
)
def test_shards_are_counted(store: Store, tmp_path: Path, shards: str, expected: int) -> None:
    """160 requests of one model in four cells of 40."""
    report = plan_study(store, written(tmp_path, text=f"{STUDY}[shards]\n{shards}\n"), modules=modules)
    assert report.n_shards == sum(model.n_shards for model in report.models) == expected


def test_a_request_that_no_batch_can_hold_is_refused(store: Store, tmp_path: Path) -> None:
    """The limit is the provider's; the study does not become the newest version."""
    with pytest.raises(UsageError, match="one batch holds 1,000"):
        plan_study(store, written(tmp_path), modules=lambda _: ToyModule(max_bytes=1_000))
    assert EventLog(store).events == []
    assert not any(database.listed(store.path).values())
    assert not list((store.path / "_tmp").iterdir())


def test_items_can_come_from_the_lake(store: Store, tmp_path: Path) -> None:
    """SQL on the lake's own tables feeds a second study."""
    plan_study(store, written(tmp_path), modules=modules)
    text = STUDY.replace('"demo"', '"second"').replace(
        'path = "samples.csv"', 'sql = "select item_id as id, text from items"'
    )
    report = plan_study(store, written(tmp_path, text=text), modules=modules)
    assert (report.n_items, report.n_new, report.n_requests) == (5, 0, 160)


def test_dropped_combinations_are_reported(store: Store, tmp_path: Path) -> None:
    """A study that says drop plans the rest."""
    text = STUDY.replace('"low"', '"high"')
    with pytest.raises(StudyError, match="does not think that high"):
        plan_study(store, written(tmp_path, text=text), modules=modules)
    report = plan_study(store, written(tmp_path, text=text + '[grid]\nunsupported = "drop"\n'), modules=modules)
    assert [dropped.thinking for dropped in report.dropped] == ["high"]
    assert report.n_cells == 2


def test_another_writer_stops_it_before_anything_is_written(store: Store, tmp_path: Path) -> None:
    """A lake that is being written to is left alone."""
    study = written(tmp_path)
    with store.lock("a test"), pytest.raises(BusyError, match="a test"):
        plan_study(store, study, modules=modules)
    assert store.files("requests") == []


@pytest.mark.parametrize("n_publications", range(8))
def test_a_plan_killed_at_any_publication_is_completed_by_the_next(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_publications: int
) -> None:
    """Whatever was published before the end is used, nothing is there twice, and the result is the same."""
    study = written(tmp_path)
    whole = plan_study(Store.init(tmp_path / "other", ManualClock(START)), study, modules=modules)
    publish_file, left = Store.publish_file, [n_publications]

    def dying(self: Store, *arguments: Any) -> bool:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return publish_file(self, *arguments)

    monkeypatch.setattr(Store, "publish_file", dying)
    if n_publications < 7:
        with pytest.raises(KeyboardInterrupt):
            plan_study(store, study, modules=modules)
    monkeypatch.undo()
    assert plan_study(store, study, modules=modules).study_version == whole.study_version
    assert rows(store, "select count(*), count(distinct slot) from plan") == [(160, 160)]
    for table, count in (("requests", 160), ("items", 5), ("templates", 2), ("rubrics", 1), ("studies", 1)):
        assert rows(store, f"select count(*) from {table}") == [(count,)]
    assert len(EventLog(store).events) == 1


def test_memory_is_bounded(tmp_path: Path) -> None:
    """30,000 requests of 2 KB are planned well below 400 MB; the bodies alone are 60 MB."""
    written(
        tmp_path,
        123,
        STUDY.replace("repeats = 2", "reverse = 1.0").replace('["none", "low"]', '"low"'),
        "x" * 800 + "{}",
    )
    program = (
        "from pathlib import Path; from tests.rigs.toy_provider import modules; "
        "from batchpond.lake.store import Store; "
        "from batchpond.plan.verb import plan_study; from batchpond.study.file import load; "
        "report = plan_study(Store.init(Path('lake')), load(Path('study.toml')), modules=modules); "
        # Not ru_maxrss: a child inherits the peak of the process that started it.
        "peak = next(line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')); "
        "print(report.n_new, int(peak.split()[1]) // 1024)"
    )
    paths = [str(Path(__file__).parents[3]), str(Path(write.__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    n_new, peak_mb = map(int, done.stdout.split())
    assert n_new == 123 * 122 * 2
    assert peak_mb < 400


def test_every_table_reads_in_plain_duckdb(store: Store, tmp_path: Path) -> None:
    """Each planned row once, from the files alone."""
    plan_study(store, written(tmp_path), modules=modules)
    for table, count in (("plan", 160), ("requests", 160), ("studies", 1)):
        found = duckdb.sql(f"select count(*) from '{store.path}/{table}/**/*.parquet'").fetchall()
        assert found == [(count,)]
