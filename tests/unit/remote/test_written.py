"""What is written at an address: the files that would stand in a folder, each whole, and nobody's taken unless told."""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl
import pytest

from batchpond import Lake, Study
from batchpond.cli import main
from batchpond.clock import random_hex
from batchpond.errors import ExitCode, UsageError
from batchpond.lake import disk
from batchpond_remote.bucket import Bucket
from batchpond_report import build
from batchpond_report.parts import ChartKind, Exhibit, Figure, Report, Section
from tests.rigs import s3
from tests.rigs.clock import ManualClock
from tests.rigs.lakes import LakeBuilder
from tests.rigs.sim_study import START
from tests.unit.remote.test_bucket import OTHER


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches of one pairwise study."""
    lake = LakeBuilder(tmp_path_factory.mktemp("written") / "lake")
    pairs = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")]
    lake.plan([{"slot": n, "request_id": f"r{n}", "item_first": x, "item_second": y} for n, (x, y) in enumerate(pairs)])
    for attempt, requests in (("A1", ("r0", "r1")), ("A2", ("r2", "r3"))):
        lake.sent(attempt, f"S-{attempt}", list(requests))
        lines = [{"request_id": one, "outcome": "decided", "verdict": "first", "text": "one"} for one in requests]
        lake.lines(attempt, [line | {"origin": "batch"} for line in lines])
    lake.build()
    return lake.path


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/there"
    if request.param == "s3":
        request.getfixturevalue("shop")
        return "s3://bucket-one/there"
    return f"{OTHER}/{tmp_path.name}-{random_hex(4)}"


def found_at(url: str) -> dict[str, bytes]:
    bucket = Bucket(url, ManualClock(START))
    return {name: bucket.get(name) or b"" for name in bucket.objects()}


def found_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FOR_R = ("for-r", "--layout", "pairwisellm")
EXPORTS = (
    ("s3", ("results.csv",)),
    ("s3", ("studies.parquet", "--view", "studies")),
    ("s3", ("by-batch", "--per-batch", "--format", "jsonl")),
    ("s3", FOR_R),
    ("file", FOR_R),
    *([(OTHER, FOR_R)] if OTHER else []),
)


@pytest.mark.parametrize(("url", "words"), EXPORTS, indirect=["url"])
def test_an_export_stands_at_an_address_as_it_would_in_a_folder(
    lake: Path, tmp_path: Path, url: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A second one is refused, whatever it would have written; one that is forced replaces what has its names."""
    name, *more = words
    export = ("--lake", str(lake), "export")
    (tmp_path / "here").mkdir()
    assert main([*export, f"{tmp_path}/here/{name}", *more]) == ExitCode.DONE
    capsys.readouterr()
    assert main([*export, f"{url}/{name}", *more, "--json"]) == ExitCode.DONE
    out, said = capsys.readouterr()
    written = found_in(tmp_path / "here")
    assert found_at(url) == written
    assert [f"{url}/{one}" in out for one in written] == [True] * len(written)
    assert f"{url}/{name}" in said
    Bucket(url, ManualClock(START)).put(min(written), b"another's")
    assert main([*export, f"{url}/{name}", *more]) == ExitCode.USAGE
    assert f"{url}/{name} exists already" in capsys.readouterr().err
    assert found_at(url) == written | {min(written): b"another's"}
    assert main([*export, f"{url}/{name}", *more, "--force"]) == ExitCode.DONE
    assert found_at(url) == written


