"""Answers that were paid for are read anew under a new answer rule, or once what was derived is dropped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchpond.plan.rounds.inputs import query
from batchpond.run.resolve import Change, read_beside, reread
from batchpond.run.submit import retry
from batchpond.tasks.base import READER
from batchpond.views import refresh
from tests.rigs.sim_inputs import STUDY
from tests.rigs.sim_study import Rig

TEMPLATE = """
[answer]
prefix = "{prefix}"
first = "SAMPLE_1"
second = "SAMPLE_2"
suffix = "{suffix}"
"""
# The wording asks for tags that the study's rule need not share, so another rule leaves the requests as they are.
WORDING = (
    "Judge {TRAIT_NAME}: {TRAIT_DESCRIPTION} 1: {SAMPLE_1} 2: {SAMPLE_2}"
    " Answer <BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE> or <BETTER_SAMPLE>SAMPLE_2</BETTER_SAMPLE>."
)


def set_rule(rig: Rig, prefix: str, suffix: str) -> None:
    """Write the study with this answer rule."""
    text = rig.study_path.read_text().split("[answer]")[0].rstrip() + "\n"
    (rig.study_path.parent / "own.txt").write_text(WORDING)
    text = text.replace('use = "plain"', 'file = "own.txt"')
    rig.study_path.write_text(text + TEMPLATE.format(prefix=prefix, suffix=suffix))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A study over two shards, answered and verified under a rule that the answers fit."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), with_lens=False, max_requests=6)
    set_rule(rig, "<BETTER_SAMPLE>", "</BETTER_SAMPLE>")
    rig.plan()
    rig.submit()
    rig.settle()
    yield rig
    rig.world.close()


def outcomes(rig: Rig) -> dict[object, dict[object, int]]:
    """Return how often each outcome stands under each rule."""
    found: dict[object, dict[object, int]] = {}
    sql = "select parser_id, outcome, count(*) from judgments group by all order by all"
    for parser_id, outcome, n in rig.rows(sql, "judgments"):
        found.setdefault(parser_id, {})[outcome] = int(str(n))
    return found


def test_a_new_answer_rule_reads_what_is_there_and_asks_nothing(rig: Rig) -> None:
    (first_rule,) = outcomes(rig)
    n_posts, n_calls = rig.wire.n_create_posts, sum(rig.wire.calls.values())
    set_rule(rig, "<VERDICT>", "</VERDICT>")
    rig.plan()
    report = rig.sync()
    assert report.counts.n_read_again == 2
    found = outcomes(rig)
    (second_rule,) = set(found) - {first_rule}
    assert found[first_rule] == {"decided": 12}
    assert found[second_rule] == {"unparsed": 12}
    assert (rig.wire.n_create_posts, sum(rig.wire.calls.values())) == (n_posts, n_calls)
    assert rig.violations() == []
    before = rig.tree()
    assert rig.sync().counts.n_read_again == 0
    assert rig.tree() == before


def test_what_is_derived_may_be_dropped_and_comes_back_the_same(rig: Rig) -> None:
    derived = ("responses", "judgments")
    query = "select * from {0} order by all"
    before = {name: rig.rows(query.format(name), name) for name in derived}
    for name in derived:
        shutil.rmtree(rig.lake / name)
    assert rig.rows("select * from responses", "responses") == []
    assert rig.sync().counts.n_read_again == 2
    assert {name: rig.rows(query.format(name), name) for name in derived} == before
    assert rig.violations() == []


def test_a_price_that_is_set_holds_for_all_answers_from_the_next_pass_on(rig: Rig) -> None:
    """It depended on when each was read last: a new answer rule made of one sum another."""

    def cost_usd() -> float:
        return float(str(rig.rows("select sum(cost_usd) from responses", "responses")[0][0]))

    before = cost_usd()
    (rig.lake / "config.toml").write_text('[prices."openai/gpt-4.1-mini"]\ninput = 40.0\noutput = 160.0\n')
    assert rig.sync().counts.n_read_again == 2
    after, tree = cost_usd(), rig.tree()
    assert after > 50 * before
    assert rig.sync().counts.n_read_again == 0
    assert rig.tree() == tree
    set_rule(rig, "<VERDICT>", "</VERDICT>")
    rig.plan()
    rig.sync()
    assert cost_usd() == pytest.approx(after)
    (rig.lake / "config.toml").unlink()
    rig.sync()
    assert cost_usd() == pytest.approx(before)


def test_a_rule_of_other_requests_is_not_read_into_answers_that_are_not_its_own(rig: Rig) -> None:
    rules = set(outcomes(rig))
    set_rule(rig, "<VERDICT>", "</VERDICT>")
    (rig.study_path.parent / "own.txt").write_text(f"Again. {WORDING}")
    rig.plan()
    assert rig.sync(submit_due=False).counts.n_read_again == 0
    assert set(outcomes(rig)) == rules


def test_a_newer_reader_replaces_what_an_older_one_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchpond.answers.READER_VERSION", 2)
    assert rig.sync().counts.n_read_again == 2
    assert rig.rows("select count(*), count(distinct request_id) from responses", "responses") == [(12, 12)]
    assert rig.sync().counts.n_read_again == 0


def standing(rig: Rig) -> dict[object, int]:
    """Return how often each outcome stands in the study's results."""
    refresh.refresh(rig.store())
    return {
        row["outcome"]: row["n"] for row in query(rig.store(), "SELECT outcome, count(*) AS n FROM results GROUP BY 1")
    }


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A study that was planned when reader 1 was the newest, which cannot read its answers: its words are others."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), with_lens=False, max_requests=6)
    set_rule(rig, "<BETTER_SAMPLE>", "</BETTER_SAMPLE>")
    rig.study_path.write_text(rig.study_path.read_text().replace('"SAMPLE_', '"SAMPLE '))
    with monkeypatch.context() as patch:
        patch.setattr("batchpond.plan.verb.READER", 1)
        rig.plan()
    rig.submit()
    rig.settle()
    yield rig
    rig.world.close()


