"""The whole way of people's labels, as a person goes it: answers, a sheet, labels, corrected rates, the report."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.rigs import forked

PROGRAM = (sys.executable, "-m", "batchpond")


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = forked.run_text(*arguments, env=os.environ, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


def test_labels_of_a_sheet_correct_the_judges_rate_and_stand_in_the_report(tmp_path: Path) -> None:
    """Twelve answers are judged, eight labelled: the corrected rate rests on eight, and the report says so."""
    run("init", "--example", "compliance", cwd=tmp_path)
    run("simulate", "--latency", "0.1", "0.3", "--", *PROGRAM, "run", "--yes", cwd=tmp_path)
    drawn = json.loads(run("label", "policy", "--sample", "8", "--json", cwd=tmp_path).stdout)
    assert (drawn["n_drawn"], drawn["n_unlabelled"], drawn["n_labelled"]) == (8, 12, 0)
    sheet = tmp_path / "policy-labels.csv"
    with sheet.open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert all(row["text_1"] and row["criterion"] and row["choices"] == "true | false" for row in rows)
    with sheet.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, "label": "TRUE" if number % 2 else "false"} for number, row in enumerate(rows))
    run("import", "labels", sheet.name, "--rater", "anna", cwd=tmp_path)
    sql = "select distinct n_labelled, n_label_true, n_judged from metric_compliance_corrected"
    assert json.loads(run("query", sql, "--json", cwd=tmp_path).stdout) == [
        {"n_labelled": 8, "n_label_true": 4, "n_judged": 12}
    ]
    report = run("report", "policy", "--format", "md", cwd=tmp_path).stdout
    assert "Compliance corrected by people's labels" in report
