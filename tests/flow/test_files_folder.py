"""The folder of mode `files`: where it is, what is wrong with it, and what lies in it that does not belong there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.errors import ExitCode, UsageError
from batchpond.lake.attempts import Phase
from batchpond.lake.records import Resolution
from batchpond.lake.store import CONFIG
from batchpond.providers.shared.folder import Folder
from batchpond.run import told
from batchpond.run.resolve import resolve
from batchpond.run.session import Providers
from batchpond.study.prices import load_config
from tests.rigs.files_study import FilesRig, N, bring_home, new_rig

TMPFS = Path("/dev/shm")  # noqa: S108 - a file system other than the lake's


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned lake of one model."""
    rig = new_rig(tmp_path_factory.mktemp("planned"))
    rig.plan()
    return rig.lake


@pytest.fixture
def rig(planned: Path, tmp_path: Path) -> Iterator[FilesRig]:
    rig = new_rig(tmp_path)
    shutil.copytree(planned, rig.lake)
    yield rig
    rig.world.close()


@pytest.fixture
def sent(rig: FilesRig) -> FilesRig:
    """One batch of twelve requests lies in the outbox."""
    rig.submit()
    return rig


def test_a_folder_on_another_file_system(rig: FilesRig) -> None:
    """Files are staged inside the folder, since no link crosses file systems."""
    others = [path for path in (TMPFS, Path("/var/tmp")) if path.is_dir()]  # noqa: S108 - to hold a folder of its own
    elsewhere = [path for path in others if path.stat().st_dev != rig.lake.stat().st_dev]
    if not elsewhere:
        pytest.skip("no second file system here")
    folder = elsewhere[0] / f"batchpond-{os.getpid()}"
    folder.mkdir()
    try:
        rig.environment["BATCHPOND_FILES"] = str(folder)
        rig.submit()
        rig.work()
        rig.sync()
        assert (rig.only().phase, rig.only().intent.host) == (Phase.VERIFIED, f"files:{folder}")
    finally:
        shutil.rmtree(folder)


def test_a_folder_of_ones_own_must_exist(rig: FilesRig, tmp_path: Path) -> None:
    """A disk that is not mounted is one clear error; nothing is written where its mount should be."""
    folder = tmp_path / "not" / "mounted"
    rig.environment["BATCHPOND_FILES"] = str(folder)
    report = rig.submit()
    assert report.exit_code == ExitCode.FAILED
    assert any(f"{folder}: No such file or directory" in note for note in rig.notes)
    assert not folder.exists()
    folder.mkdir(parents=True)
    rig.clock.advance(1_000)
    rig.sync()
    rig.work()
    rig.sync()
    assert len(rig.answers()) == N


def test_a_folder_that_goes_away_is_one_error(tmp_path: Path) -> None:
    """While the folder is gone nothing is called lost, and a pass says it once for all batches."""
    rig = new_rig(tmp_path, max_requests=5)
    rig.plan()
    rig.submit()
    rig.folder.rename(tmp_path / "away")
    rig.notes.clear()
    rig.sync()
    assert len([note for note in rig.notes if "cannot be used" in note]) == 1
    (text,) = told.absent(rig.attempts(), rig.store())
    assert "is not there; batches that wait to be answered in it: 3" in text
    assert not any(attempt.not_found for attempt in rig.attempts())
    (tmp_path / "away").rename(rig.folder)
    rig.work()
    rig.sync()
    assert len(rig.answers()) == N


def test_requests_that_somebody_took_out_of_the_folder_are_not_said_to_wait_there(tmp_path: Path) -> None:
    """Whoever tidied the outbox is told by `status`, with the way out: given up as lost they are put there again."""
    rig = new_rig(tmp_path, max_requests=5)
    rig.plan()
    rig.submit()
    for path in rig.outbox.iterdir():
        path.unlink()
    waits, gone = told.waiting(rig.attempts(), rig.store())
    assert "3 files of requests wait to be answered in" in waits
    assert "3 of them cannot be answered, as somebody has taken the requests from" in gone
    assert "`batchpond resolve ATTEMPT --lost`" in told.NEXT_STEP
    for attempt in rig.attempts():
        resolve(rig.store(), attempt.attempt_id, Resolution.LOST, providers=rig.providers())
    rig.retry()
    assert len([*told.waiting(rig.attempts(), rig.store())]) == 1
    rig.work()
    rig.sync()
    assert len(rig.answers()) == N


def test_a_file_in_the_place_of_the_outbox_is_one_error(rig: FilesRig) -> None:
    """What cannot be a folder is said, and the batch is sent once it can."""
    rig.folder.mkdir()
    rig.outbox.write_text("")
    rig.submit()
    assert len([note for note in rig.notes if "cannot be used" in note]) == 1
    rig.outbox.unlink()
    rig.clock.advance(1_000)
    bring_home(rig)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_one_error(rig: FilesRig) -> None:
    """What cannot be written is said, and sent once it can."""
    rig.folder.mkdir()
    rig.folder.chmod(0o500)
    rig.submit()
    assert any("Permission denied" in note for note in rig.notes)
    rig.folder.chmod(0o700)
    bring_home(rig)


def test_another_file_of_that_name_is_not_overwritten(rig: FilesRig) -> None:
    """A file in the way stays as it is; the batch comes into being once it is moved."""
    rig.crash_at = "S5.before"
    rig.survive(rig.submit)
    rig.outbox.mkdir(parents=True)
    in_the_way = rig.outbox / f"{rig.token()}.jsonl"
    in_the_way.write_text("mine\n")
    rig.sync()
    assert any("is there with other content" in note for note in rig.notes)
    assert in_the_way.read_text() == "mine\n"
    in_the_way.unlink()
    bring_home(rig)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo, Path.mkdir])
def test_only_ordinary_files_are_read(sent: FilesRig, make) -> None:  # type: ignore[no-untyped-def]
    """A link, a pipe or a folder in the place of results is refused in words, and never followed or waited on."""
    path = sent.inbox / f"{sent.token()}.jsonl"
    make(path)
    sent.sync()
    assert sent.only().phase is Phase.OPEN
    assert any("is no ordinary file" in note for note in sent.notes)


def test_another_folder_is_refused_and_a_moved_lake_is_not(sent: FilesRig, tmp_path: Path) -> None:
    """Results are looked for where the requests were put; the lake's own folder moves with the lake."""
    (tmp_path / "other").mkdir()
    sent.environment["BATCHPOND_FILES"] = str(tmp_path / "other")
    assert sent.sync().exit_code == ExitCode.ACCESS
    assert any("live at files:./files" in note for note in sent.notes)
    del sent.environment["BATCHPOND_FILES"]
    sent.lake = sent.lake.rename(tmp_path / "moved")
    sent.work()
    sent.sync()
    assert sent.only().phase is Phase.VERIFIED


def test_the_folder_by_the_lakes_settings(rig: FilesRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`[files] folder` starts at the lake's folder; anything else there is refused by name."""
    for line in ("folder = 3", 'folder = ""', 'path = "x"'):
        (rig.lake / CONFIG).write_text(f"[files]\n{line}\n")
        with pytest.raises(UsageError, match="files"):
            load_config(rig.lake)
    (rig.lake / CONFIG).write_text('[files]\nfolder = "../shared"\n')
    monkeypatch.delenv("BATCHPOND_FILES", raising=False)
    wire = Providers.of_environment(rig.clock, rig.lake).get("openai@files")
    assert wire.host == f"files:{tmp_path}/shared"
    assert Folder.of(rig.lake / "files", rig.lake).host == "files:./files"
