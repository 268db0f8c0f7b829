"""Cheap judges first, a third where they differ: asked as stages with SQL, told by views as if all had been asked."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import batchpond
from batchpond.cli import init
from batchpond.model import ErrorClass
from batchpond.run.submit import retry
from batchpond_sim.world.world import Settings
from tests.rigs.sim_study import LATENCY_S
from tests.rigs.stage_study import RUBRICS, StageRig, models, stage, use

CHEAP, DEAR = ("gpt-4o", "gpt-4o-mini"), "gpt-5.4-mini"
N = 60
DIFFER = (
    "EXISTS (SELECT 1 FROM jury_verdicts AS jury WHERE jury.study = results.study"
    " AND jury.rubric_id = results.rubric_id AND jury.item_lo = results.item_first AND jury.majority IS NULL)"
)
AUDIT = " OR md5(item_first) < '3'"
OF_PAIRS = (
    "EXISTS (SELECT 1 FROM jury_verdicts AS jury WHERE jury.study = results.study"
    " AND jury.item_lo = least(results.item_first, results.item_second)"
    " AND jury.item_hi = greatest(results.item_first, results.item_second) AND jury.majority IS NULL)"
)
JUDGES = ("gpt-4o*:compliance_rate=0.7,mislabel_rate=0.25", "*:compliance_rate=0.7")


def asked(name: str, items: str, *judges: str, more: str = "") -> str:
    """Return a stage of judges by statements."""
    return stage(name, "compliance", items, f"{more}---{RUBRICS}{use('compliance_json')}{models(*judges)}")


def toml(where: str | None, after: str = "") -> str:
    """Return answers, two cheap judges of them, and a third of what `where` chooses, or of all."""
    third = 'stage = "answers"' if where is None else f'stage = "first"\nwhere = """{where}"""'
    return (
        'study = "demo"\n'
        + stage("answers", "generation", 'path = "inputs.csv"\nrubric = "statement"',
                f"---{RUBRICS}{use('question')}{models('gpt-4.1-mini')}")
        + asked("first", 'stage = "answers"', *CHEAP)
        + asked("third", third, DEAR)
        + after
    )  # fmt: skip


def finished(path: Path, text: str, *faults: str) -> StageRig:
    """Return a study brought to its end."""
    settings = Settings(seed=1, latency_s=LATENCY_S, judges=JUDGES, faults=faults)
    rig = StageRig(path / "rig", settings=settings, toml=text, n_inputs=N)
    rig.plan()
    rig.submit()
    rig.finish()
    assert rig.violations() == []
    return rig


VERDICTS = "select item_lo, rubric_id, {} as said from {} order by all"


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """A cascade with audits."""
    return finished(tmp_path_factory.mktemp("cascade"), toml(DIFFER + AUDIT))


@pytest.fixture(scope="module")
def everyone(tmp_path_factory: pytest.TempPathFactory) -> StageRig:
    """The same, with the third judge asked about everything."""
    return finished(tmp_path_factory.mktemp("everyone"), toml(None))


def test_the_third_judge_is_asked_where_the_first_two_differ_and_where_it_is_audited(cascade: StageRig) -> None:
    said = cascade.ask(
        "select item_first, list(distinct verdict) as words from results where stage = 'first' group by 1"
    )
    differ = {row["item_first"] for row in said if len(row["words"]) > 1}
    audited = {row["item_first"] for row in cascade.ask("select item_first from results where md5(item_first) < '3'")
               } & {row["item_first"] for row in said}  # fmt: skip
    got = {row["item_first"] for row in cascade.ask("select item_first from results where stage = 'third'")}
    assert got == differ | audited
    assert 5 < len(differ) < N
    assert audited - differ


def test_its_verdicts_are_those_of_asking_everyone(cascade: StageRig, everyone: StageRig) -> None:
    """The majority of three, unit by unit, at a part of the price."""
    wanted = everyone.ask(VERDICTS.format("majority", "jury_verdicts"))
    assert len(wanted) == N
    assert cascade.ask(VERDICTS.format("verdict", "cascade_verdicts")) == wanted
    for row in everyone.ask("from metric_cascade"):
        assert (row["n_further_judges"], row["n_asked"], row["saved_share"]) == (0, 0, pytest.approx(0))
        assert row["agreed_share"] == row["decided_share"] == pytest.approx(row["n_agreed"] / row["n_units"])
    assert everyone.ask("from metric_cascade_words") == []
    (found,) = [row for row in cascade.ask("select n_units, n_agreed, n_differed, n_undecided, cost_usd, "
                                           "cost_everyone_usd, saved_share, rubric_id from metric_cascade "
                                           "where rubric_id = 'be_brief'")]  # fmt: skip
    assert found["n_units"] == found["n_agreed"] + found["n_differed"]
    assert found["n_undecided"] == 0
    spent = {name: rig.ask("select sum(cost_usd) as usd from judge_costs where task = 'compliance'")[0]["usd"]
             for name, rig in (("cascade", cascade), ("everyone", everyone))}  # fmt: skip
    told = cascade.ask("select sum(cost_usd) as usd, sum(cost_everyone_usd) as everyone from metric_cascade")[0]
    assert told["usd"] == pytest.approx(spent["cascade"])
    assert told["everyone"] == pytest.approx(spent["everyone"], rel=0.05)
    assert told["usd"] < told["everyone"]


def test_the_report_shows_the_jury_and_what_the_cascade_saved(cascade: StageRig, tmp_path: Path) -> None:
    batchpond.Lake(cascade.lake).report("demo", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    for title in ("The judges together as a jury", "The cascade of judges"):
        assert title in text
    saved = [row["saved_share"] for row in cascade.ask("select saved_share from metric_cascade")]
    assert all(0 < share < 1 for share in saved)
    assert all(f"{share:.1%}".replace("%", "") in text for share in saved)


def test_judges_without_labels_are_estimated_from_the_part_that_each_saw(cascade: StageRig) -> None:
    """Dawid and Skene's model over all three: the two that mislabel are found out, and nothing is left out."""
    judges, units = batchpond.Lake(cascade.lake).jury("demo")
    assert set(judges["is_converged"]) == {True}
    rows = judges.filter(pl.col("word") == pl.col("said")).group_by("request_model").agg(pl.col("n_units").first())
    assert len(rows) == 3
    likely = {(row["item_lo"], row["rubric_id"]): row["word"] for row in units.to_dicts() if row["probability"] > 0.5}
    assert len(likely) == N


