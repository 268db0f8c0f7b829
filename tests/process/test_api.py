"""The Python door: pinned names, lazy frames over real files, the sandbox."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import batchpond
from batchpond.errors import LakeError, UsageError
from batchpond.lake.schemas import IMPORTED_JUDGMENTS, ITEMS, TABLES
from batchpond.lake.store import Store
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study
from tests.rigs.sim_providers import SIMULATED


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


def publish_items(store: Store, name: str, *ids: str) -> None:
    """Publish items without metadata."""
    rows = [{"item_hash": f"h{i}", "item_id": i, "text": f"text of {i}", "metadata": None} for i in ids]
    store.publish(ITEMS, name, rows)


def publish_judgment(store: Store, name: str, study: str, verdict: str | None, outcome: str) -> None:
    """Publish one imported judgment."""
    row = dict.fromkeys(IMPORTED_JUDGMENTS.schema.names)
    row |= {"import_key": name, "study": study, "template_id": "t", "rubric_id": "r", "provider": "p"}
    row |= {"request_model": "m", "thinking": "none", "unit_id": "", "item_first": "a", "item_second": "b"}
    row |= {"repeat_no": 1, "verdict": verdict, "outcome": outcome, "source": "test"}
    store.publish(IMPORTED_JUDGMENTS, name, [row])


def test_public_names_are_pinned() -> None:
    """What the package exports is exactly this, and all of it is there."""
    assert batchpond.__all__ == [
        "Adoption", "Attempt", "Browsing", "CancelReport", "CellReport", "Counts", "Estimate", "FailureCount",
        "Finding", "ForeignReport", "FoundBatch", "ImportReport", "Lake", "LaneProgress", "LiveReport", "ModelCost",
        "ModelReport", "Note", "PlanReport", "Question", "RecoverReport", "Report", "RetryReport", "Sheet",
        "StageReport", "Stratum", "Study", "SubmitPreview", "SubmitReport", "SyncReport", "__version__", "errors",
        "progress",
    ]  # fmt: skip
    assert all(getattr(batchpond, name) is not None for name in batchpond.__all__)
    assert dir(batchpond) == batchpond.__all__
    stub = Path(batchpond.__file__).with_suffix(".pyi").read_text()  # what editors and type checkers read
    assert sorted([*re.findall(r"(\w+) as \1", stub), "__version__"]) == batchpond.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy door opens only on what is there."""
    with pytest.raises(AttributeError, match="Pond"):
        batchpond.Pond  # noqa: B018


