"""People's labels: drawn blind and by lot from what judges judged, and back into the rates that they correct."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from batchpond.cli import main
from batchpond.errors import ExitCode, UsageError
from batchpond.interop import labels
from batchpond.interop.foreign import ForeignText
from batchpond.interop.imports import ForeignReport, import_foreign, import_judgments
from batchpond.lake.store import Store
from batchpond.views import database, refresh
from tests.rigs.findings import Told

N_ITEMS = 12
STUDY = "essays"


def text_of(item: str) -> str:
    return f"=text of {item} <b>& more</b>"


def judged_lake(folder: Path) -> Path:
    """Two judges on all pairs of twelve texts in both orders: one flips every fifth, they disagree on every third."""
    store = Store.init(folder / "lake")
    names = [f"s{n:02}" for n in range(N_ITEMS)]
    import_foreign(
        store, lambda *_: (ForeignText(name, "sample", name, text_of(name)) for name in names), [folder / "x"]
    )
    rows, number = [], 0
    for first in names:
        for second in names[names.index(first) + 1 :]:
            number += 1
            for judge in ("a", "b"):
                winner = second if judge == "b" and number % 3 == 0 else first
                for pair in ((first, second), (second, first)):
                    shown = pair[0] if judge == "a" and number % 5 == 0 else winner
                    rows.append((*pair, "first" if shown == pair[0] else "second", judge))
    path = folder / "judgments.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("item_first", "item_second", "verdict", "model"))
        writer.writerows(rows)
    import_judgments(store, path, study=STUDY)
    refresh.refresh(store)
    return folder / "lake"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture
def copied(lake: Path, tmp_path: Path) -> Path:
    """A lake of one's own."""
    shutil.copytree(lake, tmp_path / "lake")
    return tmp_path / "lake"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        return list(csv.DictReader(lines))


def fill(path: Path, says: Any, **more: str) -> list[dict[str, str]]:
    rows = [{**row, "label": says(row), **more} for row in rows_of(path)]
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def query(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    with database.connect(lake) as lens:
        return lens.execute(sql).fetchall()


def better_of(row: dict[str, str]) -> str:
    """What a person says who likes the text with the lower number."""
    return "1" if row["text_1"] < row["text_2"] else "2"


def import_labels(lake: Path, *paths: Path, rater: str | None = None) -> int:
    return labels.import_labels(Store.open(lake), paths, rater=rater).judgments.n_new


def test_labels_come_back_as_what_people_say_of_each_pair(copied: Path, tmp_path: Path) -> None:
    """Whichever text was shown first: the truth is about the items."""
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 40), sheet)
    assert {row["text_1"] < row["text_2"] for row in rows_of(sheet)} == {True, False}, "the order is a matter of lot"
    fill(sheet, better_of)
    assert import_labels(copied, sheet, rater="anna") == 40
    assert query(copied, "select truth, n_votes, count(*) from truths group by all") == [("lo", 1, 40)]
    told = query(
        copied, "select distinct provider, request_model, rubric_id from imported_judgments where provider = 'human'"
    )
    assert told == [("human", "anna", "unspecified")]
    assert import_labels(copied, sheet, rater="anna") == 0, "twice is once"


def test_a_sheet_is_blind(lake: Path, tmp_path: Path) -> None:
    """No name of an item, judge or candidate, no verdict and no standing stands in it."""
    for name in ("sheet.csv", "sheet.html"):
        labels.write(labels.draw(lake, STUDY, 30), tmp_path / name)
        content = (tmp_path / name).read_text("utf-8")
        assert "text of s01" in content
        for word in ("flip", "agreement", "disagreement", "unread"):
            assert word not in content
        assert not re.search(r"(?<!text of )\bs\d\d\b", content)


def test_standings_have_their_true_shares_and_every_unit_the_same_chance(lake: Path) -> None:
    """Of 66 pairs, 16 seeds of 33: each standing within one of its share, each pair drawn about 8 times."""
    n_units, n = N_ITEMS * (N_ITEMS - 1) // 2, 33
    everything = labels.draw(lake, STUDY, n_units)
    assert everything.standings == {"agreement": 35, "disagreement": 18, "flip": 13}
    drawn: Counter[str] = Counter()
    for seed in range(16):
        sheet = labels.draw(lake, STUDY, n, seed=seed)
        assert len(sheet.questions) == n
        for standing, count in everything.standings.items():
            assert abs(sheet.standings.get(standing, 0) - n * count / n_units) <= 1, (seed, standing)
        drawn.update(question.key[:-1] for question in sheet.questions)
    assert len(drawn) == n_units
    # binomial(16, 1/2): a pair that is never drawn, or always, is one of 33,000
    assert 0 < min(drawn.values()) <= 8 <= max(drawn.values()) < 16