def test_a_study_keeps_its_reader_until_it_is_reread_and_nothing_is_asked_again(old: Rig) -> None:
    n_posts, n_calls = old.wire.n_create_posts, sum(old.wire.calls.values())
    (rule,) = outcomes(old)
    old.plan()
    old.sync()
    assert outcomes(old) == {rule: {"unparsed": 12}}
    plan = old.rows("select * from plan order by all", "plan")
    found = read_beside(old.store(), STUDY, providers=old.providers())
    assert (found.reader_before, found.reader, found.n_read_again, found.notes) == (1, READER, 2, ())
    assert {(one.task, one.before) for one in found.changes} == {("pairwise", "unparsed")}
    assert {one.after for one in found.changes} <= {"first", "second"}
    assert sum(one.n_answers for one in found.changes) == 12
    assert standing(old) == {"unparsed": 12}, "what is read beside changes nothing"
    reread(old.store(), STUDY)
    assert outcomes(old) == {rule: {"unparsed": 12}, f"{rule}-r{READER}": {"decided": 12}}
    assert standing(old) == {"decided": 12}
    assert old.rows("select * from plan order by all", "plan") == plan
    assert old.sync().counts.n_read_again == 0
    before = old.tree()
    assert read_beside(old.store(), STUDY, providers=old.providers()).n_read_again == 0
    assert old.sync().counts.n_read_again == 0
    assert old.tree() == before
    assert (old.wire.n_create_posts, sum(old.wire.calls.values())) == (n_posts, n_calls)
    assert old.violations() == []


def test_a_changed_study_goes_on_with_its_reader(old: Rig) -> None:
    """Also where another version of it is planned, and after it was reread with the new one."""
    text = old.study_path.read_text()
    old.study_path.write_text(text.replace('"SAMPLE ', '"Sample '))
    old.plan()
    old.sync()
    assert len(outcomes(old)) == 2
    assert {*map(str, outcomes(old).values())} == {str({"unparsed": 12})}
    read_beside(old.store(), STUDY, providers=old.providers())
    reread(old.store(), STUDY)
    old.study_path.write_text(text)
    old.plan()
    old.sync()
    rules = {str(name).removesuffix(f"-r{READER}") for name in outcomes(old)}
    assert len(rules) == 2
    assert {*outcomes(old)} == rules | {f"{rule}-r{READER}" for rule in rules}


def test_a_new_study_has_the_newest_reader(rig: Rig) -> None:
    (rule,) = outcomes(rig)
    assert str(rule).endswith(f"-r{READER}")
    assert read_beside(rig.store(), STUDY, providers=rig.providers()).reader_before == READER
    assert rig.violations() == []


def test_what_a_filter_withheld_is_an_error_until_the_study_is_reread_and_nothing_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter's error is nothing to ask again for, whichever reader reads it."""
    rig = Rig(tmp_path, models=("gpt-4.1-mini",), max_requests=20)
    with monkeypatch.context() as patch:
        patch.setattr("batchpond.plan.verb.READER", 2)
        rig.plan()
    rig.world.add_fault("lines@1:filtered_rows=3")
    rig.submit()
    rig.settle()
    before, n_posts = standing(rig), rig.wire.n_create_posts
    assert before["error"] == 3
    again = retry(rig.store(), STUDY, confirm=lambda *_: True, providers=rig.providers())
    assert again.submitted.preview.n_requests == 0
    found = read_beside(rig.store(), STUDY, providers=rig.providers())
    assert [one for one in found.changes if one.before != one.after] == [Change("pairwise", "error", "blocked", 3)]
    assert standing(rig) == before, "what is read beside changes nothing"
    reread(rig.store(), STUDY)
    after = standing(rig)
    assert after.pop("blocked") == before.pop("error")
    assert after == before
    assert rig.wire.n_create_posts == n_posts
    assert rig.violations() == []
    rig.world.close()