def test_importing_the_package_is_light() -> None:
    """`import batchpond` alone loads no engine."""
    script = (
        "import sys, batchpond; sys.exit(' '.join({'duckdb', 'polars', 'pyarrow', 'httpx'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_a_missing_lake_is_a_usage_error(tmp_path: Path) -> None:
    """Making the object touches nothing; using it says that there is no lake."""
    lake = batchpond.Lake(tmp_path / "none")
    with pytest.raises(UsageError, match="not a lake"):
        lake.sql("select 1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_scans_with_its_columns(table: str, store: Store) -> None:
    """Every table is a typed, empty frame before its first row."""
    frame = batchpond.Lake(store.path).scan(table).collect()
    assert frame.height == 0
    assert frame.columns == TABLES[table].schema.names


def test_scan_reads_published_files_and_nothing_else(store: Store) -> None:
    """Rows come from published files; staged and foreign files are not data; folders add no column."""
    publish_items(store, "p_x=1/a", "a", "b")
    publish_items(store, "p_x=2/b", "c")
    (store.path / "items" / "note.txt").write_text("not data")
    with store.staging(ITEMS) as staged:
        staged.write([{"item_hash": "z", "item_id": "z", "text": "", "metadata": None}])
    frame = batchpond.Lake(store.path).scan("items").collect()
    assert sorted(frame["item_id"]) == ["a", "b", "c"]
    assert frame.columns == ITEMS.schema.names


def test_an_unknown_table_names_the_known_ones(store: Store) -> None:
    """A misspelt table is an error with the list."""
    with pytest.raises(UsageError, match="itms") as caught:
        batchpond.Lake(store.path).scan("itms")
    assert "items" in (caught.value.hint or "")


def test_sql_returns_polars_and_stays_in_the_sandbox(store: Store) -> None:
    """A SELECT gives a frame; anything that reaches out is refused."""
    publish_items(store, "a", "a", "b")
    lake = batchpond.Lake(store.path)
    assert lake.sql("select count(*) as n from items").item() == 2
    for attack in ("select * from read_text('/etc/passwd')", "copy items to '/tmp/x'", "set threads = 1"):
        with pytest.raises(UsageError):
            lake.sql(attack)


def test_an_interval_is_a_usage_error_that_says_what_to_ask(store: Store) -> None:
    """Polars has no such type; a number of seconds it has."""
    with pytest.raises(UsageError, match="column t is an INTERVAL") as caught:
        batchpond.Lake(store.path).sql("select interval 1 day as t")
    assert "date_diff" in (caught.value.hint or "")
    asked = "select date_diff('second', now(), now() + interval 1 day) as t"
    assert batchpond.Lake(store.path).sql(asked).item() == 86_400


def test_views_are_lazy_and_pushed_down(store: Store) -> None:
    """A view's frame takes filters, columns and limits, can be joined with itself and read twice."""
    for name, study, verdict in (("k1", "s1", "first"), ("k2", "s1", "second"), ("k3", "s2", None)):
        publish_judgment(store, name, study, verdict, "decided" if verdict else "refused")
    frame = batchpond.Lake(store.path).view("imported_judgments")
    assert isinstance(frame, pl.LazyFrame)
    assert frame.select(pl.len()).collect().item() == 3
    assert frame.filter(pl.col("study") == "s1").select("verdict").collect()["verdict"].sort().to_list() == [
        "first", "second",
    ]  # fmt: skip
    assert frame.filter(pl.col("outcome") == "refused").head(1).collect()["import_key"].to_list() == ["k3"]
    assert frame.head(2).collect().height == 2
    assert frame.join(frame, on="import_key").select(pl.len()).collect().item() == 3


def test_results_of_an_empty_lake_have_their_columns(store: Store) -> None:
    """No results is a frame with no rows; of a study that there is not it is an error."""
    lake = batchpond.Lake(store.path)
    assert lake.results().collect().height == 0
    assert {"study", "verdict", "outcome", "origin"} <= set(lake.results().collect_schema().names())
    with pytest.raises(UsageError, match="no study 'nope'"):
        lake.results("nope").collect()


def test_an_unknown_view_is_a_usage_error(store: Store) -> None:
    """A name that is no view never reaches SQL."""
    with pytest.raises(UsageError, match="no view"):
        batchpond.Lake(store.path).view('results" ; drop table x --')


def test_a_file_that_breaks_under_a_reader_is_a_lake_error(store: Store) -> None:
    """Damage in the middle of a file is named as damage."""
    publish_items(store, "a", *(f"id{i}" for i in range(2_000)))
    path = store.files("items")[0]
    data = bytearray(path.read_bytes())
    data[100:4_000] = b"\xff" * min(3_900, len(data) - 100 - 2_000)
    path.write_bytes(data)
    with pytest.raises(LakeError, match="items could not be read"):
        batchpond.Lake(store.path).view("items").collect()


def test_submit_without_consent_is_refused(store: Store) -> None:
    """Nobody spends by default: neither an amount nor a question is an error before anything is read."""
    with pytest.raises(UsageError, match="agreed"):
        batchpond.Lake(store.path).submit("demo")


def test_schema_of_a_frame_is_the_lakes(store: Store) -> None:
    """Types in polars are those on disk, the time zone included."""
    schema = batchpond.Lake(store.path).scan("events").collect_schema()
    assert schema["occurred_at"] == pl.Datetime("us", "UTC")
    assert pa.types.is_timestamp(TABLES["events"].schema.field("occurred_at").type)


def test_no_verb_of_the_door_leaves_a_connection_to_the_garbage_collector(tmp_path: Path) -> None:
    """Plan, submit and sync close every connection that they opened, so that `-W error` says nothing."""
    script = (
        "import gc, sys, batchpond\n"
        "lake = batchpond.Lake(sys.argv[1])\n"
        "lake.plan(sys.argv[2])\n"
        "lake.submit(sys.argv[3], confirm=lambda _: True)\n"
        "lake.sync()\n"
        "gc.collect()\n"
    )
    openai = SIMULATED["openai"]
    with server.running(Settings(seed=1), tmp_path / "world") as simulator:
        address = {openai.url_env: simulator.base_url_of("openai"), openai.key_env: "sk-simulated"}
        command = [sys.executable, "-W", "error::ResourceWarning", "-c", script]
        done = subprocess.run(
            [*command, tmp_path / "lake", write_study(tmp_path), STUDY],
            env=os.environ | address,
            check=True,
            capture_output=True,
            timeout=120,
        )
    assert b"ResourceWarning" not in done.stderr


def test_opening_a_lake_loads_no_engine() -> None:
    """polars, numpy, pyarrow and DuckDB are loaded by the first verb that needs them."""
    program = "import sys, batchpond; batchpond.Lake(); print(sorted(set(sys.argv[1:]) & set(sys.modules)))"
    engines = ["duckdb", "numpy", "polars", "pyarrow", "httpx"]
    done = subprocess.run([sys.executable, "-c", program, *engines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