def test_the_same_seed_draws_the_same_and_the_next_hundred_leaves_out_what_is_labelled(
    copied: Path, tmp_path: Path
) -> None:
    first = labels.draw(copied, STUDY, 20, seed=7)
    assert labels.draw(copied, STUDY, 20, seed=7) == first
    assert labels.draw(copied, STUDY, 20, seed=8) != first
    labels.write(first, tmp_path / "sheet.csv")
    fill(tmp_path / "sheet.csv", better_of)
    import_labels(copied, tmp_path / "sheet.csv")
    rest = labels.draw(copied, STUDY, 1_000)
    assert (rest.n_units, rest.n_labelled, len(rest.questions)) == (46, 20, 46)
    assert not {one.key[:-1] for one in rest.questions} & {one.key[:-1] for one in first.questions}
    labels.write(rest, tmp_path / "rest.csv")
    fill(tmp_path / "rest.csv", better_of)
    import_labels(copied, tmp_path / "rest.csv")
    with pytest.raises(UsageError, match="people have labelled all of them"):
        labels.draw(copied, STUDY, 1)


def test_labels_drawn_by_doubt_come_back_with_what_they_stand_for(copied: Path, tmp_path: Path) -> None:
    """Most where judges differ, two of each stratum at least, and each label for as many units as its stratum has."""
    sheet = labels.draw(copied, STUDY, 24, by=labels.By.DOUBT)
    told = {one.standing: (one.n_units, one.n_labelled, one.n_drawn) for one in sheet.strata}
    drawn = {standing: n_drawn for standing, (_, _, n_drawn) in told.items()}
    assert told == {"agreement": (35, 0, drawn["agreement"]), "disagreement": (18, 0, drawn["disagreement"]),
                    "flip": (13, 0, drawn["flip"])}  # fmt: skip
    assert sum(drawn.values()) == 24
    assert sheet.standings == drawn
    assert drawn["disagreement"] / 18 > 1.5 * drawn["agreement"] / 35
    labels.write(sheet, tmp_path / "sheet.csv")
    fill(tmp_path / "sheet.csv", better_of)
    assert import_labels(copied, tmp_path / "sheet.csv") == 24
    told_of = query(copied, "select purpose, count(*) from imported_judgments where provider = 'human' group by all")
    assert dict(told_of) == {f"{name} {told[name][0]}": n for name, n in drawn.items()}
    weighed = "select round(weight, 9), count(*) from truths group by all order by all"
    weights = query(copied, weighed)
    assert weights == sorted((round(told[name][0] / n, 9), n) for name, n in drawn.items())
    assert query(copied, "select count(purpose) from pair_judgments") == [(0,)], "no adaptive round chose them"
    columns = "* exclude (import_key, source, list_kind, place_first, place_second, rank_first, rank_second)"
    query(copied, f"copy (select {columns} from imported_judgments) to '{tmp_path}/all.csv' (header)")
    other = Store.init(tmp_path / "other")
    import_judgments(other, tmp_path / "all.csv")
    assert query(other.path, weighed) == weights, "in a file they keep their strata"
    more = labels.draw(copied, STUDY, 12, by=labels.By.DOUBT)
    assert {one.standing: one.n_labelled for one in more.strata} == drawn
    # judges who agree were right of all that was labelled, and where they differ one of them was wrong
    assert {one.standing: one.n_drawn for one in more.strata}["disagreement"] >= 4


