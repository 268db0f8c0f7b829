"""What is forgotten is in no file of the lake and at no provider; everything else is as it was."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from batchpond.doctor import Level, examine
from batchpond.errors import ExitCode, LakeError, UsageError
from batchpond.lake import disk, failpoints, tables
from batchpond.lake.rewrite import without_texts
from batchpond.lake.schemas import IMPORTED_JUDGMENTS, TABLES
from batchpond.lake.store import LABELS, Store
from batchpond.run.dispatch import send_due
from batchpond.run.forget import ForgetReport, Target, forget
from batchpond.run.session import Providers, Session
from batchpond.run.submit import SubmitPreview, retry, submit
from batchpond.views.read import run_query
from batchpond_browse.spool import FILE
from tests.rigs import live_study
from tests.rigs.live_study import Asked, live_rig
from tests.rigs.sim_providers import one_model_each
from tests.rigs.sim_study import STUDY, Rig
from tests.rigs.swept import every

THREE = ("openai", "anthropic", "gemini")
LENGTH_MIN = 12
RESULTS = "SELECT * FROM results ORDER BY ALL"


def planned(path: Path, *names: str) -> Rig:
    """Return a rig whose study over these providers is planned."""
    rig = Rig(path, max_requests=4, models=one_model_each(names))
    rig.plan()
    return rig


def finished(path: Path, *names: str) -> Rig:
    """Return a rig whose study over these providers is asked and answered."""
    rig = planned(path, *names)
    rig.submit()
    for _ in range(2):
        rig.clock.advance(1_000)
        rig.sync()
    return rig


def run(rig: Rig, target: Target | None, *, is_local: bool = False) -> ForgetReport:
    """Run `forget`."""
    with rig._points():
        return forget(rig.store(), target, providers=rig.providers(), is_local=is_local)


def said(lake: Path) -> str:
    """Return every text in the lake: the values of all Parquet files, and all other files as they are."""
    found = []
    for folder, _, names in os.walk(lake):
        for path in (Path(folder) / name for name in names):
            if path.suffix == ".parquet":
                found.append(repr(pq.ParquetFile(path).read().to_pylist()))
                found.append(repr(pq.read_metadata(path).to_dict()))
            else:
                found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found)


def marks(texts: Iterable[str]) -> set[str]:
    """Return of each text the longest part that stands as it is in whatever holds it, JSON or not."""
    return {max(re.findall(r"[A-Za-z0-9 .,]+", text), key=len) for text in texts if len(text) > LENGTH_MIN}


def query(rig: Rig, sql: str) -> list[dict[str, Any]]:
    return run_query(rig.lake, sql).to_pylist()


def texts_of(rig: Rig, where: str) -> list[str]:
    """Return what was asked and answered where a condition on `results` holds."""
    rows = query(rig, f"SELECT text, explanation FROM results WHERE {where}")
    return [text for row in rows for text in row.values() if text]


def test_a_study_is_forgotten_to_the_last_byte_and_at_its_providers(tmp_path: Path) -> None:
    rig = finished(tmp_path, *THREE)
    items = query(rig, "SELECT text FROM items")
    answers = marks(row["text"] for row in query(rig, "SELECT DISTINCT text FROM responses"))
    n_files = sum(len(pq.ParquetFile(path).read()) for path in map(Path, rig.store().published("raw")))
    assert items
    assert answers
    before = said(rig.lake)
    assert all(text in before for text in answers)
    assert all(row["text"][:20] in before for row in items)
    report = run(rig, Target(study=STUDY))
    assert report.exit_code is ExitCode.DONE, report.notes
    assert report.n_lines == n_files == report.n_requests
    n_anthropic = sum(attempt.provider == "anthropic" for attempt in rig.attempts())
    assert report.n_deleted == 2 * len(rig.attempts()) - n_anthropic, (
        "each batch's input and results; Anthropic's are one"
    )
    left = said(rig.lake)
    assert not [row for row in items if row["text"][:20] in left]
    assert not [text for text in answers if text in left]
    assert query(rig, "SELECT * FROM studies_current") == query(rig, "SELECT * FROM results") == []
    assert {row["attempt_state"] for row in query(rig, "SELECT attempt_state FROM batches")} == {"verified"}
    assert query(rig, "SELECT count(*) AS n FROM audit WHERE NOT is_balanced") == [{"n": 0}]
    assert rig.sync().exit_code is ExitCode.DONE
    assert not [finding for finding in examine(rig.store(), is_deep=True) if finding.level is not Level.OK]
    rig.world.close()


def test_what_passes_keep_of_answers_is_forgotten_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of many files in one have no texts, and an error's message is one all the same."""
    monkeypatch.setattr(tables, "FOLD_ABOVE", 1)
    rig = finished(tmp_path, "openai")
    with rig.store().lock("test"):
        tables.fold(rig.store())
        (rig.lake / ".responses.b").write_bytes((rig.lake / ".responses.a").read_bytes())  # of the time before
    kept = [path.name for path in rig.lake.glob(".*.[ab]")]
    assert sorted(kept) == [".responses.a", ".responses.b", ".shard_requests.a"]
    assert {"text", "thoughts", "refusal"}.isdisjoint(pq.read_schema(rig.lake / ".responses.a").names)
    run(rig, Target(study=STUDY))
    assert list(rig.lake.glob(".*.[ab]")) == []
    assert rig.sync().exit_code is ExitCode.DONE
    rig.world.close()


