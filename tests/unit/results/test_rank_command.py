"""`rank` and `Lake.rank` over real lakes: planned and imported judgments, items and candidates, every option."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import batchpond
from batchpond.cli.frame import Invocation, root
from batchpond.cli.report import _cell
from batchpond.errors import UsageError
from batchpond.results.rank.verb import ITEM_SCHEMA, RANKING_SCHEMA, notes
from batchpond.stats import dawid_skene, ranking
from tests.rigs.lakes import LakeBuilder
from tests.rigs.rank import GOLDEN, golden_votes, rows

ROUND_ROBIN = [(a, b) for a in "abcde" for b in "abcde" if a != b]


def call(lake: Path, *arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(
        root, ["--lake", str(lake), *arguments], obj=Invocation(), standalone_mode=False, catch_exceptions=False
    )


def ranked(lake: Path, *arguments: str) -> list[dict[str, Any]]:
    """Return what `rank --json` prints."""
    found: list[dict[str, Any]] = json.loads(call(lake, "rank", *arguments, "--json").stdout)
    return found


def imported_rows(case: str) -> list[dict[str, Any]]:
    """Return a reference case's judgments as imported ones, in a study of its name."""
    return [
        {"study": case, "import_key": f"{case}{number}", "item_first": row["item_first"],
         "item_second": row["item_second"], "unit_id": row["unit_id"], "repeat_no": int(row["repeat_no"]),
         "verdict": row["verdict"], "outcome": "tie" if row["verdict"] == "tie" else "decided"}
        for number, row in enumerate(rows(GOLDEN / case / "judgments.csv"))
    ]  # fmt: skip