def test_a_keys_last_letter_says_nothing_by_itself(lake: Path) -> None:
    """Each letter stands with each standing and either order, and whoever changes it is told."""
    letters: dict[str, set[tuple[str, bool]]] = {}
    for number in range(400):
        for standing in ("agreement", "disagreement", "flip", "unread"):
            for is_lo_first in (True, False):
                unit = {"unit_key": f"{number:020x}", "standing": standing, "is_lo_first": is_lo_first}
                letter = labels.letter(unit)
                assert labels.said_by(f"{unit['unit_key']}{letter}") == (is_lo_first, standing)
                letters.setdefault(letter, set()).add((standing, is_lo_first))
    assert len(letters) == 16
    assert {len(said) for said in letters.values()} == {8}
    key = labels.draw(lake, STUDY, 1).questions[0].key
    read = [labels.said_by(f"{key[:-1]}{letter}") for letter in letters]
    assert sum(said is None for said in read) == 8
    assert labels.said_by("") is None


def test_sheets_of_before_are_read_and_what_they_brought_is_weighed_once_it_comes_again(
    copied: Path, tmp_path: Path
) -> None:
    """A label without a stratum has all count the same, and nothing is drawn by doubt beside it."""
    labels.write(labels.draw(copied, STUDY, 20), tmp_path / "sheet.csv")
    rows = fill(tmp_path / "sheet.csv", better_of)
    sides = {row["key"]: "ab"[not labels.said_by(row["key"])[0]] for row in rows}  # type: ignore[index]
    for row in rows:
        row["key"] = f"{row['key'][:-1]}{sides[row['key']]}"
    old = tmp_path / "old.csv"
    shutil.copy(tmp_path / "sheet.csv", old)
    keys = iter(row["key"] for row in rows)
    with old.open(encoding="utf-8-sig", newline="") as lines:
        told = [{**row, "key": next(keys)} for row in csv.DictReader(lines)]
    with old.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(told[0]))
        writer.writeheader()
        writer.writerows(told)
    with database.connect(copied) as lens:
        columns = "template_id, rubric_id, 'human' as provider, 'person' as model, unit_id, item_first, item_second"
        one = f"select {columns}, 'first' as verdict from imported_judgments where item_first < item_second limit 1"
        lens.execute(f"copy ({one}) to '{tmp_path / 'one.csv'}' (header)")
    import_judgments(Store.open(copied), tmp_path / "one.csv", study=STUDY)
    assert import_labels(copied, old) >= 19
    assert query(copied, "select truth, weight, count(*) from truths group by all")[0][:2] == ("lo", 1.0)
    with pytest.raises(UsageError, match="of 1 label of study essays nobody knows how likely"):
        labels.draw(copied, STUDY, 5, by=labels.By.DOUBT)
    unknown = "from imported_judgments where provider = 'human' and purpose is null"
    ((lo, hi),) = query(copied, f"select item_first, item_second {unknown}")
    of_study(copied, written(tmp_path / "again.csv", "item_1,item_2,label", f"{lo},{hi},{lo}"), "person")
    ((n_weights, mean),) = query(copied, "select count(distinct weight), sum(weight) from truths")
    assert n_weights > 1
    assert mean == pytest.approx(66), "all units are stood for"
    assert labels.draw(copied, STUDY, 5, by=labels.By.DOUBT).n_labelled >= 20


def test_the_report_says_where_labels_lean_to_what_judges_differ_on(copied: Path, tmp_path: Path) -> None:
    """Such labels are of themselves alone; those that were drawn by lot are not called anything else."""
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 20), sheet)
    shutil.copytree(copied, tmp_path / "drawn")
    fill(sheet, better_of)
    import_labels(tmp_path / "drawn", sheet)
    split = query(
        copied, "select item_lo, item_hi from jury_verdicts where n_spoke > 1 and share < 1 order by all limit 12"
    )
    of_study(copied, written(tmp_path / "chosen.csv", "item_1,item_2,label", *(f"{lo},{hi},{lo}" for lo, hi in split)))
    said = "People's labels are no random part: judges are unanimous on 0 of 12 units with a label"
    assert said in Told(copied, STUDY).text("jury")
    ((p,),) = query(tmp_path / "drawn", "select p_labels_alike from metric_jury")
    assert p > 0.05


def test_two_raters_of_one_sheet_are_compared(copied: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 30), sheet)
    fill(sheet, better_of, rater="anna")
    import_labels(copied, sheet)
    fill(sheet, lambda _: "1", rater="ben")
    import_labels(copied, sheet)
    raters = query(copied, "select distinct request_model from imported_judgments where provider = 'human' order by 1")
    assert raters == [("anna",), ("ben",)]
    agreed = query(
        copied,
        "select n_units from metric_agreement where provider_a = 'human' and provider_b = 'human'"
        " and request_model_a = 'anna' and request_model_b = 'ben'",
    )
    assert agreed == [(30,)]


