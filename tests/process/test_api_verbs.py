"""Every verb of the Python door, over loopback HTTP against the simulator: what the commands do, and typed results."""

from __future__ import annotations

import csv
import inspect
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest

import batchpond
from batchpond.clock import Work
from batchpond.errors import BusyError, StudyError, UsageError
from batchpond_sim.host import server
from batchpond_sim.host.server import Running
from batchpond_sim.world.world import Settings
from tests.rigs.sim_inputs import STUDY, write_study
from tests.rigs.sim_providers import SIMULATED

MODEL = "gpt-4.1-mini"


@pytest.fixture
def simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    openai = SIMULATED["openai"]
    with server.running(Settings(seed=1, latency_s=(0.0, 0.05)), tmp_path / "world") as running:
        monkeypatch.setenv(openai.url_env, running.base_url_of("openai"))
        monkeypatch.setenv(openai.key_env, "sk-simulated")
        yield running


@pytest.fixture
def lake(tmp_path: Path, simulator: Running) -> batchpond.Lake:
    """A lake with a planned study of one model."""
    lake = batchpond.Lake(tmp_path / "lake")
    lake.plan(write_study(tmp_path, models=(MODEL,), max_requests=50))
    return lake


def collect(lake: batchpond.Lake) -> batchpond.SyncReport:
    """Sync until nothing is pending."""
    ends_at = time.monotonic() + 30
    while (report := lake.sync()).n_pending:
        assert time.monotonic() < ends_at, report
        time.sleep(0.02)
    return report


def test_a_study_goes_its_whole_way(lake: batchpond.Lake, tmp_path: Path) -> None:
    """Plan, waits, submit, sync, status, audit, doctor, report, export: each says what its command says."""
    (wait,) = lake.waits(STUDY)
    assert "submit" in wait["text"]
    assert lake.status(STUDY)["n_unsent"].to_list() == [12]
    submitted = lake.submit(STUDY, confirm=lambda preview: preview.n_requests == 12)
    assert isinstance(submitted, batchpond.SubmitReport)
    collect(lake)
    assert lake.waits(STUDY) == []
    assert lake.status()["n_answered"].to_list() == [12]
    assert lake.audit(STUDY)["is_balanced"].to_list() == [True]
    assert {found.check for found in lake.doctor(deep=True)} >= {"lake", "rights"}
    report = lake.report(STUDY, tmp_path / "report.md")
    assert isinstance(report, batchpond.Report)
    assert (tmp_path / "report.md").read_text().startswith("# ")
    with pytest.raises(UsageError, match=r"report\.md"):
        lake.report(STUDY, tmp_path / "report.md")
    (written,) = lake.export(tmp_path / "results.parquet")
    assert pl.read_parquet(written).height == 12
    with pytest.raises(UsageError, match="'xlsx' is no format"):
        lake.export(tmp_path / "results.xlsx")


def test_an_unknown_study_is_an_error_of_every_look(lake: batchpond.Lake) -> None:
    """No empty frame is an answer about a study that is not there."""
    for look in (lake.status, lake.audit, lake.waits):
        with pytest.raises(UsageError, match="nope"):
            look("nope")


def test_what_failed_is_asked_again_when_somebody_agrees(lake: batchpond.Lake, simulator: Running) -> None:
    """Retry wants consent as submit does, takes classes by name, and asks only what failed so."""
    simulator.world.add_fault("lines@1:error_rows=2")
    lake.submit(STUDY, max_cost_usd=5)
    collect(lake)
    (row,) = lake.status(STUDY).iter_rows(named=True)
    assert row["n_failed"] == 2
    with pytest.raises(UsageError, match="agreed"):
        lake.retry(STUDY)
    with pytest.raises(UsageError, match="'slow' is no class of failures"):
        lake.retry(STUDY, classes=["slow"], max_cost_usd=5)
    shown = lake.retry(STUDY, dry_run=True)
    assert isinstance(shown, batchpond.RetryReport)
    assert shown.submitted.counts is None
    lake.retry(STUDY, confirm=lambda preview, failures: preview.n_requests == 2 and len(failures) > 0)
    collect(lake)
    assert lake.status(STUDY)["n_answered"].to_list() == [12]