@pytest.fixture(scope="module")
def golden_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of imported reference cases."""
    builder = LakeBuilder(tmp_path_factory.mktemp("golden") / "lake")
    for case in ("08_bt_disconnected", "09_bt_unbeaten_winless", "10_bt_ties", "11_bt_position_effect"):
        builder.imported(imported_rows(case))
    builder.build()
    return builder.store.path


def winner(first: str, second: str) -> str:
    """Judge by the alphabet, but for one upset that keeps everybody within reach."""
    return "first" if (first < second) is not ({first, second} == {"a", "e"}) else "second"


def planned_lake(path: Path, pairs: Sequence[tuple[str, str]] = ROUND_ROBIN, n_open: int = 0) -> LakeBuilder:
    """Return a lake with one study of two templates; of the first, `n_open` requests are still out."""
    builder = LakeBuilder(path)
    plan: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for template in ("t1", "t2"):
        for number, (first, second) in enumerate(pairs):
            request = f"{template}{number:039}"
            plan.append(
                {"slot": len(plan) + 1, "request_id": request, "template_id": template, "cell_id": template,
                 "item_first": first, "item_second": second, "pair_id": "|".join(sorted((first, second))),
                 "is_lo_first": first < second, "direction": "forward" if first < second else "reverse"}
            )  # fmt: skip
            verdict = winner(first, second)
            if template == "t2" and number % 5 == 0:
                lines.append({"request_id": request, "outcome": "unparsed", "text": "?"})
            elif template == "t2" or number >= n_open:
                lines.append({"request_id": request, "outcome": "decided", "verdict": verdict, "text": verdict})
    builder.plan(plan)
    builder.sent("attempt001", "shard001", [row["request_id"] for row in plan])
    builder.lines("attempt001", lines)
    builder.build()
    return builder


def test_one_object_per_item_of_a_cell(golden_lake: Path) -> None:
    """`rank --json` shows, per item, the numbers that the statistics compute, with every documented field."""
    case = "11_bt_position_effect"
    names, votes = golden_votes(case)
    found = ranking.rank(votes, ranking.Options(has_position=None))
    assert found.components[0].has_position
    shown = ranked(golden_lake, case)
    assert [list(row) for row in shown] == [ITEM_SCHEMA.names] * len(names)
    assert [row["rank"] for row in shown] == sorted(row["rank"] for row in shown)
    for row in shown:
        item = names.index(row["item"])
        assert row["theta"] == pytest.approx(found.theta[item], rel=1e-12)
        assert row["se"] == pytest.approx(found.se[item], rel=1e-9)
        assert (row["rank"], row["rank_lo"], row["rank_hi"]) == (
            found.component_rank[item], found.component_rank_lo[item], found.component_rank_hi[item],
        )  # fmt: skip
        assert row["n_wins"] + row["n_losses"] + row["n_ties"] == row["n_comparisons"]
        assert row["elo_scale"] == pytest.approx(1500 + 400 / np.log(10) * row["theta"])
        assert row["study"] == case


def test_components_have_no_rank_across(golden_lake: Path) -> None:
    """Items that nothing connects have places inside their part only, and a note says so."""
    result = call(golden_lake, "rank", "08_bt_disconnected", "--json")
    shown = json.loads(result.stdout)
    assert {row["component_id"] for row in shown} == {1, 2}
    assert all(row["rank"] is row["rank_lo"] is row["rank_hi"] is None for row in shown)
    assert [row["component_rank"] for row in shown] == [1, 2, 2, 4, 1, 1, 3, 4]
    assert all("not_comparable" in row["flags"] for row in shown)
    assert "no judgment connects" in result.stderr


def test_open_ends_are_null(golden_lake: Path) -> None:
    """An unbeaten item has no upper end, a winless one no lower, and both are flagged."""
    shown = {row["item"]: row for row in ranked(golden_lake, "09_bt_unbeaten_winless")}
    assert shown["S7"]["theta_hi"] is None
    assert shown["S7"]["theta_lo"] is not None
    assert shown["S0"]["theta_lo"] is None
    assert "unbeaten" in shown["S7"]["flags"]
    assert "winless" in shown["S0"]["flags"]


def test_planned_studies_rank_like_imported_ones(tmp_path: Path, golden_lake: Path) -> None:
    """The same judgments, planned, sent and answered, or imported, give the same ranking."""
    builder = planned_lake(tmp_path / "planned")
    other = LakeBuilder(tmp_path / "imported")
    other.imported(
        [{"study": "demo", "item_first": a, "item_second": b, "verdict": winner(a, b), "outcome": "decided"}
         for a, b in ROUND_ROBIN]
    )  # fmt: skip
    other.build()
    one = [row for row in ranked(builder.store.path) if row["template_id"] == "t1"]
    two = ranked(other.store.path)
    assert one
    assert [{**row, **dict.fromkeys(("template_id", "rubric_id", "provider", "request_model", "thinking"))}
            for row in one] == [
        {**row, **dict.fromkeys(("template_id", "rubric_id", "provider", "request_model", "thinking"))} for row in two
    ]  # fmt: skip


def test_cells_are_ranked_apart_or_together(tmp_path: Path) -> None:
    """One ranking per cell by default, per template or per study if asked; pooled votes add up."""
    lake = planned_lake(tmp_path / "lake").store.path
    cells, pooled = ranked(lake), ranked(lake, "--by", "study")
    assert len(cells) == 10
    assert [row["template_id"] for row in pooled] == [None] * 5
    total = sum(row["n_comparisons"] for row in cells)
    assert sum(row["n_comparisons"] for row in pooled) == total
    assert [row["request_model"] for row in ranked(lake, "--by", "template_id")] == [None] * 10


def test_what_has_no_verdict_is_counted_beside(tmp_path: Path) -> None:
    """Unparsed and outstanding judgments are no losses: they are counted, and move nothing."""
    lake = planned_lake(tmp_path / "lake", n_open=3).store.path
    shown = ranked(lake)
    by_template = {name: [row for row in shown if row["template_id"] == name] for name in ("t1", "t2")}
    assert sum(row["n_pending"] for row in by_template["t1"]) == 2 * 3
    assert sum(row["n_without_verdict"] for row in by_template["t2"]) == 2 * 4
    summary = ranked(lake, "--summary")
    assert [(row["n_pending"], row["n_without_verdict"]) for row in summary] == [(3, 0), (0, 4)]


def test_candidates_are_ranked_where_outputs_are_compared(tmp_path: Path) -> None:
    """A ranking task's rows rank the models that wrote the outputs, clustered by prompt."""
    builder = LakeBuilder(tmp_path / "lake")
    rng = np.random.default_rng(1)
    builder.imported(
        [
            {"study": "s", "task": "ranking", "import_key": f"{prompt}{a}{b}", "unit_id": f"prompt{prompt}",
             "item_first": f"{prompt}/{a}", "item_second": f"{prompt}/{b}", "candidate_first": a,
             "candidate_second": b, "verdict": "first" if rng.random() < 0.7 - 0.4 * (a > b) else "second",
             "outcome": "decided"}
            for prompt in range(30) for a in "ABC" for b in "ABC" if a != b
        ]
    )  # fmt: skip
    builder.build()
    shown = ranked(builder.store.path)
    assert [row["item"] for row in shown] == ["A", "B", "C"]
    assert {row["item_kind"] for row in shown} == {"candidate"}
    (summary,) = ranked(builder.store.path, "--summary")
    assert (summary["cluster"], summary["n_clusters"]) == ("unit", 30)
    items = ranked(builder.store.path, "--what", "items")
    assert len(items) == 90
    assert {row["item_kind"] for row in items} == {"item"}