def both_sheets(lake: Path, folder: Path) -> tuple[Path, Path]:
    """Draw two sheets of all pairs by other seeds: each has its own lot of which text stands first."""
    paths = folder / "one.csv", folder / "two.csv"
    for seed, path in enumerate(paths):
        labels.write(labels.draw(lake, STUDY, 1_000, seed=seed), path)
    keys = [{row["key"] for row in rows_of(path)} for path in paths]
    assert keys[0] & keys[1], "some pairs have the same text first in both"
    assert keys[0] - keys[1], "others have not"
    return paths


def test_a_rater_who_labels_pairs_twice_has_one_vote_on_each(copied: Path, tmp_path: Path) -> None:
    one, two = both_sheets(copied, tmp_path)
    for path in (one, two):
        fill(path, better_of, rater="anna")
    import_labels(copied, one, two)
    assert query(copied, "select truth, n_votes, count(*) from truths group by all") == [("lo", 1, 66)]
    fill(one, lambda row: "21"[better_of(row) == "2"], rater="ben")
    import_labels(copied, one)
    assert query(copied, "select truth, share, n_votes, count(*) from truths group by all") == [(None, 0.5, 2, 66)]


def test_two_raters_are_compared_whichever_text_each_saw_first(copied: Path, tmp_path: Path) -> None:
    for path, rater in zip(both_sheets(copied, tmp_path), ("anna", "ben"), strict=True):
        fill(path, better_of, rater=rater)
        import_labels(copied, path)
    people = " from metric_agreement where provider_a = 'human' and request_model_b = 'ben'"
    assert query(copied, f"select n_units, n_subjects, agreement{people}") == [(66, 66, 1.0)]
    assert query(copied, "select n_units from metric_agreement_overall where judges = 'people'") == [(66,)]


def test_blank_rows_say_nothing_and_a_wrong_one_stops_all(copied: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 10), sheet)
    rows = fill(sheet, lambda _: "")
    with pytest.raises(UsageError, match="no row has a label"):
        import_labels(copied, sheet)
    fill(sheet, lambda row: "tie" if row["key"] == rows[3]["key"] else "")
    assert import_labels(copied, sheet) == 1
    fill(sheet, lambda row: "maybe" if row["key"] == rows[3]["key"] else "tie")
    with pytest.raises(UsageError, match=r"sheet.csv:5 says 'maybe' where one of 1, 2, tie can be said"):
        import_labels(copied, sheet)
    fill(sheet, lambda _: "tie", key="0" * 21)
    with pytest.raises(UsageError, match="names no unit of study essays"):
        import_labels(copied, sheet)
    sheet.write_text("study;key;label\nessays;x;1\n")
    with pytest.raises(UsageError, match="names no unit of study essays: key 'x'"):
        import_labels(copied, sheet)
    assert query(copied, "select count(*) from truths") == [(1,)]


CURRENT = "select truth, n_votes, count(*) from truths group by all order by all"
BEFORE = (
    "select request_model, detail->>'item_first' as first, detail->>'item_second' as second, detail->>'verdict' as said"
    " from events where kind = 'relabelled' order by ord"
)


def test_the_label_that_a_rater_gives_last_counts_and_the_earlier_one_stays_on_record(
    copied: Path, tmp_path: Path
) -> None:
    """In every view at once, back and forth; nothing is asked, and what was said before is an event."""
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 3), sheet)
    fill(sheet, better_of)
    assert import_labels(copied, sheet, rater="anna") == 3
    assert query(copied, CURRENT) == [("lo", 1, 3)]
    wrong = rows_of(sheet)[0]["key"]
    for truth in ("hi", "lo", "hi"):
        rows = fill(
            sheet,
            lambda row, t=truth: (
                "21"[(better_of(row) == "1") == (t == "lo")] if row["key"] == wrong else better_of(row)
            ),
        )
        report = labels.import_labels(Store.open(copied), [sheet], rater="anna").judgments
        assert (report.n_rows, report.n_new, report.n_changed, report.n_known) == (3, 1, 1, 2)
        assert query(copied, CURRENT) == ([("hi", 1, 1), ("lo", 1, 2)] if truth == "hi" else [("lo", 1, 3)])
        assert query(copied, "select count(*) from pair_judgments where provider = 'human'") == [(3,)]
        again = labels.import_labels(Store.open(copied), [sheet], rater="anna").judgments
        assert (again.n_new, again.n_changed, again.n_known) == (0, 0, 3)
    said = [verdict for _, first, second, verdict in query(copied, BEFORE)]
    assert len(rows) == 3
    assert (len(said), said[0] == said[2], said[0] != said[1]) == (3, True, True)


