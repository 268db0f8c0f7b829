"""CSV files, read row by row."""

from __future__ import annotations

from pathlib import Path

from batchpond import files


def test_long_fields_are_read_however_many_files_are_open(tmp_path: Path) -> None:
    """Python's reader has one limit for the whole process: who is done first must not end the others."""
    path = tmp_path / "texts.csv"
    path.write_text(f"id,text\n1,{'x' * 200_000}\n2,{'y' * 900_000}\n")
    first, second = files.csv_records(path), files.csv_records(path)
    assert next(first) == next(second) == (1, ["id", "text"])
    assert [len(text) for _, (_, text) in first] == [200_000, 900_000]
    assert [len(text) for _, (_, text) in second] == [200_000, 900_000]
