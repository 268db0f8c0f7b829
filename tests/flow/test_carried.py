"""Results as a file, imported into another lake: every metric is the same there, and what stays behind is said."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from batchpond import Lake
from tests.rigs import combined
from tests.rigs.carried import carry, differences
from tests.rigs.program import Program
from tests.rigs.stage_study import StageRig
from tests.rigs.swept import every

KINDS = {
    "points": 4, "likert, judged again": 13, "conversations under pressure": 0, "lists that nobody can read": 44,
    "lists of answers": 47, "judges that read judges": 3, "fields and repeats": 8,
}  # fmt: skip
"""Seeds of drawn studies; `python -m tests.sweeps.combinations` holds many more to the same."""


def answered(folder: Path, seed: int) -> StageRig:
    """Return a drawn study whose answers are in."""
    study = combined.drawn(seed)
    rig = combined.rig_of(folder, study)
    rig.planned()
    combined.ended(rig)
    return rig


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_every_metric_is_the_same_once_results_were_imported(tmp_path: Path, kind: str) -> None:
    """Places in lists, points, lengths of texts that the file does not hold, and fields that share an answer."""
    assert list(differences(answered(tmp_path, KINDS[kind]))) == []


def test_what_a_file_does_not_hold_is_said(tmp_path: Path) -> None:
    """Texts that a stage had models write, choices by earlier answers, and, of a bare view, lengths and points."""
    rig = answered(tmp_path, KINDS["judges that read judges"])
    report = carry(rig.lake, tmp_path)
    assert [told.split(" that ")[0] for told in report.left_behind] == [
        "48 texts", "which rows of its 2 stages were chosen by earlier answers",
    ]  # fmt: skip
    bare = tmp_path / "bare.csv"
    Lake(rig.lake).results().collect().write_csv(bare)
    told = Program(tmp_path, "http://127.0.0.1:9", lake=str(tmp_path / "bare")).run("import", "judgments", str(bare))
    assert "note: the file does not hold how long texts are and what points criteria give" in told.stderr


def test_the_program_prints_what_it_exports(tmp_path: Path) -> None:
    """`results --format csv` has the columns of a file of results, with a limit too."""
    rig = answered(tmp_path, KINDS["points"])
    carry(rig.lake, tmp_path)
    program = Program(tmp_path, "http://127.0.0.1:9", lake=str(rig.lake))
    exported = pl.read_csv(tmp_path / "carried.csv", infer_schema=False)
    for more in ((), ("--limit", "5")):
        printed = pl.read_csv(program.run("results", "--format", "csv", *more).stdout.encode(), infer_schema=False)
        assert printed.equals(exported.head(len(printed)))
    assert exported["points"].null_count() == exported["n_chars_first"].null_count() == 0