def test_a_changed_label_takes_its_place_in_the_file_of_the_earlier_one(copied: Path, tmp_path: Path) -> None:
    """So there is no moment at which neither counts, or both, whenever the command dies."""
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 8), sheet)
    fill(sheet, better_of, rater="anna")
    import_labels(copied, sheet)
    folder = copied / "imported_judgments"
    before = {path.name: path.read_bytes() for path in folder.rglob("*.parquet")}
    fill(sheet, lambda row: "21"[int(better_of(row)) - 1])
    assert import_labels(copied, sheet) == 8
    after = {path.name: path.read_bytes() for path in folder.rglob("*.parquet")}
    assert after.keys() == before.keys()
    assert sum(after[name] != content for name, content in before.items()) == 1
    assert query(copied, "select truth, n_votes, count(*) from truths group by all") == [("hi", 1, 8)]


def test_a_changed_label_counts_whichever_text_stood_first_and_of_its_rater_alone(copied: Path, tmp_path: Path) -> None:
    """A second sheet has its own lot of the order; what another rater said of the same stays."""
    one, two = both_sheets(copied, tmp_path)
    for rater in ("anna", "ben"):
        fill(one, better_of)
        import_labels(copied, one, rater=rater)
    fill(two, lambda row: "21"[better_of(row) == "2"])
    report = labels.import_labels(Store.open(copied), [two], rater="anna").judgments
    assert (report.n_new, report.n_changed) == (66, 66)
    votes = "select request_model, count(*), count(*) filter ((verdict = 'first') = is_lo_first) from pair_judgments"
    assert query(copied, f"{votes} where provider = 'human' group by all order by all") == [
        ("anna", 66, 0), ("ben", 66, 66),
    ]  # fmt: skip
    assert {row[0] for row in query(copied, BEFORE)} == {"anna"}
    fill(one, lambda row: "21"[better_of(row) == "2"])
    assert import_labels(copied, one, rater="anna") == 0, "the same in the other order is known"


def test_one_rater_says_one_thing_of_each_in_what_is_imported_at_once(copied: Path, tmp_path: Path) -> None:
    """Nobody can tell which is the later one: nothing comes in, and nothing of what was there changes."""
    one, two = both_sheets(copied, tmp_path)
    fill(one, better_of)
    import_labels(copied, one, rater="anna")
    fill(two, lambda row: "21"[better_of(row) == "2"])
    with pytest.raises(UsageError, match="66 rows contradict another verdict") as caught:
        import_labels(copied, one, two, rater="anna")
    assert "leave the label that counts" in (caught.value.hint or "")
    assert query(copied, CURRENT) == [("lo", 1, 66)]
    assert query(copied, BEFORE) == []
    with pytest.raises(UsageError, match="contradicts another verdict"):
        import_judgments(Store.open(copied), contradicting(copied, tmp_path / "told.csv"), study=STUDY)


def contradicting(lake: Path, path: Path) -> Path:
    """Write what people said otherwise, as judgments and not as labels."""
    columns = "template_id, rubric_id, provider, request_model as model, thinking, unit_id, item_first, item_second"
    with database.connect(lake) as lens:
        said = (
            f"select {columns}, repeat_no, if(verdict = 'first', 'second', 'first') as verdict from imported_judgments"
        )
        lens.execute(f"copy ({said} where provider = 'human' limit 1) to '{path}' (header)")
    return path


