"""`compare` as a process: what it prints in each form, and the exit codes of its gate."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from batchpond.errors import ExitCode
from tests.rigs import forked
from tests.rigs.lakes import LakeBuilder

WIDTH = 80
NARROW = "\u202f"
N_PAIRS = 45


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake: on ten items template `good` says the same in both orders, `bad` names the first."""
    made = tmp_path_factory.mktemp("compared")
    builder = LakeBuilder(made / "lake")
    rng = np.random.default_rng(3)
    rows = [
        {"study": "essays", "template_id": template, "rubric_id": "quality", "provider": "openai",
         "request_model": "a-model-with-a-long-name", "thinking": "none", "item_first": f"item-{first}",
         "item_second": f"item-{second}", "outcome": "decided", "cost_usd": 0.0012,
         "verdict": "first" if (first < second) != (rng.random() < flips) else "second"}
        for template, flips in (("good", 0.02), ("bad", 0.5), ("few", 0.5))
        for first in range(10) for second in range(10)
        if first != second and (template != "few" or first + second <= 3)
    ]  # fmt: skip
    builder.imported([row | {"import_key": f"k{number}"} for number, row in enumerate(rows)])
    builder.build()
    return made


def compare(folder: Path, b: str, *arguments: str) -> tuple[int, str, str]:
    """Run the command on the template `good` and another one; returns exit code, stdout, stderr."""
    environment = os.environ | {"COLUMNS": str(WIDTH)}
    done = forked.run_text(
        "compare", "essays:template=good", f"essays:template={b}", *arguments, env=environment, cwd=folder
    )
    return done.returncode, done.stdout, done.stderr


def test_several_sides_stand_below_each_other_and_one_that_is_worse_is_enough(folder: Path) -> None:
    """Each against the first, named by its letter, on the terminal, in the document and on a page."""
    code, out, err = compare(
        folder, "bad", "essays:template=few", "--format", "table", "--fail-if-worse", "consistency:0.1"
    )
    assert code == ExitCode.WORSE, err
    assert out.splitlines()[:3] == ["a  essays:template=good", "b  essays:template=bad", "c  essays:template=few"]
    assert "1. pair: b: template good -> bad" in out
    assert "2. pair: c: template good -> few" in out
    document = json.loads(compare(folder, "bad", "essays:template=few", "--json")[1])
    assert [document[name] for name in "abc"] == [f"essays:template={name}" for name in ("good", "bad", "few")]
    assert {row["side"] for row in document["differences"]} == {"b", "c"}
    assert compare(folder, "bad", "essays:template=few", "-o", "three.md")[0] == 0
    page = (folder / "three.md").read_text()
    assert "a is essays:template=good, b is essays:template=bad, c is essays:template=few." in page
    assert "Each is compared with a" in page
    (folder / "three.md").unlink()


def test_a_regression_ends_with_nine_and_says_which_number_by_how_much(folder: Path) -> None:
    """The rows are printed all the same; the gate's words are on stderr."""
    code, out, err = compare(folder, "bad", "--format", "csv", "--fail-if-worse", "consistency:0.1")
    assert code == ExitCode.WORSE == 9, err
    row = next(line.split(",") for line in out.splitlines() if ",consistency," in line)
    names = out.splitlines()[0].split(",")
    number = dict(zip(names, row, strict=True))
    assert float(number["diff_hi"]) < -0.1
    assert f"{float(number['value_b']):.4g}, was {float(number['value_a']):.4g}" in err
    assert f"b - a {float(number['diff']):+.4g}" in err
    assert "is worse if below -0.1" in err


def test_the_table_fits_a_narrow_terminal_and_says_what_flipped(folder: Path) -> None:
    """No line is wider than it; pairs, agreement, metrics, flips; and without a gate the exit code is 0."""
    code, out, err = compare(folder, "bad", "--format", "table", "--flips", "3")
    assert (code, err) == (ExitCode.DONE, "")
    assert max(map(len, out.splitlines())) <= WIDTH, out
    assert f"{N_PAIRS} pairs in both, 0 in a alone, 0 in b alone" in out.replace("\n", " ")
    assert "template good -> bad" in out
    for word in ("consistency", "first_rate", "unparsed", "$ per 1,000", "said differently"):
        assert word in out
    assert len(out.partition("said differently")[2].strip().splitlines()) == 1 + 3