def test_an_item_is_forgotten_and_everything_else_stays_as_it_was(tmp_path: Path) -> None:
    rig = finished(tmp_path, *THREE)
    (item,) = query(rig, "SELECT item_id, text FROM items ORDER BY item_id LIMIT 1")
    named = f"'{item['item_id']}' IN (item_first, item_second)"
    gone = marks(texts_of(rig, named))
    stays = query(rig, f"SELECT * FROM results WHERE NOT ({named}) ORDER BY ALL")
    n_gone = len(query(rig, f"SELECT DISTINCT request_id FROM results WHERE {named}"))
    report = run(rig, Target(item=item["item_id"]))
    assert (report.n_requests, report.n_lines, report.exit_code) == (n_gone, n_gone, ExitCode.DONE)
    assert query(rig, RESULTS) == stays
    left = said(rig.lake)
    assert item["text"][:20] not in left
    stay = marks(text for row in stays for text in (row["text"], row["explanation"]) if text)
    assert not [text for text in gone - stay if text in left]
    rig.sync()
    rig.plan()
    assert query(rig, RESULTS) == stays, "planning the same study again brings nothing back"
    rig.world.close()


def test_whoever_dies_anywhere_leaves_a_lake_that_the_next_one_finishes(tmp_path: Path) -> None:
    """After each death a pass says what is to be done, rows stand once, and in the end nothing is left."""
    rig = finished(tmp_path, "openai")
    (text,) = (row["text"][:20] for row in query(rig, "SELECT text FROM items ORDER BY item_id LIMIT 1"))
    n_deaths = 0
    for n_points in every(3, range(400)):
        rig.crash_in = n_points
        if rig.survive(lambda: run(rig, Target(study=STUDY) if rig.lake_state().current_versions else None)):
            break
        n_deaths += 1
        assert {name for name in TABLES if has_repeated(rig, name)} == set()
        if rig.lake_state().forgetting:
            assert "`batchpond forget`" in repr(rig.sync().notes)
    assert n_deaths > 5
    assert not rig.lake_state().forgetting
    assert text not in said(rig.lake)
    assert not [finding for finding in examine(rig.store(), is_deep=True) if finding.level is not Level.OK]
    rig.world.close()


def test_what_was_imported_of_an_item_or_as_a_study_is_forgotten(tmp_path: Path) -> None:
    store = Store.init(tmp_path / "lake")
    empty = dict.fromkeys(IMPORTED_JUDGMENTS.schema.names)
    rows = [
        empty
        | {
            "import_key": key,
            "study": study,
            "item_first": item,
            "item_second": "z",
            "explanation": f"canary of {item}",
        }
        for key, study, item in (("1", "s", "a"), ("2", "s", "b"), ("3", "t", "c"))
    ]
    store.publish(IMPORTED_JUDGMENTS, "three", rows)
    providers = Providers(pytest.fail)
    assert forget(store, Target(item="a"), providers=providers).exit_code is ExitCode.DONE
    left = [row["item_first"] for path in store.files("imported_judgments") for row in pq.read_table(path).to_pylist()]
    assert left == ["b", "c"]
    assert forget(store, Target(study="t"), providers=providers).exit_code is ExitCode.DONE
    assert "canary of b" in said(store.path)
    assert not [item for item in ("a", "c") if f"canary of {item}" in said(store.path)]