def test_items_that_meet_on_many_prompts_are_clustered_by_prompt(tmp_path: Path) -> None:
    """Imported judgments of models over prompts need no candidate column for that."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported(
        [{"unit_id": f"p{prompt}", "import_key": f"{prompt}{a}{b}", "item_first": a, "item_second": b,
          "verdict": "first" if prompt % 3 else "second", "outcome": "decided"}
         for prompt in range(12) for a, b in ROUND_ROBIN]
    )  # fmt: skip
    builder.build()
    (summary,) = ranked(builder.store.path, "--summary")
    assert (summary["cluster"], summary["n_clusters"]) == ("unit", 12)


def test_summary_has_the_whole_audit(golden_lake: Path) -> None:
    """One row per component, with tests, ties' models, reliability and its caveat."""
    result = call(golden_lake, "rank", "10_bt_ties", "--summary", "--json")
    (summary,) = json.loads(result.stdout)
    assert list(summary) == RANKING_SCHEMA.names
    assert summary["nu"] is not None
    assert summary["rank_change_ties_dropped"] is not None
    assert 0 < summary["reliability"] < 1
    assert "adaptive" in result.stderr
    (position,) = ranked(golden_lake, "11_bt_position_effect", "--summary")
    assert position["eta_lr"] == pytest.approx(5.64087877520424, rel=1e-6)
    assert position["n_pairs_unbalanced"] > 0


def test_options_change_the_model(golden_lake: Path) -> None:
    """--ties and --position change theta; --with adds columns; the seed alone changes drawn intervals."""
    plain = ranked(golden_lake, "10_bt_ties")
    davidson, dropped = (ranked(golden_lake, "10_bt_ties", "--ties", ties) for ties in ("davidson", "drop"))
    assert plain[0]["theta"] < davidson[0]["theta"]
    assert plain[0]["theta"] != dropped[0]["theta"]
    extras = ["ml", "elo", "elochoice", "trueskill"]
    added = ranked(golden_lake, "10_bt_ties", *(part for name in extras for part in ("--with", name)))
    names = ["theta_ml", "se_ml", "elo", "elo_sd", "elochoice", "trueskill_mu", "trueskill_sigma"]
    assert list(added[0])[-len(names) :] == names
    assert [row["theta"] for row in added] == [row["theta"] for row in plain]
    other = ranked(golden_lake, "10_bt_ties", "--seed", "7")
    assert [row["theta_lo"] for row in other] == [row["theta_lo"] for row in plain]
    assert ranked(golden_lake, "10_bt_ties") == plain
    moved = {"component_id": 1, "is_moved_by_position": True, "is_reliability_valid": True, "is_comparable": True}
    moved |= {"mle_exists": True, "n_pairs_unbalanced": 0, "has_position": False}
    (said,) = notes([moved, moved | {"component_id": 2}], ranking.Options())
    assert said.startswith("in 1 of the rankings the item shown first")
    assert "p < .05" not in call(golden_lake, "rank", "10_bt_ties").stderr
    unbalanced = moved | {"is_moved_by_position": False, "n_pairs_unbalanced": 1}
    ((asks,), (has_asked,)) = (notes([unbalanced], ranking.Options(has_position=is_asked)) for is_asked in (None, True))
    assert "rank --position" in asks
    assert "--position" not in has_asked, "who asked for it is not sent for it"


