"""Pairs of one's own, pairs within blocks, exact numbers of them, and one question per line as an item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpond.errors import StudyError
from batchpond.lake.schemas import PLAN
from batchpond.lake.store import Store
from batchpond.plan.items import allowed_pairs, choose_pairs
from batchpond.plan.verb import plan_study
from batchpond.study.file import load
from batchpond.study.spec import Order, PairsSpec, from_config
from tests.rigs.clock import ManualClock
from tests.rigs.lakes import START
from tests.rigs.sim_cache import without_lens
from tests.rigs.toy_provider import modules

STUDY = """\
study = "own"
rubrics = ["overall_quality"]
templates = ["plain"]
[items]
path = "items.csv"
[pairs]
{pairs}
[[models]]
provider = "openai"
model = "m"
max_output_tokens = 100
"""
ITEMS = "id,text,prompt\n" + "".join(f"i{n},text {n},p{n % 3}\n" for n in range(9))
PAIRS = [("i3", "i1"), ("i0", "i8"), ("i5", "i4")]
Asked = list[tuple[str, str, str]]


@pytest.fixture(scope="module", autouse=True)
def _no_lens() -> Iterator[None]:
    with without_lens():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "items.csv").write_text(ITEMS)
    return tmp_path


def csv_of(pairs: list[tuple[str, str]], head: str = "item_1,item_2,band") -> str:
    """Return pairs as CSV, with a column more."""
    return "\n".join([head, *(f"{one},{two},low" for one, two in pairs)]) + "\n"


def planned(folder: Path, pairs: str, text: str = STUDY) -> tuple[str, Asked, list[str]]:
    """Plan a study into a new lake; returns its version, what is asked as first, second, direction, and request ids."""
    (folder / "study.toml").write_text(text.format(pairs=pairs))
    store = Store.init(folder / f"lake{len(list(folder.glob('lake*')))}", ManualClock(START))
    report = plan_study(store, load(folder / "study.toml"), modules=modules)
    files = [pq.ParquetFile(path).read() for path in store.files(PLAN.name)]
    rows = pa.concat_tables(files).sort_by("slot").to_pylist()
    asked = [(row["item_first"], row["item_second"], row["direction"]) for row in rows]
    return report.study_version, asked, [row["request_id"] for row in rows]


def refusal(folder: Path, pairs: str, text: str = STUDY) -> str:
    """Return what planning is refused with, and the hint."""
    with pytest.raises(StudyError) as caught:
        planned(folder, pairs, text)
    return f"{caught.value.message} ({caught.value.hint})"


def write(path: Path, pairs: list[tuple[str, str]]) -> None:
    """Write pairs in the format that the file's name says."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"item_1": [one for one, _ in pairs], "item_2": [two for _, two in pairs]}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"item_1": one, "item_2": two}) + "\n" for one, two in pairs))
    else:
        path.write_text(csv_of(pairs))


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.jsonl", "pairs.parquet"])
def test_just_the_pairs_of_a_file_are_asked(folder: Path, name: str) -> None:
    """In both orders by default; with a fixed order the first column's item is first, as the file says."""
    write(folder / name, PAIRS)
    _, asked, _ = planned(folder, f'path = "{name}"\norder = "fixed"')
    wanted = {(one, two, "forward") for one, two in PAIRS} | {(two, one, "reverse") for one, two in PAIRS}
    assert len(asked) == 6
    assert set(asked) == wanted


def test_the_version_is_what_the_pairs_say_and_not_where_their_rows_stand(folder: Path) -> None:
    """Another order of rows is the same study; another pair, or another item first, is another version."""
    pairs = 'path = "pairs.csv"\norder = "fixed"'
    versions = []
    for rows in (PAIRS, PAIRS[::-1], [*PAIRS[:2], ("i4", "i5")], PAIRS[:2]):
        write(folder / "pairs.csv", rows)
        versions.append(planned(folder, pairs)[0])
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_a_pair_of_ones_own_is_the_request_that_it_is_among_all_pairs(folder: Path) -> None:
    """So nothing is bought again when a study of all pairs becomes one of a few."""
    write(folder / "pairs.csv", PAIRS)
    _, few, few_ids = planned(folder, 'path = "pairs.csv"')
    _, every, every_ids = planned(folder, "")
    of_all = dict(zip([row[:2] for row in every], every_ids, strict=True))
    assert [of_all[row[:2]] for row in few] == few_ids


def test_pairs_come_from_sql_with_columns_of_any_name(folder: Path) -> None:
    sql = "select 'i2' as a, 'i7' as b, 'close' as why"
    _, asked, _ = planned(folder, f'sql = "{sql}"\nitem_1 = "a"\nitem_2 = "b"')
    assert {row[:2] for row in asked} == {("i2", "i7"), ("i7", "i2")}


def test_a_share_or_count_is_drawn_from_the_pairs_given(folder: Path) -> None:
    write(folder / "pairs.csv", PAIRS)
    _, asked, _ = planned(folder, 'path = "pairs.csv"\ncount = 2\nreverse = false')
    assert len(asked) == 2
    assert {tuple(sorted(row[:2])) for row in asked} < {tuple(sorted(pair)) for pair in PAIRS}