def test_what_follows_a_jury_is_chosen_by_its_verdict(tmp_path: Path) -> None:
    """A stage whose rows are those that the jury rejects, whoever of it was asked; each once."""
    rejected = DIFFER.replace("jury.majority IS NULL", "jury.majority = 'false'")
    after = stage(
        "again", "compliance", f'stage = "first"\nwhere = """{rejected}"""',
        f'---{RUBRICS}{use("compliance_brief")}{models("gpt-4.1")}',
    )  # fmt: skip
    after = after.replace('stage = "first"', 'stage = "first"\nafter = ["third"]')
    rig = finished(tmp_path, toml(DIFFER, after))
    verdicts = rig.ask("select item_lo from cascade_verdicts where verdict = 'false' order by 1")
    # the fourth judge is one of the jury by now; what it was asked about was chosen before it spoke
    first = rig.ask("""
        select item_first as item_lo from results where stage in ('first', 'third') and verdict is not null
        group by 1 having count(*) filter (verdict = 'false') * 2 > count(*) order by 1""")
    asked_again = rig.ask("select distinct item_first as item_lo from results where stage = 'again' order by 1")
    assert asked_again == first
    assert 0 < len(asked_again) < N
    assert verdicts
    rounds = {row["stage"]: row["n"] for row in rig.ask("select stage, max(round_no) as n from results group by 1")}
    assert rounds["again"] > rounds["third"] > rounds["first"]


def test_an_item_on_which_a_judge_is_silent_goes_to_the_third_too(tmp_path: Path) -> None:
    """An answer that failed is no agreement."""
    rig = finished(tmp_path, toml(DIFFER), "lines@2:error_rows=3")
    silent = {row["item_first"] for row in rig.ask(
        "select item_first from results where stage = 'first' and outcome = 'error'")}  # fmt: skip
    got = {row["item_first"] for row in rig.ask("select item_first from results where stage = 'third'")}
    assert silent
    assert silent <= got


def ask_again(rig: StageRig) -> None:
    """Ask again for whatever failed, and bring that to its end."""
    retry(rig.store(), "demo", classes=list(ErrorClass), confirm=lambda *_: True, providers=rig.providers())
    rig.finish()


CASCADE = "select sum({}) as n from metric_cascade"