def test_what_being_shown_first_adds_is_left_out_where_both_orders_were_asked(golden_lake: Path) -> None:
    """By default, and a note says which was used; either way at a word, as R's plain model has it."""
    case = "11_bt_position_effect"
    names, votes = golden_votes(case)
    given, left, without = (ranked(golden_lake, case, *more) for more in ((), ("--position",), ("--no-position",)))
    assert given == left
    assert {(row["has_position"], row["is_moved_by_position"]) for row in given} == {(True, None)}
    plain = ranking.rank(votes)
    assert {row["item"]: row["theta"] for row in without} == pytest.approx(dict(zip(names, plain.theta, strict=True)))
    assert {row["has_position"] for row in without} == {False}
    one_order = ranking.rank(
        replace(votes, counts=votes.counts * np.array([[[1]], [[0]]])), ranking.Options(has_position=None)
    )
    assert not any(component.has_position for component in one_order.components)
    assert batchpond.Lake(golden_lake).rank(case, position=False).to_dicts() == without
    assert "no part of log-strengths" in call(golden_lake, "rank", case).stderr
    assert "--position" in call(golden_lake, "rank", case, "--no-position").stderr


@pytest.mark.parametrize("form", ["csv", "jsonl", "markdown", "table", "parquet"])
def test_every_format(form: str, golden_lake: Path) -> None:
    """Rows come in every format, 32 of them with flags as a list."""
    result = call(golden_lake, "rank", "--format", form)
    assert result.stdout_bytes
    if form == "csv":
        read = list(csv.DictReader(io.StringIO(result.stdout)))
        assert len(read) == 32
        unbeaten = next(row for row in read if row["study"].startswith("09") and row["item"] == "S7")
        assert json.loads(unbeaten["flags"]) == ["unbeaten", "no_upper_bound"]
        assert unbeaten["theta_hi"] == ""


JUDGES = (("anthropic", "claude-haiku-4-5", "none"), ("gemini", "gemini-2.5-flash-lite", "low"))


def test_what_matters_of_a_ranking_fits_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places and strengths keep both their bounds, and cells what tells them apart; --summary is a table that fits."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported(
        [{"study": "s", "import_key": f"{template}{model}{a}{b}", "template_id": template, "provider": provider,
          "request_model": model, "thinking": thinking, "item_first": a, "item_second": b, "verdict": winner(a, b),
          "outcome": "decided"}
         for template in ("order_warned", "step_by_step") for provider, model, thinking in JUDGES
         for a, b in ROUND_ROBIN]
    )  # fmt: skip
    builder.build()
    monkeypatch.setenv("COLUMNS", "80")
    shown = call(builder.store.path, "rank", "s", "--format", "table")
    head, *lines = shown.stdout.partition("\n\n")[2].splitlines()
    assert head.split("  ")[0] == "template_id"
    for name in ("request_model", "item", "rank [lo, hi]", "theta [lo, hi]"):
        assert f"  {name}" in head
    assert "provider" not in head  # which the model says
    for row, line in zip(ranked(builder.store.path, "s"), lines, strict=True):
        assert f"  {row['rank']} [{row['rank_lo']}, {row['rank_hi']}]  " in line
        theta, *ends = (round(row[name], 2) + 0.0 for name in ("theta", "theta_lo", "theta_hi"))
        assert f"  {theta:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]" in line
    assert f"has all {len(ITEM_SCHEMA)} columns" in shown.stderr
    for arguments in (("s",), ("s", "--by", "study"), ()):
        summary = call(builder.store.path, "rank", *arguments, "--summary", "--format", "table").stdout
        assert "row 1" not in summary
        assert {"reliability", "eta", "eta_p"} <= set(re.findall(r"\w+", summary))
        assert max(map(len, (*summary.splitlines(), *shown.stdout.splitlines()))) <= 80


def test_nothing_to_rank_is_a_usage_error(tmp_path: Path, golden_lake: Path) -> None:
    """An empty lake, an unknown study, and candidates that nobody named are errors that say so."""
    empty = LakeBuilder(tmp_path / "lake")
    empty.build()
    with pytest.raises(UsageError, match="no pair judgments to rank"):
        call(empty.store.path, "rank")
    with pytest.raises(UsageError, match="no study 'nope'"):
        call(golden_lake, "rank", "nope")
    with pytest.raises(UsageError, match="which model wrote what"):
        call(golden_lake, "rank", "10_bt_ties", "--what", "candidates")