STAGES = """\
study = "own"
[[stages]]
name = "judge"
task = "pairwise"
rubrics = ["overall_quality"]
templates = ["plain"]
items = {{ path = "items.csv", tier = "tier" }}
pairs = {{ {pairs} }}
models = [{{ provider = "openai", model = "m", max_output_tokens = 100 }}]
"""


def test_a_stage_asks_its_own_pairs_and_its_settings_come_back_from_the_lake(folder: Path) -> None:
    """Also where rows have tiers, so that asks are made one by one."""
    (folder / "items.csv").write_text(ITEMS.replace("prompt", "tier").replace(",p", ",").replace(",0\n", ",3\n"))
    write(folder / "pairs.csv", PAIRS)
    _, asked, _ = planned(folder, 'path = "pairs.csv", n_reverse = 1', STAGES)
    assert {tuple(sorted(row[:2])) for row in asked} == {tuple(sorted(pair)) for pair in PAIRS}
    assert [row[2] for row in asked].count("reverse") == 1
    store = Store.open(folder / "lake0", ManualClock(START))
    (config,) = pq.ParquetFile(store.files("studies")[0]).read()["config"].to_pylist()
    (stage,) = from_config(json.loads(config)).stages
    assert stage.pairs == load(folder / "study.toml").stages[0].pairs
    assert (stage.pairs.n_reverse, stage.pairs.is_exact) == (1, True)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("i1", "i99")], "pairs.csv: 1 unusable pairs:\n  line 2: there is no item 'i99'"),
        ([("i1", "i1")], "line 2: item 'i1' is compared with itself"),
        ([("i1", "i2"), ("i3", "i4"), ("i2", "i1")], "line 4: the pair of 'i1' and 'i2' stands in line 2 already"),
        ([("", "i2")], "line 2: no id, or not a text or whole number"),
        ([(f"x{n}", "i1") for n in range(30)], "and 10 more"),
    ],
)
def test_pairs_that_cannot_be_asked_are_named_by_file_and_line(
    folder: Path, rows: list[tuple[str, str]], says: str
) -> None:
    """All in one error; nothing is planned."""
    write(folder / "pairs.csv", rows)
    assert says in refusal(folder, 'path = "pairs.csv"')
    assert "nothing was planned" in refusal(folder, 'path = "pairs.csv"')


WAITING = STAGES.replace("{pairs}", "count = 3").replace(', tier = "tier"', "")
WAITING += """\
[[stages]]
name = "again"
task = "pairwise"
rubrics = ["overall_quality"]
templates = ["plain"]
items = {{ stage = "judge" }}
pairs = {{ {pairs} }}
models = [{{ provider = "openai", model = "m2", max_output_tokens = 100 }}]
"""


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ('path = "pairs.csv"\nitem_1 = "first"', "pairs.csv: line 2 has no column 'first'; it has 'item_1', 'item_2'"),
        ('path = "pairs.txt"', "study.toml:7: pairs.path has no columns that could name two items"),
        ('path = "pairs.xlsx"', "study.toml:7: pairs.path ends with '.xlsx'"),
        ('path = "absent.csv"', "absent.csv: No such file"),
        ('path = "pairs.csv"\nsql = "select 1"', "pairs has path and sql; it needs exactly one"),
        ('path = "pairs.csv"\nblock = "prompt"', "pairs.block cannot be given together with path or sql"),
        ('item_1 = "a"', "study.toml:7: pairs.item_1 has a meaning only with path or sql"),
        ("n_reverse = 2\nreverse = 0.5", "pairs.n_reverse cannot be given together with reverse"),
        ("count = 3\nn_reverse = 4", "pairs.n_reverse is 4, and only 3 pairs are asked"),
        ('block = "topic"', "pairs.block: item 'i0' has no 'topic'"),
        (
            'select = "adaptive"\nblock = "prompt"',
            'pairs.block has no meaning with `select = "adaptive"` (rounds choose',
        ),
        ('select = "adaptive"\npath = "pairs.csv"', 'pairs.path has no meaning with `select = "adaptive"`'),
        ('select = "adaptive"\nexact = true', 'pairs.exact has no meaning with `select = "adaptive"`'),
        ('select = "adaptive"\nn_reverse = 1', 'pairs.n_reverse has no meaning with `select = "adaptive"`'),
    ],
)
def test_settings_of_pairs_that_have_no_meaning_are_refused(folder: Path, pairs: str, says: str) -> None:
    write(folder / "pairs.csv", PAIRS)
    assert says in refusal(folder, pairs)


@pytest.mark.parametrize("key", ['path = "pairs.csv"', 'sql = "select 1"', 'block = "prompt"'])
def test_a_stage_that_waits_for_answers_has_no_pairs_of_ones_own(folder: Path, key: str) -> None:
    """Its items are not there when the study is planned, and the file would not be there when they are."""
    write(folder / "pairs.csv", PAIRS)
    name = key.partition(" ")[0]
    says = refusal(folder, key, WAITING)
    assert f"pairs.{name} is of items that are there when the study is planned; this stage waits for judge" in says