def test_a_gate_that_holds_ends_with_zero_and_one_without_an_interval_with_three(folder: Path) -> None:
    """Both in the document: `is_worse` is false, or null; a margin that is not ruled out is a failure."""
    code, out, err = compare(folder, "bad", "--json", "--fail-if-worse", "unparsed")
    assert set(json.loads(out)) == {"a", "b", "comparisons", "differences", "flips", "gates", "notes"}
    (gate,) = json.loads(out)["gates"]
    assert (code, gate["is_worse"]) == (ExitCode.DONE, False)
    assert "not worse: unparsed" in err
    code, out, err = compare(folder, "few", "--json", "--fail-if-worse")
    found = json.loads(out)
    (told,) = found["comparisons"]
    assert (told["n_common"], told["n_a_only"]) == (4, N_PAIRS - 4)
    assert (code, [gate["is_worse"] for gate in found["gates"]]) == (ExitCode.ATTENTION, [None])
    assert "4 items are fewer than 5, so there is no interval" in err
    code, _, err = compare(folder, "bad", "--fail-if-worse", "unparsed:0.01", "--margin")
    assert code == ExitCode.WORSE
    assert "must be below +0.01" in err


def test_what_cannot_be_compared_ends_with_two_and_prints_nothing(folder: Path) -> None:
    code, out, err = compare(folder, "bad", "--fail-if-worse", "first_rate")
    assert (code, out) == (ExitCode.USAGE, "")
    assert "there is no first_rate here of which one side could be worse" in err
    assert "a gate can hold consistency" in err


def test_a_page_says_what_the_rows_say(folder: Path) -> None:
    """Its numbers are those of the rows, its findings those that hold; a file that is there stays, unless forced."""
    code, out, err = compare(folder, "bad", "--format", "json", "-o", "page.md")
    assert (code, "wrote page.md" in err) == (0, True)
    rows = {row["metric"]: row for row in json.loads(out)["differences"]}
    page = (folder / "page.md").read_text("utf-8")
    consistent, cost = rows["consistency"], rows["cost_per_call_usd"]
    n, a, b = consistent["n"], 100 * consistent["value_a"], 100 * consistent["value_b"]
    shown = f"| consistency | {n} | {a:.1f} % | {b:.1f} %"
    assert shown in page.replace(NARROW, " ")
    assert f"- consistency is {100 * consistent['value_a']:.1f} % in a" in page.replace(NARROW, " ")
    assert f"| {1000 * cost['value_a']:.2f} |" in page
    assert "first\\_rate is" not in page
    code, out, err = compare(folder, "bad", "-o", "page.md")
    assert (code, out) == (2, "")
    assert "page.md" in err
    assert compare(folder, "few", "-o", "page.md", "--force")[0] == 0
    assert "below five of them there is no interval" in (folder / "page.md").read_text("utf-8")
    code, _, _ = compare(folder, "bad", "-o", "page.html")
    text = (folder / "page.html").read_text("utf-8")
    assert code == 0
    assert text.count("<svg") == 2  # the figure in two widths
    assert 'id="differences-figure"' in text


def test_a_report_says_what_stands_beside_its_study(folder: Path) -> None:
    """The section stands first, of each that is named; the report without it is the same as ever."""
    both = ("--beside", "essays:template=bad", "--beside", "essays:template=few")
    for name, more in (("alone.md", ()), ("beside.md", both)):
        done = forked.run_text("report", "essays", "-o", name, *more, cwd=folder, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
    alone, beside = ((folder / name).read_text("utf-8") for name in ("alone.md", "beside.md"))
    assert "## Two sides" not in alone
    assert beside.index("## Two sides") < beside.index("## Consistency")
    assert "b is essays:template=bad" in beside
    assert "c is essays:template=few." in beside
    done = forked.run_text("report", "essays", "-o", "none.md", "--beside", "nothing", cwd=folder, env=dict(os.environ))
    assert (done.returncode, (folder / "none.md").exists()) == (2, False)