def test_a_label_is_taken_back_by_a_dash(copied: Path, tmp_path: Path) -> None:
    """It counts no more and is on record; where nothing was said a dash says nothing, and it contradicts a label."""
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 6), sheet)
    wrong = {row["key"] for row in rows_of(sheet)[:2]}
    fill(sheet, lambda row: "-" if row["key"] in wrong else better_of(row))
    assert import_labels(copied, sheet) == 4
    (tmp_path / "both.csv").write_bytes(sheet.read_bytes())
    fill(tmp_path / "both.csv", better_of)
    fill(sheet, lambda row: "" if row["key"] in wrong else "-")
    with pytest.raises(UsageError, match="contradict another verdict"):
        import_labels(copied, sheet, tmp_path / "both.csv")
    report = labels.import_labels(Store.open(copied), [sheet])
    found = report.judgments
    assert (found.n_rows, found.n_new, found.n_changed, found.n_taken_back, report.raters) == (0, 0, 0, 4, ["person"])
    assert query(copied, CURRENT) == []
    assert len(query(copied, BEFORE)) == 4
    assert labels.draw(copied, STUDY, 66).n_labelled == 0
    again = labels.import_labels(Store.open(copied), [sheet]).judgments
    assert (again.n_new, again.n_taken_back) == (0, 0)


def test_a_comment_that_is_mended_is_a_label_that_changes(copied: Path, tmp_path: Path) -> None:
    """A sheet without comments leaves those that were given."""
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 2), sheet)
    for comment, n_new in (("hasty", 2), ("", 0), ("looked twice", 2)):
        fill(sheet, better_of, comment=comment)
        assert import_labels(copied, sheet, rater="anna") == n_new
    said = query(copied, "select distinct explanation from imported_judgments where provider = 'human'")
    assert said == [("looked twice",)]


