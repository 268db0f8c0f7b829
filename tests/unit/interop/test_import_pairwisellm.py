"""What pairwiseLLM left behind: its verdicts where they can be believed, and its known faults by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from batchpond.lake.store import Store
from batchpond.views import database
from batchpond.views.read import run_query
from batchpond_importers.pairwisellm import read
from tests.rigs.foreign import bring, doubts, items, judged, put, refusal, state

FIRST = "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"
SECOND = "<BETTER_SAMPLE>SAMPLE_2</BETTER_SAMPLE>"
SHARED = Path(os.environ.get("BATCHPOND_SHARED", Path(__file__).parents[4] / "shared"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty lake."""
    return Store.init(tmp_path / "lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files of the other tool stand."""
    return tmp_path / "theirs"


def result(first: str = "S01", second: str = "S02", better: str | None = "S01", **columns: Any) -> dict[str, Any]:
    """Return a row as `parse_openai_batch_output` makes it."""
    row = {"custom_id": f"EXP_{first}_vs_{second}", "ID1": first, "ID2": second, "model": "gpt-x", "status_code": 200}
    return row | ({"better_id": better} if better else {"better_id": "NA"}) | columns


def only(store: Store) -> dict[str, Any]:
    """Return the one judgment in the lake."""
    (row,) = judged(store).values()
    return row


def test_a_multi_batch_folder_comes_in_with_what_its_registry_says(store: Store, folder: Path) -> None:
    """Provider and model are the registry's, each row says where it stood, and `combined` counts once."""
    put(folder, "jobs_registry.csv", [
        {"segment_index": 1, "provider": "openai", "model": "gpt-x", "batch_id": "batch_1",
         "batch_output_path": "C:\\out\\batch_01_output.jsonl", "csv_path": "o/batch_01_results.csv"},
    ])  # fmt: skip
    rows = [result(content=FIRST, model="gpt-x-2025-01-01", prompt_tokens="120.0", completion_tokens=7),
            result("S02", "S01", "S01", content=f"because\n{SECOND}")]  # fmt: skip
    put(folder, "batch_01_results.csv", rows)
    put(folder, "combined_results.csv", rows)
    put(folder, "batch_01_pairs.rds", b"\x1f\x8b")
    report = bring(store, read, folder, defaults={"study": "essays", "template_id": "test1"})
    assert (report.judgments.n_new, report.n_skipped, doubts(report)) == (2, 2, {})
    assert [(b.provider, b.batch_id, b.model) for b in report.batches] == [("openai", "batch_1", "gpt-x")]
    found = judged(store)
    assert list(found) == ["batch_01_results.csv:2", "batch_01_results.csv:3"]
    one = found["batch_01_results.csv:2"]
    assert (one["study"], one["template_id"], one["provider"], one["request_model"]) == (
        "essays", "test1", "openai", "gpt-x",
    )  # fmt: skip
    assert (one["task"], one["verdict"], one["outcome"], one["input_tokens"]) == ("pairwise", "first", "decided", 120)
    assert [row["verdict"] for row in found.values()] == ["first", "second"]


def test_importing_again_changes_nothing(store: Store, folder: Path) -> None:
    """A second import, also of the folder under another name, is a no-op to the byte."""
    put(folder, "batch_01_results.csv", [result(), result(better="S02"), result("S01", "S03", "S03")])
    put(folder, "samples.csv", [{"ID": "S01", "text": "one", "quality": 3}])
    bring(store, read, folder)
    before = state(store)
    folder.rename(folder.with_name("moved"))
    report = bring(store, read, folder.with_name("moved"))
    assert (report.judgments.n_new, report.judgments.n_known, report.items.n_known) == (0, 3, 1)
    assert state(store) == before


@pytest.mark.parametrize(
    ("columns", "verdict", "outcome", "doubt"),
    [
        ({"content": FIRST}, "first", "decided", None),
        ({"content": f"{FIRST} or {SECOND}"}, None, "ambiguous", "both-answers"),
        ({"content": SECOND}, None, "unparsed", "contradictory"),
        ({"content": "the first"}, None, "unparsed", "unread-winner"),
        ({"better_id": "NA", "content": "<BETTER_SAMPLE> SAMPLE_1 </BETTER_SAMPLE>"}, "first", "decided", None),
        ({"better_id": "NA", "content": "neither"}, None, "unparsed", None),
        ({"better_id": "NA"}, None, "unparsed", None),
        ({"better_id": "NA", "status_code": "NA"}, None, "missing", None),
        ({"better_id": "NA", "status_code": 500}, None, "error", None),
        ({"better_id": "NA", "error_message": "bad"}, None, "error", None),
        ({"better_id": "NA", "result_type": "expired"}, None, "expired", None),
        ({"better_id": "NA", "result_type": "canceled"}, None, "cancelled", None),
        ({"better_id": "S09"}, None, "unparsed", "invalid-winner"),
        ({"better_sample": "SAMPLE_2"}, None, "unparsed", "contradictory"),
        ({"winner_pos": 1}, "first", "decided", None),
        ({"status_code": 500}, None, "error", "contradictory"),
    ],
)
def test_the_winner_is_believed_only_as_far_as_it_shows(
    store: Store, folder: Path, columns: dict[str, Any], verdict: str | None, outcome: str, doubt: str | None
) -> None:
    """Both tags are no vote for the first, a failure is no tie, and a winner that the text denies is none."""
    put(folder, "results.csv", [result() | columns])
    report = bring(store, read, folder)
    row = only(store)
    assert (row["verdict"], row["outcome"]) == (verdict, outcome)
    assert doubts(report) == ({doubt: 1} if doubt else {})


@pytest.mark.parametrize(
    ("custom_id", "first", "second", "is_believed"),
    [
        ("EXP_S01_vs_S02", "S01", "S02", True),
        ("EXP_A_1_vs_B_2", "1", "B_2", False),  # the package's own rule cuts here
        ("EXP_A_1_vs_B_2", "A_1", "B_2", False),
        ("LIVE_A_1_vs_B_2", "A_1", "B_2", True),
        ("LIVE_A_1_vs_B_2", "1", "B_2", False),
        ("EXP_a_vs_b_vs_c", "a", "b_vs_c", False),
        ("A_1:B_2#1", "A_1", "B_2", True),  # a pair_uid says nothing about ids; the columns do
    ],
)
def test_ids_cut_out_of_a_custom_id_need_one_way_to_cut(
    store: Store, folder: Path, custom_id: str, first: str, second: str, is_believed: bool
) -> None:
    """An underscore in an id makes two ways to cut it; such rows stay out until samples or a person decide."""
    put(folder, "results.csv", [result(first, second, first, custom_id=custom_id)])
    report = bring(store, read, folder)
    assert report.judgments.n_new == is_believed
    assert doubts(report) == ({} if is_believed else {"recovered-id": 1})
    if not is_believed:
        assert bring(store, read, folder, accept=["recovered-id"]).judgments.n_new == 1


def test_samples_decide_how_a_custom_id_is_cut(store: Store, folder: Path) -> None:
    """With the samples at hand there is one way; the ids that the package cut wrongly stay out."""
    put(folder, "samples.csv", [{"ID": "A_1", "text": "a"}, {"ID": "B_2", "text": "b"}])
    good, bad = result("A_1", "B_2", "B_2"), result("1", "B_2", "B_2", custom_id="EXP_A_1_vs_B_2")
    put(folder, "results.csv", [good, bad])
    report = bring(store, read, folder)
    assert (report.judgments.n_new, doubts(report)) == (1, {"recovered-id": 1})
    assert only(store)["item_first"] == "A_1"
    assert items(store)["A_1"]["metadata"] == {"kind": "sample", "origin": "imported", "source": "samples.csv:2"}


def test_gemini_batch_answers_are_not_believed_by_their_row(store: Store, folder: Path) -> None:
    """They were joined by position; live ones were not."""
    put(folder, "results.csv", [
        result(custom_id="GEM_S01_vs_S02"), result("S01", "S03", custom_id="S01:S03#1", backend="gemini"),
        result("S01", "S04", custom_id="LIVE_S01_vs_S04", backend="gemini"),
    ])  # fmt: skip
    report = bring(store, read, folder)
    assert (report.judgments.n_new, doubts(report)) == (1, {"positional-join": 2})
    assert bring(store, read, folder, accept=["positional-join"]).judgments.n_new == 2
    assert "2 places cannot be believed" in refusal(Store.init(folder / "other"), read, folder, is_strict=True)


def test_rows_that_name_other_items_stay_out(store: Store, folder: Path) -> None:
    """Columns that disagree about the pair are left out; a simulated answer in an export stays simulated."""
    put(folder, "results.csv", [
        result(A_id="S01", B_id="S03"), result("S01", "S04", origin="simulated", outcome="decided"),
        result(origin="batch", outcome="decided"),
    ])  # fmt: skip
    report = bring(store, read, folder)
    assert (report.judgments.n_new, doubts(report)) == (2, {"ids-disagree": 1})
    assert {row["item_second"]: row["origin"] for row in judged(store).values()} == {"S02": None, "S04": "simulated"}


def test_which_run_a_row_is_of_comes_with_it(store: Store, folder: Path) -> None:
    """A row says its direction itself, or its registry says it of the file, or a person says it of all; else nobody."""
    put(folder, "a.csv", [result("S01", "S02", direction="forward"), result("S03", "S02", direction="reverse")])
    put(folder, "b.csv", [result("S05", "S04")])
    put(folder, "jobs_registry.csv", [
        {"segment_index": 1, "batch_id": "b1", "csv_path": "b.csv", "provider": "openai", "direction": "reverse"},
    ])  # fmt: skip
    put(folder, "c.csv", [result("S07", "S06")])
    bring(store, read, folder)
    found = {row["item_first"]: row["direction"] for row in judged(store).values()}
    assert found == {"S01": "forward", "S03": "reverse", "S05": "reverse", "S07": None}
    other = Store.init(folder / "other")
    bring(other, read, folder / "c.csv", defaults={"direction": "reverse"})
    assert only(other)["direction"] == "reverse"
    put(folder, "d.csv", [result("S07", "S06", direction="up")])
    assert "has direction 'up', not forward or reverse" in refusal(store, read, folder / "d.csv")


@pytest.mark.parametrize("runs", [("forward", "reverse"), ("reverse", "forward")])
def test_a_run_that_shows_a_pair_as_the_other_did_is_of_other_votes(
    store: Store, folder: Path, runs: tuple[str, str]
) -> None:
    """Imported one after the other: R compares both runs' majorities, whichever item each shows first."""
    for winner, run in zip("AB", runs, strict=True):
        put(folder, f"{run}.csv", f"ID1,ID2,better_id\nA,B,{winner}\nC,D,C\n")
    reports = [bring(store, read, folder / f"{run}.csv", defaults={"direction": run}) for run in (*runs, *runs)]
    assert [(one.judgments.n_new, one.judgments.n_known) for one in reports] == [(2, 0), (2, 0), (0, 2), (0, 2)]
    query = "SELECT n_pairs, n_consistent, total_pos1_wins FROM metric_pairwisellm"
    assert run_query(store.path, query).to_pylist() == [{"n_pairs": 2, "n_consistent": 1, "total_pos1_wins": 3}]


def test_repeated_votes_are_numbered_in_order(store: Store, folder: Path) -> None:
    """The same pair in the same order again is another vote, across files too."""
    put(folder, "batch_01_results.csv", [result(), result(better="S02")])
    put(folder, "batch_02_results.csv", [result()])
    bring(store, read, folder)
    found = judged(store)
    assert [row["repeat_no"] for row in found.values()] == [1, 2, 3]
    assert [row["verdict"] for row in found.values()] == ["first", "second", "first"]


def output_line(custom_id: str, text: str) -> dict[str, Any]:
    """Return an OpenAI batch result line."""
    message = {"role": "assistant", "content": text}
    body = {
        "id": "c", "object": "chat.completion", "model": "gpt-x-2025",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }  # fmt: skip
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": body}, "error": None}


def test_outputs_without_a_csv_are_read_themselves(store: Store, folder: Path) -> None:
    """The provider's own lines, with the strict rule; an id that can be cut two ways stays out."""
    put(folder, "jobs_registry.csv", [
        {"segment_index": 1, "provider": "openai", "model": "gpt-x", "batch_id": "b1",
         "batch_output_path": "o/batch_01_output.jsonl"},
        {"segment_index": 2, "provider": "gemini", "model": "g", "batch_id": "b2",
         "batch_output_path": "o/batch_02_output.jsonl"},
    ])  # fmt: skip
    lines = [output_line("EXP_a_vs_b", FIRST), output_line("EXP_a_vs_c", f"{FIRST}{SECOND}"),
             output_line("EXP_A_1_vs_c", FIRST)]  # fmt: skip
    put(folder, "batch_01_output.jsonl", lines)
    put(folder, "batch_02_output.jsonl", [{"response": {}}])
    put(folder, "batch_03_output.jsonl", lines)
    report = bring(store, read, folder)
    assert doubts(report) == {"recovered-id": 1, "positional-join": 1}
    assert report.skipped == ["batch_03_output.jsonl: nothing says whose output it is; `--set provider=NAME` does"]
    one, two = judged(store).values()
    assert (one["verdict"], one["request_model"], one["input_tokens"], one["source"]) == (
        "first", "gpt-x", 3, "batch_01_output.jsonl:1",
    )  # fmt: skip
    assert (two["verdict"], two["outcome"]) == (None, "ambiguous")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.csv", "ID1,ID2,better_id\nA,B\n", "r.csv:2 has 2 fields, the header has 3"),
        ("r.csv", "ID1,ID2,better_id\nA,NA,A\n", "r.csv:2 has no id of one of the two samples"),
        ("r.csv", "ID1,ID2,better_id\nA,A,A\n", "r.csv:2 compares 'A' with itself"),
        ("r.csv", "ID1,ID2,better_id,prompt_tokens\nA,B,A,many\n", "has prompt_tokens 'many'"),
        ("r.csv", "ID1,ID2,better_id,outcome\nA,B,A,won\n", "has outcome 'won'"),
        ("r.csv", "ID1,ID2,better_id,ID1\nA,B,A,A\n", "column 'ID1' stands in the header more than once"),
        ("r.csv", 'ID1,ID2,better_id\nA,B,"A\n', "is not CSV"),
        ("r.csv", b"ID1,ID2,better_id\nA,\xff,A\n", "line 2 is not UTF-8"),
        ("s.csv", "ID,text\nA,one\nA,two\n", "s.csv:3 repeats the ID 'A'"),
        ("s.csv", "ID,text\nA,\n", "s.csv:2 has no text for 'A'"),
    ],
)
def test_broken_files_are_refused_with_their_lines(
    store: Store, folder: Path, name: str, content: str | bytes, message: str
) -> None:
    """Nothing of a broken folder comes in, not even its good files."""
    put(folder, "good.csv", [result()])
    put(folder, name, content)
    assert message in refusal(store, read, folder)