def test_a_batch_is_cancelled_and_its_attempt_given_up(lake: batchpond.Lake, simulator: Running) -> None:
    """Cancel and resolve name batches as the commands do; what nobody may say is refused."""
    simulator.world.settings = replace(simulator.world.settings, latency_s=(3600.0, 3600.0))
    lake.submit(STUDY, max_cost_usd=5)
    (attempt_id,) = lake.audit(STUDY)["attempt_id"]
    with pytest.raises(UsageError, match="nobody else"):
        lake.resolve(attempt_id, "found")
    with pytest.raises(UsageError, match="'gone' is no resolution"):
        lake.resolve(attempt_id, "gone")
    with pytest.raises(UsageError, match="--absent is for one that is"):
        lake.resolve(attempt_id, "absent")
    assert [asked[:6] for asked in lake.cancel(attempt_id).asked] == ["batch_"]
    collect(lake)
    assert lake.status(STUDY)["n_failed"].to_list() == [12]


def test_a_batch_of_another_lake_is_adopted_by_what_it_holds(lake: batchpond.Lake, tmp_path: Path) -> None:
    """The same study in a second lake takes the first one's batch in, and buys nothing."""
    lake.submit(STUDY, max_cost_usd=5)
    collect(lake)
    batch_id = lake.sql("select batch_id from batches").item()
    other = batchpond.Lake(tmp_path / "other")
    other.plan(tmp_path / "study.toml")
    adopted = other.adopt(batch_id, provider="openai", study=STUDY)
    assert (adopted.is_new, adopted.attempt.batch_id) == (True, batch_id)
    collect(other)
    assert other.status(STUDY)["n_answered"].to_list() == [12]


def test_people_label_what_judges_judged(lake: batchpond.Lake, tmp_path: Path) -> None:
    """A sheet is drawn, filled in, and read back; the labels are judgments of a person."""
    lake.submit(STUDY, max_cost_usd=5)
    collect(lake)
    sheet = lake.label(STUDY, tmp_path / "labels.csv", n=4, by="random")
    assert isinstance(sheet, batchpond.Sheet)
    with open(tmp_path / "labels.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(row | {"label": "1"} for row in rows)
    report = lake.import_labels(tmp_path / "labels.csv", rater="ada")
    assert report.judgments.n_new == 4
    assert lake.sql("select count(*) from pair_judgments where provider = 'human'").item() == 4


def test_judgments_are_imported_from_a_frame_as_from_a_file(tmp_path: Path) -> None:
    """What a frame holds is in the metrics; the same frame again is nothing new, and a wrong one names its rows."""
    frame = pl.DataFrame(
        {"item_first": ["a", "b"], "item_second": ["b", "a"], "verdict": ["first", "second"], "request_model": "m",
         "template_id": "t", "rubric_id": "r", "provider": "p"}
    )  # fmt: skip
    lake = batchpond.Lake(tmp_path / "lake")
    assert lake.import_judgments(frame, study="mine").n_new == 2
    for same in (frame, frame.to_pandas(), frame.to_arrow()):
        assert lake.import_judgments(same, study="mine").n_known == 2
    with pytest.raises(UsageError, match="list is no frame"):
        lake.import_judgments([1, 2], study="mine")  # type: ignore[arg-type]
    frame.write_csv(tmp_path / "same.csv")
    assert lake.import_judgments(tmp_path / "same.csv", study="mine").n_known == 2
    assert lake.sql("select consistency_decided from metric_consistency").item() == 1.0
    with pytest.raises(UsageError, match="verdict"):
        lake.import_judgments(frame.with_columns(verdict=pl.lit("perhaps")), study="mine")


def test_what_another_tool_left_comes_in_as_by_the_command(tmp_path: Path) -> None:
    """Defaults fill in what its files do not say; an unknown tool, column or doubt is an error and makes no lake."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "batch_01_results.csv").write_text(
        "custom_id,ID1,ID2,model,status_code,better_id,content\n"
        "EXP_S01_vs_S02,S01,S02,gpt-4o,200,S01,<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>\n"
    )
    lake = batchpond.Lake(tmp_path / "lake")
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("lmarena", {}, "nothing reads files of 'lmarena'"),
        ("pairwisellm", {"defaults": {"judge": "x"}}, "is not COLUMN=VALUE"),
        ("pairwisellm", {"accept": ["everything"]}, "no kind that a person can answer for"),
    ]
    for tool, given, problem in wrong:
        with pytest.raises(UsageError, match=problem):
            lake.import_(tool, tmp_path / "old", **given)
    assert not lake.path.exists()
    given = {"template_id": "test1", "provider": "openai"}
    report = lake.import_("pairwisellm", tmp_path / "old", study="essays", defaults=given)
    assert isinstance(report, batchpond.ForeignReport)
    assert lake.sql("select template_id, verdict from imported_judgments").row(0) == ("test1", "first")


def test_pages_are_served_until_they_are_closed(lake: batchpond.Lake, tmp_path: Path) -> None:
    """The address answers with the lake's studies, a notebook shows it as a link, and afterwards nobody answers."""
    with lake.browse(rater="ada") as pages:
        assert isinstance(pages, batchpond.Browsing)
        assert pages._repr_html_().startswith(f'<a href="{pages.address}"')
        assert STUDY in httpx.get(pages.address, follow_redirects=True).text
        assert pages.n_waiting() == 0
    pages.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(pages.address)
    assert lake.bundle(tmp_path / "pages") == len(list((tmp_path / "pages").glob("*.html")))


def test_long_work_is_shown_as_bars(capsys: pytest.CaptureFixture[str]) -> None:
    """What takes more than a second has a bar with its name, unit and total; what is over at once has none."""
    with batchpond.progress():
        with Work("at once", "requests", 2) as short:
            short.add(2)
        with Work("writing", "requests", 3) as work:
            work.add()
            time.sleep(1.1)
            work.add(2)
    with Work("unheard", "requests", 1) as work:
        work.add()
    shown = capsys.readouterr().err
    assert "writing: 100%" in shown
    assert "3.00/3.00" in shown
    assert "at once" not in shown
    assert "unheard" not in shown


def test_live_calls_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulator: Running) -> None:
    """Live models of an approved study are asked until nothing is left."""
    path = write_study(tmp_path, models=(MODEL,))
    path.write_text(path.read_text().replace(f'model = "{MODEL}"', f'model = "{MODEL}"\nmode = "live"'))
    lake = batchpond.Lake(tmp_path / "lake")
    lake.plan(path)
    lake.submit(STUDY, max_cost_usd=5)
    report = lake.live(STUDY, concurrency=4)
    assert isinstance(report, batchpond.LiveReport)
    assert report.n_left == 0
    assert lake.status(STUDY)["n_answered"].to_list() == [12]
    with pytest.raises(UsageError, match="'ask' is no way to treat a doubt"):
        lake.live(on_doubt="ask")