def test_a_label_that_is_forgotten_is_forgotten_as_it_was_before_too(copied: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    labels.write(labels.draw(copied, STUDY, 66), sheet)
    for says in (better_of, lambda row: "21"[better_of(row) == "2"]):
        fill(sheet, says, comment="seen by anna")
        import_labels(copied, sheet, rater="anna")
    assert len(query(copied, BEFORE)) == 66
    assert main(["--lake", str(copied), "forget", "--item", "s03", "--yes"]) == ExitCode.DONE
    assert len(query(copied, BEFORE)) == 66 - 11
    assert main(["--lake", str(copied), "forget", "--study", STUDY, "--yes"]) == ExitCode.DONE
    assert query(copied, BEFORE) == []


def test_each_choice_of_a_page_has_a_key_that_nothing_else_has() -> None:
    """Both kinds of tie of a pair, and as many words of a single item as a sheet offers."""
    controls = set("jkncs") | set("jknpubhc")  # of a sheet, and of a page of `browse`
    kinds, words = ("1", "2", "tie", "both_good", "both_bad"), [f"word {n}" for n in range(labels.CHOICES_MAX)]
    for said, is_pair in ((kinds, True), (words, False)):
        offered = labels.offered(said, is_pair=is_pair)
        assert [word for word, _, _ in offered] == list(said)
        keys = {key for _, key, _ in offered}
        assert (len(keys), {len(key) for key in keys}, keys & controls) == (len(said), {1}, set())


def test_the_page_asks_nobody_and_holds_hostile_texts_as_text(lake: Path, tmp_path: Path) -> None:
    """Its policy names its own script by digest; no byte of a text can end the data it stands in."""
    path = tmp_path / "sheet.html"
    labels.write(labels.draw(lake, STUDY, 5), path)
    page = path.read_text("utf-8")
    assert "default-src 'none'" in page
    data = page.partition('id="sheet">')[2].partition("</script>")[0]
    assert "<" not in data
    texts = [text for question in json.loads(data)["questions"] for text in question["texts"]]
    assert all(text.startswith("=text of s") and "<b>&" in text for text in texts)


def test_the_commands_say_what_they_drew_and_took_in(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--lake", str(copied), "label", STUDY, "--sample", "12"]) == ExitCode.DONE
    assert "wrote 12 rows of 66 to essays-labels.csv" in capsys.readouterr().err
    assert main(["--lake", str(copied), "label", STUDY]) == ExitCode.USAGE, "nothing is written over"
    assert main(["--lake", str(copied), "label", "esays"]) == ExitCode.USAGE
    assert "did you mean 'essays'?" in capsys.readouterr().err
    fill(Path("essays-labels.csv"), better_of)
    assert main(["--lake", str(copied), "import", "labels", "essays-labels.csv", "--rater", "anna"]) == ExitCode.DONE
    assert "imported 12 judgments" in capsys.readouterr().err
    fill(Path("essays-labels.csv"), lambda row: "21"[better_of(row) == "2"])
    assert main(["--lake", str(copied), "import", "labels", "essays-labels.csv", "--rater", "anna"]) == ExitCode.DONE
    assert "12 of them in the place of what the same rater said before" in capsys.readouterr().err
    assert main(["--lake", str(copied), "import", "labels", "essays-labels.csv"]) == ExitCode.DONE
    told = capsys.readouterr().err
    assert "0 rubrics by person" in told
    assert "neither the sheet nor --rater names who labelled" in told
    fill(Path("essays-labels.csv"), lambda _: "-")
    assert main(["--lake", str(copied), "import", "labels", "essays-labels.csv", "--rater", "person"]) == ExitCode.DONE
    assert "12 labels taken back" in capsys.readouterr().err


def written(path: Path, header: str, *rows: str) -> Path:
    """Return a CSV of labels that no sheet was."""
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def of_study(lake: Path, path: Path, rater: str | None = None) -> ForeignReport:
    return labels.import_labels(Store.open(lake), [path], rater=rater, study=STUDY)


def test_labels_of_a_data_set_are_peoples_by_the_items_they_name(copied: Path, tmp_path: Path) -> None:
    """Whichever item stands first, by its id, by 1, 2 or tie; what no model judged is left out and said."""
    rows = ("s00,s01,s01", "s03,s02,1", "s04,s05,tie", "s07,s06,s07", "s00,nobody,1", "s08,s09,")
    path = written(tmp_path / "gold.csv", "item_1,item_2,label", *rows)
    report = of_study(copied, path, "gold")
    assert report.judgments.n_new == 4
    assert any("1 row of what no model of essays has judged" in text for text in report.skipped)
    with database.connect(copied) as lens:
        said = lens.execute(
            "SELECT item_first, item_second, verdict, request_model FROM imported_judgments WHERE provider = 'human'"
        ).fetchall()
    assert {(*sorted(row[:2]), row[row[2] == "second"] if row[2] != "tie" else "tie", row[3]) for row in said} == {
        ("s00", "s01", "s01", "gold"), ("s02", "s03", "s03", "gold"), ("s04", "s05", "tie", "gold"),
        ("s06", "s07", "s07", "gold"),
    }  # fmt: skip
    assert of_study(copied, path, "gold").judgments.n_new == 0, "twice is once"
    assert "s00" not in labels.draw(copied, STUDY, 62).questions[0].texts, "what is labelled is not drawn again"


@pytest.mark.parametrize(
    ("header", "row", "says"),
    [
        ("item_1,label", "s00,1", "no column 'item_2'"),
        ("item_1,item_2", "s00,s01", "no column 'label'"),
        ("item_1,item_2,label", "s00,s01,s09", "says 's09' where one of 1, 2, tie can be said"),
        ("item_1,item_2,label", "s00,s01,", "no row has a label"),
        ("item_1,item_2,lable", "s00,s01,1", "no column 'label'; did you mean 'lable'?"),
    ],
)
def test_a_table_of_labels_that_cannot_be_read_brings_nothing(
    copied: Path, tmp_path: Path, header: str, row: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        of_study(copied, written(tmp_path / "gold.csv", header, row))
    assert says in f"{caught.value.message}; {caught.value.hint}"
    assert caught.value.hint


def test_a_label_that_is_a_place_and_the_other_places_item_is_refused(tmp_path: Path) -> None:
    """Of items called by numbers nobody can tell which was meant, and a guess would turn the truth round."""
    judgments = written(tmp_path / "judged.csv", "item_first,item_second,verdict,model", "2,5,first,a", "1,7,first,a")
    store = Store.init(tmp_path / "lake")
    import_judgments(store, judgments, study=STUDY)
    with pytest.raises(UsageError) as caught:
        of_study(store.path, written(tmp_path / "gold.csv", "item_1,item_2,label", "2,5,2", "1,7,1"))
    assert "gold.csv:2 says '2', which is a place and the id" in caught.value.message
    assert "gold.csv:3" not in caught.value.message
    both = written(tmp_path / "clear.csv", "item_1,item_2,label", "2,5,5", "1,7,1")
    assert of_study(store.path, both).judgments.n_new == 2