def test_judgments_without_any_verdict_have_no_numbers(tmp_path: Path) -> None:
    """Items of which nothing was decided yet are listed with NULLs and a flag."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.imported([{"item_first": "a", "item_second": "b", "outcome": "refused"}])
    builder.build()
    shown = ranked(builder.store.path)
    assert [row["flags"] for row in shown] == [["no_votes"], ["no_votes"]]
    assert {row["theta"] for row in shown} == {row["rank"] for row in shown} == {None}
    assert [row["n_without_verdict"] for row in shown] == [1, 1]


def test_python_gives_the_same(golden_lake: Path) -> None:
    """`Lake.rank` returns the command's rows as a frame, and refuses words it does not know."""
    lake = batchpond.Lake(golden_lake)
    assert lake.rank("10_bt_ties").to_dicts() == ranked(golden_lake, "10_bt_ties")
    summary = lake.rank(by=(), summary=True, ties="davidson", position=True)
    assert summary.to_dicts() == ranked(golden_lake, "--by", "study", "--summary", "--ties", "davidson", "--position")
    wrongs: list[dict[str, Any]] = [{"ties": "none"}, {"what": "models"}, {"extras": ["glicko"]}, {"by": ("judge",)}]
    for wrong in wrongs:
        with pytest.raises(UsageError):
            lake.rank(**wrong)


def test_several_studies_are_ranked_as_one(tmp_path: Path) -> None:
    """Two runs of the same pairs give what one study with both as repeats gives; `study` has the names of both."""
    builder = LakeBuilder(tmp_path / "lake")
    rng = np.random.default_rng(3)
    for run, study in ((1, "monday"), (2, "friday")):
        for pair in permutations("abcdef", 2):
            says = "first" if rng.random() < 1 / (1 + np.exp((ord(pair[0]) - ord(pair[1])) / 2 - 0.5)) else "second"
            row = {"template_id": "t", "provider": "p", "request_model": "m", "item_first": pair[0],
                   "item_second": pair[1], "unit_id": "", "verdict": says, "outcome": "decided"}  # fmt: skip
            builder.imported([row | {"study": study, "import_key": f"{study}{pair}"}])
            builder.imported([row | {"study": "both", "repeat_no": run, "import_key": f"both{run}{pair}"}])
    builder.imported([{"study": "apart", "import_key": "x", "task": "compliance", "provider": "p", "request_model": "m",
                       "item_first": "a", "item_second": None, "verdict": "true", "outcome": "decided"}])  # fmt: skip
    builder.build()
    lake = builder.store.path
    together = ranked(lake, "monday", "friday", "monday")
    assert {row.pop("study") for row in together} == {"monday, friday"}
    assert together == [{name: value for name, value in row.items() if name != "study"} for row in ranked(lake, "both")]
    assert batchpond.Lake(lake).rank(["monday", "friday"])["theta"].to_list() == [row["theta"] for row in together]
    for arguments, says in (
        (("monday", "firday"), "no study 'firday'"),
        (("monday", "apart"), "study 'apart' has no pair judgments"),
        (("monday", "friday", "--by", "majority"), "a jury is of one study"),
        (("monday", "friday", "--judges"), "a jury is of one study"),
    ):
        with pytest.raises(UsageError, match=says):
            call(lake, "rank", *arguments)


def test_studies_that_share_answers_are_not_ranked_as_one(tmp_path: Path) -> None:
    """One answer would count for each: it is said how many, and what to do."""
    builder = LakeBuilder(tmp_path / "lake")
    rows = [{"slot": n, "request_id": f"r{n}", "item_first": a, "item_second": b, "is_lo_first": True,
             "pair_id": f"{a} | {b}"} for n, (a, b) in enumerate(("ab", "bc"))]  # fmt: skip
    builder.plan(rows, "one")
    builder.plan(rows[:1], "two")
    builder.build()
    with pytest.raises(UsageError, match="1 of the answers are of several of these studies") as told:
        call(builder.store.path, "rank", "one", "two")
    assert "`repeats` in one study" in str(told.value.hint)