def test_a_notebook_shows_plans_previews_and_passes_as_tables(lake: batchpond.Lake, tmp_path: Path) -> None:
    """Fields and the records in them, nothing of it markup, long lists cut."""
    planned = lake.plan(tmp_path / "study.toml")
    shown = planned._repr_html_()
    assert "<th>n_to_ask</th><td>12</td>" in shown
    assert MODEL in shown
    assert shown.count("<table>") == shown.count("</table>") > 3
    preview = lake.submit(STUDY, dry_run=True).preview
    assert preview._repr_html_().startswith("<table>")
    assert "<script" not in batchpond.SubmitPreview("<script>", "v", (), ("a",) * 60)._repr_html_()
    assert "and 10 more" in batchpond.SubmitPreview("s", "v", (), ("a",) * 60)._repr_html_()
    assert "n_pending" in lake.sync()._repr_html_()
    retried = batchpond.RetryReport((), lake.submit(STUDY, dry_run=True))._repr_html_()
    assert "<th>failures</th>" in retried
    assert f"<th>study</th><td>{STUDY}</td>" in retried


def test_all_that_a_lake_returns_is_shown_in_a_notebook() -> None:
    """Every public record, by the annotations of the methods; a list, a path and a mapping show themselves."""
    verbs = [verb for name, verb in inspect.getmembers(batchpond.Lake, inspect.isfunction) if not name.startswith("_")]
    named = {word for verb in verbs for word in re.findall(r"[A-Z]\w+", str(verb.__annotations__["return"]))}
    records = named - {"Any", "DataFrame", "LazyFrame", "Path", "Finding"}
    assert {"RetryReport", "ForeignReport", "Sheet", "Report"} <= records
    assert {name for name in records if not hasattr(getattr(batchpond, name), "_repr_html_")} == set()


