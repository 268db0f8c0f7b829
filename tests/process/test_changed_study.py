"""A study or its items, changed and not planned again: what is sent is what was planned, and that is said."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from batchpond.cli import main
from batchpond.cli.init import EXAMPLES
from batchpond.errors import ExitCode

SAYS = "study.toml, or a file that it names, says something else than was planned of"


@pytest.fixture(params=EXAMPLES)
def study(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of each example's study, planned in the folder where one stands."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--example", request.param]) == ExitCode.DONE
    assert main(["plan"]) == ExitCode.DONE
    return re.findall(r'^study = "(.+)"', Path("study.toml").read_text(), re.MULTILINE)[0]


def submitted(study: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `submit --dry-run` says."""
    capsys.readouterr()
    assert main(["submit", study, "--dry-run"]) == ExitCode.DONE
    return capsys.readouterr().err


def test_submit_says_that_a_study_file_was_changed_since_it_was_planned(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each example: silent as planned and for comments, until one file in the folder is as planned again."""
    path = Path("study.toml")
    before = path.read_text()
    path.write_text(f"# looked at\n{before}")
    assert SAYS not in submitted(study, capsys)
    changed, n = re.subn(r"max_output_tokens = (\d+)", r"max_output_tokens = 1\1", before, count=1)
    assert n == 1
    path.write_text(changed)
    os.utime(path, (1, 1))  # what is moved here or unpacked keeps its date
    told = submitted(study, capsys)
    assert f"{SAYS} {study}" in told
    assert "`batchpond plan study.toml` plans what it says" in told
    Path("as-it-was.toml").write_text(before)
    assert SAYS not in submitted(study, capsys)
    Path("as-it-was.toml").unlink()
    path.write_text(before)
    for rows in (one for one in Path().iterdir() if one.suffix in {".csv", ".jsonl"}):
        text = rows.read_text()
        rows.write_text(text.replace("the ", "a "))
        assert f"{SAYS} {study}" in submitted(study, capsys)
        rows.write_text(text)
    assert SAYS not in submitted(study, capsys)
    assert main(["plan"]) == ExitCode.DONE
    assert SAYS not in submitted(study, capsys)
    Path("elsewhere").mkdir()
    for file in [one for one in Path().iterdir() if one.is_file()]:
        Path("elsewhere", file.name).write_text(file.read_text())
    Path("elsewhere/study.toml").write_text(changed)
    assert main(["plan", "elsewhere/study.toml"]) == ExitCode.DONE
    assert f"{SAYS} {study}" in submitted(study, capsys)
    path.write_text("study = ")
    assert SAYS not in submitted(study, capsys)


def test_who_names_a_study_by_its_file_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["init", "--example", "pairwise"])
    assert main(["submit", "study.toml", "--dry-run"]) == ExitCode.USAGE
    assert "`batchpond plan study.toml` plans what stands in it" in capsys.readouterr().err
