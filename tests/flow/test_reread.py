"""Answers that were paid for are read anew under a new answer rule, or once what was derived is dropped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

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