def test_a_run_that_was_imported_under_two_names_is_not_ranked_as_two(tmp_path: Path) -> None:
    """All that one study says another says, too; where a single judgment differs they are two runs."""
    builder = LakeBuilder(tmp_path / "lake")
    for study in ("run", "copy", "other"):
        builder.imported([
            {"study": study, "import_key": f"{study}{pair}", "source": f"{study}.csv", "provider": "p",
             "request_model": "m", "item_first": pair[0], "item_second": pair[1], "output_tokens": 9,
             "verdict": "second" if (study, pair) == ("other", ("a", "b")) else "first", "outcome": "decided"}
            for pair in permutations("abc", 2)
        ])  # fmt: skip
    builder.build()
    assert len(ranked(builder.store.path, "run", "other")) == 3
    with pytest.raises(UsageError, match="6 of the answers are of several of these studies"):
        call(builder.store.path, "rank", "other", "run", "copy")


def test_a_failing_rank_prints_nothing(tmp_path: Path) -> None:
    """As a process: exit code 2, an error on stderr, nothing on stdout."""
    builder = LakeBuilder(tmp_path / "lake")
    builder.build()
    command = [sys.executable, "-m", "batchpond", "--lake", str(builder.store.path), "rank", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr.splitlines()[-1])["error"] == "usage"


def test_rows_say_that_the_position_moves_theta(tmp_path: Path) -> None:
    """A judge who often takes the first text: every row says so where that is left in; a fair judge's rows do not."""
    builder = LakeBuilder(tmp_path / "lake")
    rng = np.random.default_rng(1)
    for judge, eta in (("fair", 0.0), ("first", 1.2)):
        builder.imported([
            {"study": "s", "import_key": f"{judge}{one}{other}", "provider": "p", "request_model": judge,
             "item_first": f"i{one}", "item_second": f"i{other}", "unit_id": "", "repeat_no": 1, "outcome": "decided",
             "verdict": "first" if rng.random() < 1 / (1 + np.exp((one - other) / 3 - eta)) else "second"}
            for one, other in np.ndindex(8, 8) if one != other
        ])  # fmt: skip
    builder.build()
    for arguments in ((), ("--summary",)):
        found = ranked(builder.store.path, "--no-position", *arguments)
        said = {(row["request_model"], row["is_moved_by_position"]) for row in found}
        assert said == {("fair", False), ("first", True)}
        modelled = ranked(builder.store.path, *arguments)
        assert {row["is_moved_by_position"] for row in modelled} == {None}


def judged_by_three(path: Path) -> Path:
    """Return a lake in which three judges see five items in both orders, now and then of another mind, and people."""
    builder = LakeBuilder(path)
    rng = np.random.default_rng(5)
    made: list[dict[str, Any]] = []
    for judge in ("j1", "j2", "j3", "human"):
        for first, second in ROUND_ROBIN:
            is_odd = judge != "human" and rng.random() < 0.4
            verdict = winner(first, second) if not is_odd else "tie" if rng.random() < 0.3 else "first"
            made.append({"study": "s", "import_key": f"{judge}{first}{second}", "provider": "p",
                         "request_model": judge, "template_id": "t", "item_first": first, "item_second": second,
                         "verdict": verdict, "outcome": "tie" if verdict == "tie" else "decided"})  # fmt: skip
            if judge == "human":
                made[-1] |= {"provider": "human", "template_id": "people"}
    builder.imported(made)
    builder.build()
    return builder.store.path


def same_ranking_of(path: Path, verdicts: list[dict[str, Any]], lake: Path, jury: str) -> list[dict[str, Any]]:
    """Assert that a jury ranks as one judge that says these verdicts does, and return its rows."""
    assert len({row["said"] for row in verdicts}) > 1
    says = {"lo": "first", "hi": "second", "tie": "tie"}
    other = LakeBuilder(path)
    other.imported(
        [{"study": "s", "import_key": f"{row['item_lo']}{row['item_hi']}", "item_first": row["item_lo"],
          "item_second": row["item_hi"], "verdict": says.get(row["said"]),
          "outcome": "tie" if row["said"] == "tie" else "decided" if row["said"] else "unparsed"} for row in verdicts]
    )  # fmt: skip
    other.build()
    wanted, found = ranked(other.store.path), ranked(lake, "--by", jury)
    named = ("item", "rank", "theta", "se", "n_comparisons", "n_ties", "n_without_verdict")
    assert [[row[name] for name in named] for row in found] == [[row[name] for name in named] for row in wanted]
    assert {(row["provider"], row["request_model"], row["template_id"]) for row in found} == {("jury", jury, None)}
    return found