def test_what_was_asked_since_a_judge_failed_is_no_audit_when_it_has_answered_since(tmp_path: Path) -> None:
    """Without audits there are none after a retry either, and those that were drawn stay what they are."""
    rig = finished(tmp_path, toml(DIFFER + AUDIT), "lines@2:error_rows=9")
    failed = {row["item_first"] for row in rig.ask(
        "select item_first from results where stage = 'first' and outcome = 'error'")}  # fmt: skip
    assert rig.ask(CASCADE.format("n_stand_in")) == [{"n": len(failed)}]
    ask_again(rig)
    assert rig.ask("select count(*) as n from results where stage = 'first' and outcome <> 'decided'") == [{"n": 0}]
    stood_in = rig.ask("select item_lo from cascade_verdicts where is_stand_in")
    assert {row["item_lo"] for row in stood_in} == failed
    assert rig.ask("select count(*) as n from cascade_verdicts where is_stand_in and is_agreed")[0]["n"] > 3
    drawn = rig.ask(
        "select count(*) as n from cascade_verdicts where is_agreed and not is_stand_in and md5(item_lo) < '3'"
    )
    assert rig.ask(CASCADE.format("n_audited")) == drawn
    assert rig.ask("select sum(n_heard_agreed) as n from metric_cascade_words where word = 'true'") == drawn
    assert drawn[0]["n"] > 3
    parts = rig.ask(CASCADE.format("n_asked + n_audited + n_stand_in"))
    assert parts == rig.ask("select count(*) as n from results where stage = 'third'")


def test_a_cascade_of_which_a_first_judge_answered_nothing_is_told(tmp_path: Path) -> None:
    """The third was asked about all then, and is a further judge all the same, whatever a retry brings."""
    rig = finished(tmp_path, toml(DIFFER), f"lines@2:error_rows={N}")
    (told,) = rig.ask(
        "select sum(n_units) as n_units, sum(n_stand_in) as n_stand_in, sum(n_agreed) as n_agreed,"
        " sum(n_audited) as n_audited, count(confirmed_share) as n_confirmed, max(n_first_judges) as n_first,"
        " max(n_further_judges) as n_further from metric_cascade"
    )
    nothing = {"n_agreed": 0, "n_audited": 0, "n_confirmed": 0}
    assert told == nothing | {"n_units": N, "n_stand_in": N, "n_first": 2, "n_further": 1}
    ask_again(rig)
    (told,) = rig.ask("select sum(n_stand_in) as n, sum(n_audited) as n_audited, sum(n_agreed) as n_agreed"
                      " from metric_cascade")  # fmt: skip
    assert told["n"] == N
    assert told["n_audited"] == 0
    assert 0 < told["n_agreed"] < N


def test_pairs_go_to_the_third_judge_in_both_orders(tmp_path: Path) -> None:
    """Where two judges of pairs hold different things of a pair, or one flips."""
    rubric = '[[stages.rubrics]]\nuse = "overall_quality"\n'
    text = (
        'study = "demo"\n'
        + stage("first", "pairwise", 'path = "texts.csv"', f"---{rubric}{use('plain')}{models(*CHEAP)}")
        + stage("third", "pairwise", f'stage = "first"\nwhere = """{OF_PAIRS}"""',
                f"---{rubric}{use('plain')}{models(DEAR)}")
    )  # fmt: skip
    settings = Settings(seed=1, latency_s=LATENCY_S)
    rig = StageRig(tmp_path / "rig", settings=settings, toml=text)
    rows = [f"t{n},Text number {n} [[quality={0.5 + n / 50}]]" for n in range(8)]
    (rig.study_path.parent / "texts.csv").write_text("\n".join(["id,text", *rows]) + "\n")
    rig.plan()
    rig.submit()
    rig.finish()
    held = rig.ask("""
        select item_lo, item_hi, list(distinct case when status like 'consistent%' then majority_lo_first end) as words,
               count(*) filter (status like 'consistent%') as n
        from pair_status where request_model in ('gpt-4o', 'gpt-4o-mini') group by all""")
    differ = {(row["item_lo"], row["item_hi"]) for row in held if row["n"] < 2 or len(row["words"]) > 1}
    found = rig.ask("""
        select least(item_first, item_second) as lo, greatest(item_first, item_second) as hi, count(*) as n
        from results where stage = 'third' group by all""")
    assert {(row["lo"], row["hi"]) for row in found} == differ
    assert 0 < len(differ) < 28
    assert {row["n"] for row in found} == {2}


def test_the_example_is_a_cascade(tmp_path: Path) -> None:
    """What `init --example cascade` writes runs on the simulators, and the views tell of it."""
    text = init.example("cascade")
    rig = StageRig(tmp_path / "rig", settings=Settings(seed=1, latency_s=LATENCY_S, judges=JUDGES), toml=text)
    for name, content in init.example_data(text).items():
        (rig.study_path.parent / name).write_text(content)
    report = rig.planned()
    assert {one.name: one.waits_for for one in report.stages} == {"first": (), "third": ("first",)}
