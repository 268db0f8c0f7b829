"""Studies of lists, whole: several items to an answer, asked and paid once, and what it says of each two of them."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from batchpond import Lake
from batchpond.errors import StudyError, UsageError
from batchpond.interop import labels
from batchpond.interop.imports import import_foreign
from batchpond.lake.store import Store
from batchpond.plan.verb import plan_study
from batchpond.results.export import ExportFormat, export
from batchpond.results.rank.verb import Request, rank
from batchpond.run.submit import Bounds, submit
from batchpond.study.file import load
from batchpond.views.read import run_query
from batchpond_report import build, markdown
from batchpond_sim.world.world import Settings
from tests.flow.test_stages_modes import FilesStageRig
from tests.rigs.live_study import live_rig
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

N_ITEMS = 12
SIZE = 4
LIST = "study, cell_id, list_id, request_id"


def toml(more: str = "", template: str = "listwise_order", model: str = "") -> str:
    """Return a study of lists over texts of known quality."""
    return (
        'study = "demo"\ntask = "listwise"\n[items]\npath = "texts.csv"\n[[rubrics]]\nuse = "overall_quality"\n'
        f'[[templates]]\nuse = "{template}"\n' + models("gpt-5.4-mini", more=model).replace("stages.", "") + more
    )


def rig_of(path: Path, text: str, judge: str = "*:sharpness=6", kind: type[StageRig] = StageRig) -> StageRig:
    """Return a study that is not planned yet, over texts that say how good they are."""
    rig = kind(path, toml=text, settings=Settings(seed=1, latency_s=LATENCY_S, judges=(judge,)))
    texts = [f"t{n:02},Text number {n} is here. [[quality={n / N_ITEMS:.2f}]]" for n in range(N_ITEMS)]
    (rig.study_path.parent / "texts.csv").write_text("\n".join(["id,text", *texts]) + "\n")
    return rig


def finished(path: Path, text: str, judge: str = "*:sharpness=6") -> StageRig:
    """Return a study whose answers are in."""
    rig = rig_of(path, text, judge)
    rig.planned()
    rig.submit()
    rig.finish()
    return rig


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    judge = "*:sharpness=6,position_bias=3,unparsed_rate=0.05"
    return finished(tmp_path_factory.mktemp("orders"), toml("[lists]\ncount = 36\n"), judge)


def test_the_items_of_a_list_share_its_request(tmp_path: Path) -> None:
    """A plan row an item, a request a list and direction; what is foreseen and limited are requests."""
    rig = rig_of(tmp_path, toml())
    report = rig.planned()
    n_lists = N_ITEMS
    assert (report.n_plan_rows, report.n_requests, report.n_to_ask) == (2 * n_lists * SIZE, 2 * n_lists, 2 * n_lists)
    preview = submit(rig.store(), "demo", Bounds(limit=6), confirm=None, providers=rig.providers()).preview
    assert preview.n_requests == 6
    assert preview.cost_expected_usd == pytest.approx((report.cost.expected_usd or 0) / 4, rel=0.05)
    before = rig.tree()
    assert rig.planned().study_version == report.study_version
    assert rig.tree() == before


def test_each_item_stands_equally_often_at_each_place(tmp_path: Path) -> None:
    """In either direction; the reverse is the same list from its end."""
    rig = rig_of(tmp_path, toml())
    rig.planned()
    rows = rig.ask("SELECT item_first, list_place, direction, list_id FROM results")
    places = Counter((row["item_first"], row["list_place"], row["direction"]) for row in rows)
    assert set(places.values()) == {1}
    assert len(places) == 2 * N_ITEMS * SIZE
    shown = {(row["list_id"], row["direction"], row["list_place"]): row["item_first"] for row in rows}
    for (list_id, direction, place), item in shown.items():
        other = "reverse" if direction == "forward" else "forward"
        assert shown[list_id, other, SIZE + 1 - place] == item


def test_what_an_answer_says_of_each_item_is_its_rank(orders: StageRig) -> None:
    """As the text has it; every list is all there or not at all, and is one call."""
    rows = orders.ask(
        f"SELECT list(list_rank ORDER BY list_place) AS ranks, min(label) AS label, min(outcome) AS outcome,"
        f" count(*) AS n FROM results GROUP BY {LIST}"
    )
    assert {row["n"] for row in rows} == {SIZE}
    assert {row["outcome"] for row in rows} == {"decided", "unparsed"}
    for row in rows:
        letters = (row["label"] or "").split(">")
        wanted = [letters.index(letter) + 1 for letter in "ABCD"] if row["label"] else [None] * SIZE
        assert row["ranks"] == wanted
    (calls,) = orders.ask("SELECT count(*) AS n FROM calls")
    (coverage,) = orders.ask("SELECT n_planned AS n, n_decided FROM coverage")
    (status,) = orders.ask("SELECT n_planned AS n FROM report_status")
    assert calls["n"] == coverage["n"] == status["n"] == len(rows) == orders.billed()[0]
    assert coverage["n_decided"] == sum(row["outcome"] == "decided" for row in rows)


def test_a_list_is_paid_once(orders: StageRig) -> None:
    """Whatever sums costs sums those of requests."""
    (bill,) = orders.ask("SELECT sum(cost_usd) AS usd FROM responses")
    for view in ("costs", "metric_cost"):
        (row,) = orders.ask(f"SELECT cost_usd FROM {view}")
        assert row["cost_usd"] == pytest.approx(bill["usd"]), view
    (audit,) = orders.ask("SELECT bool_and(is_balanced) AS ok FROM audit")
    assert audit["ok"]


def test_the_pairs_of_a_list_are_pairs_like_any_other(orders: StageRig) -> None:
    """Each two items of a list that was read, both orders of it; consistency and position bias count them."""
    (n,) = orders.ask("SELECT count(*) AS n FROM (SELECT DISTINCT request_id FROM results WHERE outcome = 'decided')")
    (pairs,) = orders.ask(
        "SELECT count(*) AS n, count(DISTINCT unit_id) AS n_units FROM pair_judgments WHERE verdict IS NOT NULL"
    )
    assert pairs["n"] == n["n"] * SIZE * (SIZE - 1) // 2
    (found,) = orders.ask("SELECT * FROM metric_consistency")
    assert found["n_clusters"] == N_ITEMS
    assert 0 < found["n_both"] < found["n_pairs"] == 36 * SIZE * (SIZE - 1) // 2
    assert found["consistency_decided_lo_these_items"] is None
    (bias,) = orders.ask("SELECT position_logodds, p_position FROM metric_position_bias")
    assert bias["position_logodds"] > 0
    assert bias["p_position"] < 0.05


def test_results_of_lists_come_back_with_the_same_metrics(orders: StageRig, tmp_path: Path) -> None:
    """As a CSV into another lake: pairs, their intervals, ranks, calls and costs; once more, nothing new."""
    whole, other = Lake(orders.lake), Lake(Store.init(tmp_path / "lake").path)
    (path,) = export(orders.lake, tmp_path / "lists.csv", format=ExportFormat.CSV, view="results")
    report = other.import_judgments(path)
    assert report.n_rows == report.n_new == whole.view("pair_judgments").collect().height
    assert other.import_judgments(path).n_new == 0
    for view in ("pair_status", "metric_consistency", "metric_position_bias", "report_judges"):
        wanted, found = (one.view(view).collect() for one in (whole, other))
        if view == "pair_status":
            wanted, found = (frame.sort("unit_id", "item_lo", "item_hi") for frame in (wanted, found))
        assert_frame_equal(found, wanted, rel_tol=1e-9)
    ranks = [rank(one.path, Request()).items.to_pylist() for one in (whole, other)]
    assert ranks[0] == ranks[1]
    costs, counts = "metric_cost", "metric_completion"
    for view, name in ((costs, "cost_usd"), (costs, "input_tokens"), (counts, "n_answered"), (counts, "n_unparsed")):
        wanted, found = (one.view(view).collect()[name].sum() for one in (whole, other))
        assert found == pytest.approx(wanted), name


def test_a_list_without_its_places_is_refused(tmp_path: Path) -> None:
    """Of what stood beside an item nothing is known then."""
    (tmp_path / "said.csv").write_text("task,item_first,label,list_rank\nlistwise,a,A>B,1\nlistwise,b,A>B,2\n")
    with pytest.raises(UsageError, match="lacks list_id, list_place or request_id"):
        Lake(Store.init(tmp_path / "lake").path).import_judgments(tmp_path / "said.csv")


def test_a_planted_bias_of_place_is_found(orders: StageRig) -> None:
    """What stands first is named the best too often and has too good a rank; places share what there is."""
    rows = orders.ask("SELECT * FROM metric_place_bias ORDER BY list_place")
    assert [row["list_place"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["best_share_lo"] > rows[0]["best_share_balanced"] == 0.25
    assert rows[0]["q_bh"] < 0.05
    assert rows[3]["mean_rank_lo"] > rows[3]["mean_rank_balanced"] == 2.5
    assert sum(row["best_share"] for row in rows) == pytest.approx(1)
    assert sum(row["mean_rank"] for row in rows) == pytest.approx(10)


@pytest.mark.parametrize("reader", ["", "best"])
def test_a_planted_preference_is_found(tmp_path: Path, reader: str) -> None:
    """By orders as by bests alone, with the lists as clusters."""
    more = "[lists]\ncount = 60\n" + ('[answer]\nreader = "best"\n' if reader else "")
    rig = finished(tmp_path, toml(more, f"listwise_{reader or 'order'}"))
    found = rank(rig.lake, Request())
    assert found.rankings["cluster"].to_pylist() == ["unit"]
    rows = sorted(found.items.to_pylist(), key=lambda row: row["item"])
    theta = [row["theta"] for row in rows]
    assert np.corrcoef(theta, np.arange(N_ITEMS))[0, 1] > 0.9
    assert {row["item_kind"] for row in rows} == {"item"}
    n_pairs = rig.ask("SELECT count(*) AS n FROM pair_judgments WHERE verdict IS NOT NULL")[0]["n"]
    assert n_pairs == 120 * (SIZE - 1 if reader else SIZE * (SIZE - 1) // 2)
    assert bool(rig.ask("SELECT 1 FROM metric_consistency")) is not bool(reader)


def test_ties_and_none_are_read_where_the_study_has_them(tmp_path: Path) -> None:
    """Both are ties of the list; a tie of all says of each two that they are equal, that none is good says nothing."""
    more = '[answer]\nties = true\nnone = "none"\n'
    rig = finished(tmp_path, toml(more), "*:tie_rate=0.2,not_applicable_rate=0.2,unsure_rate=0.2,both_tags_rate=0.2")
    rows = rig.ask("SELECT label, outcome, count(*) AS n FROM results WHERE list_place = 1 GROUP BY ALL")
    outcomes = {(row["label"], row["outcome"]): row["n"] for row in rows}
    n_tied, n_none = outcomes["A=B=C=D", "tie"], outcomes["none", "tie"]
    assert {outcome for _, outcome in outcomes} == {"decided", "tie", "unsure", "unparsed"}
    (pairs,) = rig.ask("SELECT count(*) FILTER (verdict = 'tie') AS n_tied, count(*) AS n FROM pair_judgments")
    assert pairs["n_tied"] == n_tied * 6
    assert pairs["n"] == (sum(outcomes.values()) - n_none) * 6


def candidates_toml() -> str:
    """Return answers of three models, put in order by two directions of lists, of which the best are rated."""
    lists = "[stages.lists]\nsize = 3\n"
    return (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4.1-mini', 'gpt-4o', 'gpt-4o-mini')}")
        + stage("lists", "listwise", 'stage = "answers"',
                f"---{lists}{RUBRICS}{use('listwise_answers')}{models('gpt-5.4-mini')}")
        + stage("rated", "likert", 'stage = "lists"\nwhere = "list_rank = 1 AND direction = \'forward\'"',
                f"---{RUBRICS}{use('likert_json')}{models('gpt-5.4-mini')}")
    )  # fmt: skip


def test_lists_of_candidates_are_of_one_unit_and_a_later_stage_takes_the_best(tmp_path: Path) -> None:
    """Answers of a stage are listed by unit; what is named first goes on, and nothing is asked twice."""
    rig = finished(tmp_path, candidates_toml())
    rows = rig.ask("SELECT count(DISTINCT unit_id) AS n_units, count(DISTINCT candidate_first) AS n_candidates,"
                   f" count(*) AS n FROM results WHERE task = 'listwise' GROUP BY {LIST}")  # fmt: skip
    assert [tuple(row.values()) for row in rows] == [(1, 3, 3)] * 24
    best = rig.ask("SELECT item_first FROM results WHERE task = 'listwise' AND list_rank = 1 AND direction = 'forward'")
    rated = rig.ask("SELECT item_first FROM results WHERE task = 'likert'")
    assert sorted(row["item_first"] for row in rated) == sorted(row["item_first"] for row in best)
    found = rank(rig.lake, Request(by=("rubric_id",)))
    assert {row["item_kind"] for row in found.items.to_pylist()} == {"candidate"}
    matrix = rig.ask("SELECT candidate_a, n_both FROM metric_win_matrix")
    assert [row["n_both"] for row in matrix] == [12, 12, 12]
    before = rig.tree()
    rig.sync()
    assert rig.tree() == before


def test_files_and_live_answers_are_read_alike(tmp_path: Path) -> None:
    """The other modes plan, ask and read the same lists; the worker of the files answers with no JSON."""
    files = rig_of(tmp_path / "files", toml(model='mode = "files"\n'), kind=FilesStageRig)
    files.planned()
    files.submit()
    assert files.work() == 1
    files.sync()
    (row,) = files.ask("SELECT count(*) AS n, count(outcome) AS n_answered FROM calls")
    assert (row["n"], row["n_answered"]) == (24, 24)
    with live_rig(tmp_path / "live") as rig:
        path = files.study_path
        path.write_text(toml(model='mode = "live"\n'))
        plan_study(Store.init(rig.lake), load(path))
        rig.submit("demo")
        assert rig.live().n_left == 0
        rig.sync()
        rows = run_query(rig.lake, "SELECT outcome, count(*) AS n FROM calls GROUP BY ALL").to_pylist()
        assert rows == [{"outcome": "decided", "n": 24}]
        assert len(rank(rig.lake, Request()).items) == N_ITEMS


@pytest.mark.parametrize("form", ExportFormat)
def test_every_place_is_written_out(orders: StageRig, tmp_path: Path, form: ExportFormat) -> None:
    (path,) = export(orders.lake, tmp_path / f"lists.{form}", format=form, view="results")
    read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[form]
    columns = ["list_id", "direction", "list_place", "list_rank", "label"]
    found = read(path).select(columns).sort(columns[:3]).rows()
    there = orders.ask(f"SELECT {', '.join(columns)} FROM results ORDER BY list_id, direction, list_place")
    assert found == [tuple(row.values()) for row in there]


def test_the_report_shows_places_and_answers(orders: StageRig) -> None:
    """A figure of places, a sentence on the favoured one, an answer as it came; a list is one judgment."""
    page = markdown.render(build.build(orders.lake, "demo"))
    assert page.count("72 judgments by 1 judge") == page.count("| Answers and judgments planned | 72 |") == 1
    assert "Places in a list" in page
    assert "favours place 1 of 4" in page
    assert "Answers to task listwise" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (toml("[lists]\nsize = 1\n"), "not between 2 and 20"),
        (toml("[lists]\nsize = 21\n"), "not between 2 and 20"),
        (toml("[answer]\nsize = 3\n"), "stands in [lists]"),
        (toml('[pairs]\nselect = "adaptive"\n'), "no meaning for the task listwise"),
        (toml("[lists]\n").replace("listwise_order", "likert_json").replace("listwise", "likert"), "lists has no mean"),
        (toml('[[answer.fields]]\nname = "a"\nkind = "verdict"\n'), "cannot be [[answer.fields]]"),
        (toml().replace('"texts.csv"', '"texts.csv"\ntier = "t"'), "a list has items of several"),
        (candidates_toml().replace('task = "likert"', 'task = "listwise"').replace("likert_json", "listwise_answers"),
         "cannot wait for other stages"),
        (candidates_toml().replace('task = "likert"', 'task = "listwise"').replace("likert_json", "listwise_answers")
         + "[stages.lists]\nexact = true\n", "those of answers come as these do"),
    ],
)  # fmt: skip
def test_what_lists_cannot_have_is_refused_with_its_reason(tmp_path: Path, text: str, message: str) -> None:
    """Before anything is planned."""
    rig = rig_of(tmp_path, "")
    rig.write(text)
    with pytest.raises(StudyError) as raised:
        load(rig.study_path)
    assert message in f"{raised.value} {raised.value.hint}"


def test_a_share_of_lists_is_met_exactly(tmp_path: Path) -> None:
    """Of eleven lists six are asked in reverse, with `exact`; without it a study is asked as it was before."""
    rig = rig_of(tmp_path, toml("[lists]\ncount = 11\nreverse = 0.5\nexact = true\n"))
    assert rig.planned().n_requests == 11 + 6
    rig.write(toml("[lists]\ncount = 11\nreverse = 0.5\n"))
    drawn = rig.planned()
    rig.write(toml("[lists]\ncount = 11\nreverse = 0.5\nexact = false\n"))
    assert rig.planned().study_version == drawn.study_version


def test_a_template_shows_no_column_of_one_item_and_a_unit_has_enough(tmp_path: Path) -> None:
    """A list has many items; and of two candidates no list of four can be made."""
    rig = rig_of(tmp_path, toml().replace('use = "listwise_order"', 'id = "t"\ntext = "{SAMPLES} {item.author}"'))
    with pytest.raises(StudyError, match=r"item\.author"):
        rig.planned()
    rig.write(toml("[lists]\nsize = 13\n"))
    with pytest.raises(StudyError, match=r"has 12 items, lists\.size is 13"):
        rig.planned()


def test_people_are_asked_once_about_a_pair_that_many_lists_show(tmp_path: Path) -> None:
    """Whatever list it is drawn from: what is labelled is labelled in all, and two raters meet."""
    rig = finished(tmp_path, toml("[lists]\ncount = 36\n"))
    sql = "SELECT count(DISTINCT (item_lo, item_hi)) AS n, count(*) AS n_shown FROM pair_status"
    n_pairs, n_shown = rig.ask(sql)[0].values()
    assert n_pairs < n_shown / 2
    lake = rig.store().path
    everything = labels.draw(lake, "demo", 1_000)
    pairs = [frozenset(question.texts) for question in everything.questions]
    assert (everything.n_units, len(pairs), len(set(pairs))) == (n_pairs,) * 3
    assert sum(everything.standings.values()) == n_pairs
    some = labels.draw(lake, "demo", 20, seed=1)
    assert {one.key[:-1] for one in some.questions} < {one.key[:-1] for one in everything.questions}
    for rater in ("anna", "ben"):
        sheet = tmp_path / f"{rater}.csv"
        labels.write(some, sheet)
        with sheet.open(encoding="utf-8-sig", newline="") as file:
            rows = [{**row, "label": "1", "rater": rater} for row in csv.DictReader(file)]
        with sheet.open("w", newline="") as file:
            out = csv.DictWriter(file, rows[0])
            out.writeheader()
            out.writerows(rows)
        import_foreign(rig.store(), labels.reader(lake), [sheet])
    assert rig.ask("SELECT n_units FROM metric_agreement WHERE provider_a = 'human'") == [{"n_units": 20}]
    rest = labels.draw(lake, "demo", 1_000)
    assert (rest.n_units, rest.n_labelled) == (n_pairs - 20, 20)
    assert not {frozenset(one.texts) for one in rest.questions} & {frozenset(one.texts) for one in some.questions}