@pytest.mark.parametrize("jury", ["majority", "weighted"])
def test_a_jury_ranks_as_one_judge_that_says_what_it_says(tmp_path: Path, jury: str) -> None:
    """By the verdicts of `jury_verdicts`, one a pair; a pair without one is counted as answered without a verdict."""
    lake = judged_by_three(tmp_path / "lake")
    verdicts = batchpond.Lake(lake).sql(f"select item_lo, item_hi, {jury} as said from jury_verdicts").to_dicts()
    found = same_ranking_of(tmp_path / "other", verdicts, lake, jury)
    frame = batchpond.Lake(lake).rank("s", by=(jury,))
    assert frame["theta"].to_list() == pytest.approx([row["theta"] for row in found])


def test_a_jury_by_dawid_and_skene_ranks_by_the_likelier_word(tmp_path: Path) -> None:
    """A pair is what is more likely than not; one of which that is silence, or nothing, has no verdict."""
    lake = judged_by_three(tmp_path / "lake")
    _, units = batchpond.Lake(lake).jury("s")
    likely = {(row["item_lo"], row["item_hi"]): row["word"] for row in units.to_dicts() if row["probability"] > 0.5}
    pairs = batchpond.Lake(lake).sql("select item_lo, item_hi from jury_verdicts").to_dicts()
    said = [likely.get((row["item_lo"], row["item_hi"])) for row in pairs]
    verdicts = [row | {"said": None if word == "none" else word} for row, word in zip(pairs, said, strict=True)]
    same_ranking_of(tmp_path / "other", verdicts, lake, "dawid-skene")


def test_what_dawid_and_skene_make_of_a_jury_is_told_of_each_judge_and_each_unit(tmp_path: Path) -> None:
    """As the pure function says of the same words, none being the word of a judge that answered without one."""
    lake = judged_by_three(tmp_path / "lake")
    judges, units = batchpond.Lake(lake).jury()
    rows = batchpond.Lake(lake).sql("select item_lo, item_hi, judges from jury_verdicts").to_dicts()
    words = sorted({judge["word"] or "none" for row in rows for judge in row["judges"]})
    assert {"lo", "none"} <= set(words)
    numbers = sorted((row["item_lo"], row["item_hi"]) for row in rows)
    votes = [(numbers.index((row["item_lo"], row["item_hi"])), int(judge["request_model"][1]) - 1,
              words.index(judge["word"] or "none")) for row in rows for judge in row["judges"]]  # fmt: skip
    unit, judge, said = np.array(votes).T
    wanted = dawid_skene.fit(unit, judge, said, np.zeros_like(unit))
    assert units["probability"].to_list() == pytest.approx(wanted.posterior.ravel().tolist())
    assert judges["probability"].to_list() == pytest.approx(wanted.confusion.ravel().tolist())
    assert units["word"].to_list() == words * len(numbers)
    assert judges.select("request_model", "word", "said").rows() == list(product(("j1", "j2", "j3"), words, words))
    shares = dict(judges.select("word", "share").unique().rows())
    assert [shares[word] for word in words] == pytest.approx(wanted.posterior.mean(axis=0).tolist())
    assert set(judges["is_converged"]) == {True}
    assert judges.select("n_units", "n_judges", "n_judges_met").unique().rows() == [(10, 3, 2)]
    printed = json.loads(call(lake, "rank", "s", "--units", "--json").stdout)
    assert [row["probability"] for row in printed] == pytest.approx(units["probability"].to_list())
    shown = call(lake, "rank", "--judges", "--format", "csv").stdout.splitlines()
    assert shown[0] == ",".join(judges.columns)
    assert len(shown) == 1 + len(judges)


def test_a_ranking_by_an_estimate_that_did_not_converge_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = judged_by_three(tmp_path / "lake")
    assert "has not converged" not in call(lake, "rank", "--by", "dawid-skene").stderr
    monkeypatch.setattr(dawid_skene, "ITERATIONS_MAX", 1)
    assert "of 1 juries the estimate" in call(lake, "rank", "--by", "dawid-skene").stderr
    assert {row["is_converged"] for row in json.loads(call(lake, "rank", "--units", "--json").stdout)} == {False}