@pytest.mark.parametrize("key", ["exact = true", "n_reverse = 1"])
def test_a_stage_that_compares_what_another_did_is_not_exact(folder: Path, key: str) -> None:
    """Which pairs those are is not known before, and a number of all pairs is none of theirs."""
    assert "cannot be adaptive or exact: this stage compares just what judge compared" in refusal(folder, key, WAITING)


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=12), st.booleans())
def test_blocks_are_the_pairs_of_items_with_the_same_value(values: list[str], is_sampled: bool) -> None:
    """All of them, or some; never one of two values."""
    names = [f"i{n:02}" for n in range(len(values))]
    of = dict(zip(names, values, strict=True))
    spec = PairsSpec(block="grade", count=2 if is_sampled else None)
    wanted = [pair for pair in combinations(names, 2) if of[pair[0]] == of[pair[1]]]
    allowed = allowed_pairs(spec, of, Path())
    assert allowed is not None
    if not wanted:
        with pytest.raises(StudyError, match="there is no pair to ask"):
            choose_pairs(names, spec, 1, allowed)
        return
    found = choose_pairs(names, spec, 1, allowed)
    pairs = [(names[lo], names[hi]) for lo, hi in zip(found.lo.tolist(), found.hi.tolist(), strict=True)]
    assert set(pairs) <= set(wanted)
    assert len(pairs) == (min(2, len(wanted)) if is_sampled else len(wanted))
    assert pairs == sorted(pairs)


def test_a_block_is_a_column_of_the_items(folder: Path) -> None:
    """Nine items in three blocks of three make nine pairs."""
    _, asked, _ = planned(folder, 'block = "prompt"\nreverse = false')
    assert len(asked) == 9
    assert all(int(one[1]) % 3 == int(two[1]) % 3 for one, two, _ in asked)


@given(st.integers(2, 30), st.floats(0, 1), st.floats(0.01, 1), st.integers(0, 9), st.sampled_from(Order))
def test_exact_shares_are_met_to_the_nearest_whole(
    n: int, reverse: float, share: float, seed: int, order: Order
) -> None:
    """Of the pairs, and of those that are asked in the other order; those with the smallest draws, so a larger share
    holds a smaller one, and neither choice nor order of a pair is another than without."""
    names = [f"i{number:02}" for number in range(n)]
    n_all = n * (n - 1) // 2
    if not round(share * n_all):
        return
    spec = PairsSpec(share=share, reverse=reverse, order=order, is_exact=True)
    found = choose_pairs(names, spec, seed)
    assert len(found) == round(share * n_all)
    assert found.has_reverse.sum() == round(reverse * len(found))
    more = choose_pairs(
        names, PairsSpec(share=share, reverse=min(1.0, reverse + 0.1), order=order, is_exact=True), seed
    )
    assert not np.any(found.has_reverse & ~more.has_reverse)
    loose = choose_pairs(names, PairsSpec(count=len(found), reverse=reverse, order=order), seed)
    assert (found.lo.tolist(), found.hi.tolist()) == (loose.lo.tolist(), loose.hi.tolist())
    assert found.lo_first.tolist() == loose.lo_first.tolist()


def test_half_of_41_pairs_is_20_or_21(folder: Path) -> None:
    """Of pairs of one's own, and of others where `exact` says so; drawn singly it need not be."""
    write(folder / "pairs.csv", list(combinations([f"i{n}" for n in range(10)], 2))[:41])
    (folder / "items.csv").write_text(ITEMS + "i9,text 9,p0\n")
    counts = {}
    for pairs in (
        'path = "pairs.csv"\nreverse = 0.5',
        "count = 41\nreverse = 0.5\nexact = true",
        "count = 41\nn_reverse = 16",
    ):
        counts[pairs] = [row[2] for row in planned(folder, pairs)[1]].count("reverse")
    assert [*counts.values()] == [20, 20, 16]


def test_each_line_of_a_text_file_is_an_item(folder: Path) -> None:
    """Its number is its id; blank lines are none; a byte order mark and the ends of other systems are no text."""
    (folder / "questions.txt").write_bytes("\ufeffWhy?\r\n\r\nWho, “you”?\u2028\nLast".encode())
    text = STUDY.replace("items.csv", "questions.txt")
    _, asked, _ = planned(folder, "reverse = false", text)
    assert {item for row in asked for item in row[:2]} == {"1", "3", "4"}
    items = {row["item_id"]: row["text"] for path in Store.open(folder / "lake0", ManualClock(START)).files("items")
             for row in pq.ParquetFile(path).read().to_pylist()}  # fmt: skip
    assert items == {"1": "Why?", "3": "Who, “you”?\u2028", "4": "Last"}
    says = refusal(folder, "", text.replace('questions.txt"', 'questions.txt"\nid = "q"'))
    assert "items.id has no meaning with lines: ids are their numbers" in says
    (folder / "questions.txt").write_bytes(b"ok\n\xff\n")
    assert "questions.txt:2: not valid UTF-8" in refusal(folder, "", text)