def test_a_notebook_shows_a_long_text_in_part() -> None:
    """A picture of a sheet is megabytes of letters."""
    picture = batchpond.Question("k", "", "", ("text",), ("1", "2"), (("data:" + "x" * 9_000,),))
    shown = batchpond.Sheet("s", [picture], 1, 0, {"flip": 1})._repr_html_()
    assert "flip" in shown
    assert len(shown) < 2_000


def test_a_study_of_objects_asks_what_the_same_study_file_asks(tmp_path: Path) -> None:
    """Frames in place of files, the same schema: the same version, requests and errors; saved, it is that file."""
    write_study(tmp_path / "files", models=(MODEL,), max_requests=50)
    items = pl.read_csv(tmp_path / "files" / "items.csv")
    tables = {
        "seed": 3, "pairs": {"order": "random", "reverse": 1.0}, "shards": {"max_requests": 50},
        "rubrics": [{"use": "overall_quality"}], "templates": [{"use": "plain"}],
        "models": [{"provider": "openai", "model": MODEL, "max_output_tokens": 200}],
    }  # fmt: skip
    of_files = batchpond.Lake(tmp_path / "lake").plan(tmp_path / "files" / "study.toml")
    for frame in (items, items.to_arrow(), {"path": items.rename({"id": "name"}), "id": "name", "text": "text"}):
        study = batchpond.Study(STUDY, items=frame, **tables)
        planned = batchpond.Lake(tmp_path / "lake").plan(study)
        assert (planned.n_new, planned.n_requests) == (0, of_files.n_requests)
        if not isinstance(frame, dict):
            assert planned.study_version == of_files.study_version
    path = study.save(tmp_path / "saved")
    assert path.read_text() == study.to_toml()
    assert sorted(file.name for file in (tmp_path / "saved").iterdir()) == ["items.parquet", "study.toml"]
    with pytest.raises(UsageError, match=r"items\.parquet"):
        study.save(tmp_path / "saved")
    assert batchpond.Lake(tmp_path / "lake").plan(path).study_version == planned.study_version
    with pytest.raises(UsageError, match="cannot say that"):
        batchpond.Study(STUDY, seed=None).to_toml()
    with pytest.raises(StudyError, match=r"Study\('demo'\)\.to_toml\(\):\d+.*modles"):
        batchpond.Lake(tmp_path / "other").plan(batchpond.Study(STUDY, items=items, modles=[]))
    assert not (tmp_path / "other").exists()


def test_a_study_of_any_kind_of_frame_is_the_same_plan(tmp_path: Path) -> None:
    """Arrow's and pandas' tables go in as polars' do: no request is new, and no version."""
    pandas = pytest.importorskip("pandas", reason="a study of a pandas frame is untested: pandas is not installed")
    texts = {"id": ["a", "b", "c"], "text": ["one", "two; three", "四"]}
    plans = [
        batchpond.Lake(tmp_path / "lake").plan(
            batchpond.Study(STUDY, items=items, rubrics=[{"use": "overall_quality"}], templates=[{"use": "plain"}],
                            models=[{"provider": "openai", "model": MODEL, "max_output_tokens": 200}])
        )
        for items in (pl.DataFrame(texts), pa.table(texts), pandas.DataFrame(texts))
    ]  # fmt: skip
    assert [planned.n_new for planned in plans] == [6, 0, 0]
    assert len({planned.study_version for planned in plans}) == 1


def test_any_thread_may_ask_and_of_two_writers_one_is_told_that_the_lake_is_busy(lake: batchpond.Lake) -> None:
    """Reads run beside each other and beside a sync; what two syncs at once did is whole, and was bought once."""
    lake.submit(STUDY, max_cost_usd=5)

    def synced(_: int) -> str:
        try:
            lake.sync()
        except BusyError:
            return "busy"
        return "done"

    with ThreadPoolExecutor(8) as pool:
        ended = pool.map(synced, range(4))
        read = pool.map(lambda _: lake.sql("select count(*) from requests").item(), range(8))
        seen = pool.map(lambda _: lake.status(STUDY)["n_planned"].item(), range(8))
        assert (set(read), set(seen)) == ({12}, {12})
        assert "done" in set(ended) <= {"done", "busy"}
    collect(lake)
    assert lake.status(STUDY)["n_answered"].to_list() == [12]
    assert lake.sql("select count(*) from batches").item() == 1