def test_a_jury_of_nobody_is_an_error_that_says_so(tmp_path: Path, golden_lake: Path) -> None:
    """One judge is no jury; an unknown study is named, nothing is printed."""
    with pytest.raises(UsageError, match="no unit was asked of two judges"):
        call(golden_lake, "rank", "--judges")
    with pytest.raises(UsageError, match="nobody"):
        call(judged_by_three(tmp_path / "lake"), "rank", "nobody", "--units")


def test_judges_who_share_no_unit_are_told(tmp_path: Path) -> None:
    """Each met one of three others: what is said of both halves hangs together by the shares of words alone."""
    builder = LakeBuilder(tmp_path / "lake")
    says = [("a", "u1", "true"), ("b", "u1", "true"), ("a", "u2", "false"), ("b", "u2", "true"), ("c", "u3", "true"),
            ("d", "u3", None)]  # fmt: skip
    builder.imported(
        [{"study": "s", "task": "compliance", "import_key": f"{judge}{unit}", "provider": "p", "request_model": judge,
          "item_first": unit, "unit_id": unit, "verdict": verdict, "outcome": "decided" if verdict else "unparsed"}
         for judge, unit, verdict in says]
    )  # fmt: skip
    builder.build()
    judges, units = batchpond.Lake(builder.store.path).jury("s")
    met = judges.select("request_model", "n_units", "n_judges", "n_judges_met").unique().sort("request_model").rows()
    assert met == [("a", 2, 4, 1), ("b", 2, 4, 1), ("c", 1, 4, 1), ("d", 1, 4, 1)]
    assert set(units["n_judges"]) == {2}


def test_a_mistyped_word_of_an_option_is_told_the_nearest(golden_lake: Path) -> None:
    """As `compare` says template where the column is template_id; what is near nothing is told the help."""
    command = [sys.executable, "-m", "batchpond", "--lake", str(golden_lake), "rank"]
    for arguments, hint in (
        (("--by", "template"), "hint: did you mean 'template_id'?"),
        (("--ties", "halves"), "hint: did you mean 'half'?"),
        (("--ties", "0"), "hint: `batchpond rank --help` shows its options"),
    ):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, hint)


def test_no_figure_of_a_table_is_less_than_nothing_by_rounding() -> None:
    row = {"theta": -1e-9, "theta_lo": -0.5, "theta_hi": 0.004}
    assert str(_cell(row, "theta [lo, hi]")) == "0.00 [-0.50, 0.00]"


def test_a_jury_has_no_position_to_take_out(tmp_path: Path) -> None:
    """Its verdict is of both orders; the error says what to leave out."""
    lake = judged_by_three(tmp_path / "lake")
    with pytest.raises(UsageError, match="no position is in it"):
        call(lake, "rank", "--by", "majority", "--position")
    assert "--position" not in call(lake, "rank", "--by", "majority").stderr, "nor is it advised"


def test_a_jury_of_one_judge_says_that_it_is_none(golden_lake: Path) -> None:
    """Its judgments are there: without a jury `rank` takes them, and the error says so."""
    with pytest.raises(UsageError, match="no pairs that two judges were asked about, and one judge is no jury") as told:
        call(golden_lake, "rank", "--by", "majority")
    assert "leave out `--by majority`" in str(told.value.hint)


def test_a_jurys_reliability_holds_as_little_as_that_of_its_judges_where_rounds_chose_the_pairs(
    tmp_path: Path,
) -> None:
    """A pair that rounds of any judge chose is a chosen one; held out is what nobody's chose."""
    builder = LakeBuilder(tmp_path / "lake")
    purposes = {
        "ab": ("gain", "holdout"),
        "ac": ("start", "start"),
        "bc": ("holdout", "holdout"),
        "cd": ("gain", "gain"),
    }
    builder.imported(
        [{"study": "s", "import_key": f"{first}{second}{judge}", "provider": "p", "request_model": str(judge),
          "item_first": first, "item_second": second, "verdict": "first" if first < second else "second",
          "outcome": "decided", "purpose": purpose}
         for pair, asked in purposes.items() for judge, purpose in enumerate(asked)
         for first, second in (pair, pair[::-1])]
    )  # fmt: skip
    builder.build()
    rows = ranked(builder.store.path, "--by", "majority", "--summary")
    assert [(row["is_reliability_valid"], row["n_held_out"]) for row in rows] == [(False, 1)]