def test_marks_and_line_ends_do_not_matter(store: Store, folder: Path) -> None:
    """A byte order mark, CRLF, a line feed inside quotes, NaN and NA are read as meant."""
    text = (
        '\ufeffID1,ID2,better_id,content,prompt_tokens\r\nA,B,A,"x\r\n<better_sample>sample_1</better_sample>",NaN\r\n'
    )
    put(folder, "r.csv", text + "A,C,NA,NA,NA\r\n")
    bring(store, read, folder)
    assert [(row["source"], row["verdict"]) for row in judged(store).values()] == [
        ("r.csv:2", "first"),
        ("r.csv:4", None),
    ]


def test_a_contradiction_is_refused_with_both_places(store: Store, folder: Path) -> None:
    """The same judgment from another file with another verdict: both places are named."""
    first = put(folder, "one.csv", "ID1,ID2,better_id\nA,B,A\n")
    bring(store, read, first)
    second = put(folder, "two.csv", "ID1,ID2,better_id\nA,B,B\n")
    assert "two.csv:2 says second, already in the lake from one.csv:2 as first" in refusal(store, read, second)


def test_text_files_are_samples(store: Store, folder: Path) -> None:
    """A folder of .txt files: the name is the id."""
    put(folder, "S01.txt", "one\n")
    assert bring(store, read, folder).items.n_new == 1
    assert items(store)["S01"]["text"] == "one\n"


@pytest.mark.skipif(not (SHARED / "reference/golden/pairwisellm").is_dir(), reason="the shipped data is not here")
def test_the_shipped_pairs_come_in_whole(store: Store) -> None:
    """All 190 pairs of the package's example: 16 are won by the first sample, which the metrics then say."""
    report = bring(store, read, SHARED / "reference/golden/pairwisellm/example_writing_pairs.csv")
    assert (report.judgments.n_new, doubts(report)) == (190, {})
    with database.connect(store.path) as connection:
        query = "SELECT count(*) FILTER (WHERE verdict = 'first'), count(*), min(origin) FROM pair_judgments"
        assert connection.execute(query).fetchall() == [(16, 190, "imported")]