def test_reports_figures_pages_and_studies_take_addresses(lake: Path, tmp_path: Path, shop: s3.Shop) -> None:
    study = Study("s", items=pl.DataFrame({"id": ["a"], "text": ["b"]}))
    bars = pl.DataFrame({"label": ["a"], "value": [1.0], "group": ["b"]})
    figure = Figure("a-figure", "A", "of one", "select 1", bars, ChartKind.BARS, {name: name for name in bars.columns})
    exhibit = Exhibit("one", "A", "of one", "select 1", bars, (), bars, figure=figure)
    drawn = Report("s", "S", (), (Section("s", "S", (), (exhibit,)),), "")
    (tmp_path / "there").mkdir()
    for place in (tmp_path / "there", Path("s3://bucket-one/there")):
        build.write("a page", place / "report.html", force=False)
        assert build.write_figures(drawn, place / "figures", force=False)[0] == place / "figures" / "a-figure.svg"
        assert study.save(place / "study") == place / "study" / "study.toml"
    assert found_at("s3://bucket-one/there") == found_in(tmp_path / "there")
    n_files = Lake(lake).bundle("s3://bucket-one/pages", n_cases=1)
    there = found_at("s3://bucket-one/pages")
    assert "index.html" in there
    assert len([name for name in there if not name.startswith("static/")]) == n_files
    with pytest.raises(UsageError, match="s3://bucket-one/pages exists already"):
        Lake(lake).bundle("s3://bucket-one/pages")
    report = ("--lake", str(lake), "report", "demo", "--figures", "s3://bucket-one/figures", "-o")
    for more in (("s3://bucket-one/there/report.html",), ("s3://bucket-one/x.html", "--open")):
        shop.log.clear()
        assert main([*report, *more]) == ExitCode.USAGE
        assert {method for method, *_ in shop.log} <= {"HEAD"}


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_the_python_door_takes_an_address_too(lake: Path, url: str) -> None:
    assert Lake(lake).export(f"{url}/x.csv") == [Path(f"{url}/x.csv")]
    assert found_at(url)["x.csv"].startswith(b"study,")
    with pytest.raises(UsageError, match=f"{url}/x.csv exists already"):
        Lake(lake).export(f"{url}/x.csv")
    Lake(lake).export(f"{url}/x.csv", force=True)


def test_a_name_is_looked_at_before_the_work_and_taken_by_one_after_it(shop: s3.Shop) -> None:
    """Who comes in between keeps it, a large file's too; the folder around it is nobody's business."""

    def write(data: bytes) -> None:
        with disk.placed(Path("s3://bucket-one/a/x.csv"), force=False) as staged:
            staged.write_bytes(data)
            shop.objects["bucket-one/a/x.csv"] = b"first", START

    shop.objects["bucket-one/a/other.csv"] = shop.objects["bucket-one/a/x.csv.part"] = b"other", START
    for size in (3, 9 << 20):
        shop.objects.pop("bucket-one/a/x.csv", None)
        with pytest.raises(UsageError, match=r"s3://bucket-one/a/x.csv exists already"):
            write(b"x" * size)
        assert shop.objects["bucket-one/a/x.csv"][0] == b"first"
    shop.log.clear()
    with pytest.raises(UsageError):
        write(b"the work would be done for nothing")
    assert [method for method, *_ in shop.log] == ["HEAD"]


def test_of_a_folder_nothing_is_there_before_all_of_it_is_written(
    shop: s3.Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor after it failed; nothing waits on this machine then."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def write(two: bytes) -> None:
        with disk.destined(Path("s3://bucket-one/a/all"), force=False) as folder:
            (folder / "deep").mkdir(parents=True)
            (folder / "one").write_bytes(b"1")
            assert shop.objects == {}
            (folder / "deep" / "two").write_bytes(b"%d" % (1 / len(two) + 1))

    with pytest.raises(ZeroDivisionError):
        write(b"")
    assert shop.objects == {}
    assert list(tmp_path.iterdir()) == []
    write(b"2")
    assert {name: data for name, (data, _) in shop.objects.items()} == {
        "bucket-one/a/all/one": b"1", "bucket-one/a/all/deep/two": b"2",
    }  # fmt: skip


def test_what_the_store_refuses_is_one_clear_error(
    lake: Path, shop: s3.Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which call, and of which name; a put whose answer was lost is not taken for somebody else's."""
    export = ["--lake", str(lake), "export", "s3://bucket-one/a/x.csv"]
    for fault, what in (("HEAD", "look for"), ("PUT", "write")):
        shop.faults.append((fault, "x.csv", "denied"))
        assert main(export) == ExitCode.ACCESS
        out, said = capsys.readouterr()
        assert out == ""
        assert f"s3://bucket-one/a: may not {what} x.csv" in said
        assert shop.objects == {}
    shop.faults.append(("PUT", "x.csv", "lost_ack"))
    assert main(export) == ExitCode.DONE


def test_what_is_no_place_is_said_before_the_work(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address, says in (("https://host/x.csv", "is neither"), ("s3://x.csv", "names a bucket")):
        with pytest.raises(UsageError, match=says):
            Lake(lake).export(address)
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "batchpond_remote.bucket", raising=False)
    with pytest.raises(UsageError, match=r"`s3://b/x.csv` needs obstore") as caught:
        Lake(lake).export("s3://b/x.csv")
    assert caught.value.hint == "pip install 'batchpond[cluster]'"
    assert list(tmp_path.iterdir()) == []