def test_answers_of_live_calls_are_forgotten_too(tmp_path: Path) -> None:
    """They lie in the lake alone, as the provider's bytes in a line of our own."""
    with live_rig(tmp_path) as rig:
        rig.begin(6, [Asked("openai"), Asked("anthropic")])
        assert rig.live().n_left == 0
        answers = marks(text for (text,) in rig.view("select distinct text from responses"))
        before = said(rig.lake)
        assert answers
        assert all(text in before for text in answers)
        report = forget(rig.store(), Target(study=live_study.STUDY), providers=rig.providers())
        assert (report.n_lines, report.n_deleted, report.exit_code) == (12, 0, ExitCode.DONE)
        left = said(rig.lake)
        assert not [text for text in answers if text in left]
        assert rig.view("select count(*) from audit where not is_balanced") == [(0,)]


def has_repeated(rig: Rig, table: str) -> bool:
    """Whether a plain glob finds a row of a table twice."""
    if table == "events":
        return False
    rows = [
        repr(row) for path in disk.parquet_files(rig.lake / table) for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return len(rows) != len(set(rows))


def test_what_is_open_what_is_unknown_and_what_later_rounds_need_is_refused(tmp_path: Path) -> None:
    rig = planned(tmp_path, "openai")
    rig.submit()
    with pytest.raises(UsageError, match="is still being asked"):
        run(rig, Target(study=STUDY))
    for target in (Target(study="studi"), Target(item="nobody"), Target(request_id="r")):
        with pytest.raises(UsageError):
            run(rig, target)
    assert not rig.lake_state().forgetting
    rig.world.close()


def test_what_is_forgotten_while_submit_waits_for_a_yes_is_not_asked(tmp_path: Path) -> None:
    """What was shown before holds requests that are in the lake no more: shards of them would stop every pass."""
    rig = planned(tmp_path, "openai")

    def agreed(_: SubmitPreview) -> bool:
        run(rig, Target(item="i2"))
        return True

    report = submit(rig.store(), STUDY, confirm=agreed, providers=rig.providers())
    assert (report.preview.n_requests, sum(one.intent.n_requests for one in rig.attempts())) == (12, 6)
    rig.clock.advance(1_000)
    assert rig.sync().exit_code is ExitCode.DONE
    assert len(rig.answers()) == rig.billed()[0] == 6
    rig.world.close()


def test_nothing_is_asked_of_what_a_killed_process_left_half_forgotten(tmp_path: Path) -> None:
    """Shards of it would hold requests that are gone once it is forgotten, and would stop every pass then."""
    rig = planned(tmp_path, "openai")
    rig.crash_at = "F0"
    assert not rig.survive(lambda: run(rig, Target(item="i2")))
    report = rig.submit()
    assert (report.exit_code, report.n_unsent, rig.attempts()) == (ExitCode.ATTENTION, 12, [])
    assert any("half forgotten" in note.message and "forget" in (note.hint or "") for note in report.notes)
    run(rig, None)
    assert rig.sync().counts.n_created == 2, "it was approved"
    rig.clock.advance(1_000)
    assert rig.sync().exit_code is ExitCode.DONE
    assert len(rig.answers()) == rig.billed()[0] == 6
    rig.world.close()


def test_what_was_never_sent_keeps_no_study_from_being_forgotten(tmp_path: Path) -> None:
    """Neither what its plan left unsent, now given up, nor what an earlier one did; planned again, it is asked."""
    rig = planned(tmp_path, "openai")
    outage = "files.create@*:status=500"
    rig.world.add_fault(outage)
    rig.submit()
    rig.change()
    rig.submit()
    assert rig.sync().n_pending
    assert run(rig, Target(study=STUDY)).exit_code is ExitCode.DONE
    assert rig.sync().n_pending == 0
    assert "text number" not in said(rig.lake)
    rig.world.clear_faults()
    rig.settle()
    assert rig.billed()[0] == len(rig.answers()) == 20
    assert rig.violations() == []
    assert run(rig, Target(study=STUDY)).n_requests == 20
    rig.world.close()


def test_who_slept_while_a_study_was_forgotten_sends_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where machines share no lock: it has looked, wakes about to send, and another has forgotten the study."""
    rig = planned(tmp_path, "openai")
    rig.world.add_fault("files.create@*:status=500")
    rig.submit()
    rig.world.clear_faults()
    forgetting = [lambda: run(rig, Target(study=STUDY))]

    def reach(name: str) -> None:
        while name == "S6" and forgetting:
            forgetting.pop()()

    monkeypatch.setattr(failpoints, "reach", reach)
    with pytest.raises(LakeError, match="was sent by another process"):
        send_due(Session.begin(rig.store(), rig.providers()), only_study=STUDY, is_explicit=True)
    assert (forgetting, rig.billed()[0]) == ([], 0)
    rig.world.close()


def test_nothing_is_forgotten_while_labels_wait_that_may_speak_of_it(tmp_path: Path) -> None:
    """They stand outside the tables; handed in, they are forgotten with the rest."""
    rig = finished(tmp_path, "openai")
    waiting = rig.lake / LABELS
    waiting.write_text("demo,k,1,anna,what she said\r\n")
    before = said(rig.lake)
    with pytest.raises(UsageError, match="labels that are not handed in"):
        run(rig, Target(study=STUDY))
    assert said(rig.lake) == before
    waiting.write_text("")
    assert run(rig, Target(study=STUDY)).n_requests
    assert LABELS == FILE


def test_a_provider_that_fails_stops_it_before_anything_is_forgotten(tmp_path: Path) -> None:
    """Nothing is half forgotten; `--local` leaves what is at the providers."""
    rig = finished(tmp_path, "openai")
    before = query(rig, RESULTS)
    rig.world.add_fault("files.delete@1-9:status=500")
    assert run(rig, Target(study=STUDY)).exit_code is not ExitCode.DONE
    assert query(rig, RESULTS) == before
    report = run(rig, Target(study=STUDY), is_local=True)
    assert (report.n_deleted, report.n_requests) == (0, len(before))
    assert query(rig, RESULTS) == []
    rig.world.close()


@pytest.mark.parametrize(
    "line", [b"", b"no json", b"[1]", b'"secret"', b"\xff\xfe", b'{"a": {"text": "secret", "n": 3}}']
)
def test_no_line_keeps_a_text(line: bytes) -> None:
    assert "secret" not in without_texts(line)


def test_a_forgotten_study_that_is_planned_anew_can_be_asked_anew(tmp_path: Path) -> None:
    """What is left of its first answers is no answer, and what they cost stays known."""
    rig = finished(tmp_path, *THREE)
    before, (spent,) = query(rig, RESULTS), query(rig, "SELECT round(sum(cost_usd), 9) AS usd FROM batches")
    run(rig, Target(study=STUDY))
    rig.plan()
    (left,) = query(rig, "SELECT DISTINCT request_state, error_class FROM results")
    assert left == {"request_state": "failed", "error_class": "forgotten"}
    assert rig.sync().n_failed == len(before), "and a pass says so"
    assert query(rig, "SELECT round(sum(cost_usd), 9) AS usd FROM batches") == [spent]
    n_attempts = len(rig.attempts())
    rig.submit()
    assert len(rig.attempts()) == n_attempts, "nothing is bought again unasked"
    with rig._points():
        retry(rig.store(), STUDY, max_attempts=3, confirm=lambda *_: True, providers=rig.providers())
    for _ in range(2):
        rig.clock.advance(1_000)
        rig.sync()
    asked_anew = query(rig, RESULTS)
    assert {row["request_state"] for row in asked_anew} == {"answered"}
    assert rig.sync().n_failed == 0
    assert [row["request_id"] for row in asked_anew] == [row["request_id"] for row in before]
    assert query(rig, "SELECT count(*) AS n FROM audit WHERE NOT is_balanced") == [{"n": 0}]
    rig.world.close()
