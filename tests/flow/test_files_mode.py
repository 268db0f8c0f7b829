"""Mode `files`: requests go to a folder whole, results come back from it once they are whole, nothing is lost there."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchpond.errors import ExitCode, StudyError
from batchpond.lake.attempts import Phase
from batchpond.lake.records import NotFound, Resolution
from batchpond.model import BatchState, Created, CreateSpec, Mode, Origin
from batchpond.plan.verb import plan_study
from batchpond.providers import registry
from batchpond.providers.shared.folder import QUIET_S
from batchpond.run.resolve import cancel, resolve
from batchpond.run.told import stuck
from batchpond.study.file import load
from batchpond.views import database
from tests.rigs import files_worker, forked
from tests.rigs.files_study import FilesRig, N, bring_home, new_rig
from tests.rigs.files_worker import Row
from tests.rigs.swept import every

IN_THE_LAKE = 12  # the first points of a submission are before any file; other tests die there
SHOWN = {
    "select distinct origin, outcome from results": ("files", "decided"),
    "select bool_and(is_balanced), sum(n_sent), sum(n_succeeded) from audit": (True, N, N),
    "select distinct mode from batches": ("files",),
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planned lake of one model."""
    rig = new_rig(tmp_path_factory.mktemp("planned"))
    rig.plan()
    return rig.lake


@pytest.fixture
def rig(planned: Path, tmp_path: Path) -> Iterator[FilesRig]:
    rig = new_rig(tmp_path)
    shutil.copytree(planned, rig.lake)
    yield rig
    rig.world.close()


@pytest.fixture
def sent(rig: FilesRig) -> FilesRig:
    """One batch of twelve requests lies in the outbox."""
    rig.submit()
    return rig


def matches(rig: FilesRig) -> Counter[object]:
    """Return how many lines there are by match."""
    return Counter(dict(rig.rows("select match, count(*) from responses group by all", "responses")))  # type: ignore[arg-type]


# --- the whole way --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt-4.1-mini", "claude-haiku-4-5"])
def test_a_study_goes_out_and_comes_back(tmp_path: Path, model: str) -> None:
    """Without any key: requests out, somebody else's program, results in, every line accounted for, marked `files`."""
    rig = new_rig(tmp_path, models=(model,), max_requests=5, with_lens=True)
    rig.plan()
    assert rig.submit().counts.n_created == 3  # type: ignore[union-attr]
    assert any("3 files of requests wait" in note and str(rig.outbox) in note for note in rig.notes)
    assert rig.sync().n_pending == 3
    done = subprocess.run([sys.executable, files_worker.__file__, rig.folder], check=False, timeout=60)
    assert done.returncode == 0
    rig.age()
    report = rig.sync()
    assert (report.counts.n_verified, report.n_pending, report.exit_code) == (3, 0, ExitCode.DONE)
    assert len(rig.answers()) == N
    assert {(a.provider, a.mode, a.intent.origin, a.intent.host) for a in rig.attempts()} == {
        (rig.attempts()[0].provider, "files", Origin.FILES, "files:./files")
    }
    with database.connect(rig.lake) as connection:
        for sql, expected in SHOWN.items():
            assert connection.execute(sql).fetchall() == [expected]
    before = rig.tree()
    assert not any(dataclasses.astuple(rig.sync().counts))
    assert rig.tree() == before


def test_the_manifest_says_what_to_do(sent: FilesRig) -> None:
    """Beside the requests stands what they are, what their bytes hash to, where results belong, and a command."""
    token = sent.token()
    manifest = json.loads((sent.outbox / f"{token}.manifest.json").read_text())
    assert manifest["command"].startswith("batchpond work . --engine vllm --model ")
    alone = f"vllm run-batch -i outbox/{token}.jsonl -o inbox/{token}.jsonl --model "
    assert manifest["command_without_batchpond"].startswith(alone)
    assert (manifest["protocol"], manifest["part_requests"]) == (2, 1_000)
    assert (manifest["study"], manifest["provider"], manifest["n_requests"]) == ("demo", "openai", N)
    assert manifest["sha256"] == sent.only().intent.sha256
    assert stat.S_IMODE((sent.outbox / f"{token}.jsonl").stat().st_mode) == 0o600
    assert sent.inbox.is_dir()


def test_a_format_that_vllm_does_not_read_names_no_command(tmp_path: Path) -> None:
    """Only OpenAI's request lines go into vLLM."""
    rig = new_rig(tmp_path, models=("claude-haiku-4-5",))
    rig.plan()
    rig.submit()
    assert "command" not in json.loads((rig.outbox / f"{rig.token()}.manifest.json").read_text())


def test_files_are_as_readable_as_their_folder(rig: FilesRig, tmp_path: Path) -> None:
    """A folder that was made for a group gives its files to the group, and to nobody else."""
    shared = tmp_path / "shared"
    (shared / "outbox").mkdir(parents=True)
    (shared / "outbox").chmod(0o750)
    rig.environment["BATCHPOND_FILES"] = str(shared)
    rig.submit()
    assert {stat.S_IMODE((shared / "outbox" / name).stat().st_mode) for name in rig.visible("*")} == {0o640}


# --- crashes --------------------------------------------------------------------------------------


def asked(rig: FilesRig) -> Counter[str]:
    """Return how often each request is in a file that somebody sees."""
    rows = [json.loads(line) for name in rig.visible() for line in (rig.outbox / name).read_text().splitlines()]
    return Counter(row["custom_id"].partition("-")[2] for row in rows)


def test_killed_anywhere_in_submit(planned: Path, tmp_path: Path) -> None:
    """Wherever the process dies, each request is seen by the worker exactly once, and answered."""
    for n in every(3, range(IN_THE_LAKE, 200)):
        rig = new_rig(tmp_path / str(n))
        shutil.copytree(planned, rig.lake)
        rig.crash_in = n
        has_survived = rig.survive(rig.submit)
        if not rig.lake_state().approvals:
            rig.submit()
        bring_home(rig)
        assert set(asked(rig).values()) == {1}, n
        assert len(asked(rig)) == N, n
        assert [a.phase for a in rig.attempts()][-1] is Phase.VERIFIED
        assert not any(a.duplicates for a in rig.attempts())
        rig.world.close()
        if has_survived:
            assert n > IN_THE_LAKE + 20
            return
    raise AssertionError("never survived")


def test_killed_anywhere_in_sync(sent: FilesRig, tmp_path: Path) -> None:
    """Wherever a pass dies that takes results in, the next ones take in the same, once."""
    sent.work()
    for n in every(3, range(200)):
        rig = new_rig(tmp_path / str(n))
        shutil.copytree(sent.lake, rig.lake)
        rig.crash_in = n
        has_survived = rig.survive(rig.sync)
        rig.sync()
        assert matches(rig) == {"matched": N}, n
        assert rig.only().phase is Phase.VERIFIED, n
        before = rig.tree()
        rig.sync()
        assert rig.tree() == before, n
        rig.world.close()
        if has_survived:
            assert n > 5
            return
    raise AssertionError("never survived")


def test_the_same_token_twice_is_one_batch(sent: FilesRig) -> None:
    """Creating again, from a copy of the lake or by a mistake, changes nothing that somebody sees."""
    intent, wire = sent.only().intent, sent.providers().get("openai@files")
    before = {name: (sent.outbox / name).read_bytes() for name in sent.visible("*")}
    spec = CreateSpec(
        token=sent.token(),
        endpoint=intent.endpoint or "",
        request_model=intent.request_model or "",
        input_file_id=None,
        payload_path=sent.store().payload_path(sent.only().attempt_id),
        n_requests=N,
        metadata=(),
    )
    created = wire.create(spec)
    assert isinstance(created, Created)
    assert created.batch.batch_id == sent.only().batch_id
    assert {name: (sent.outbox / name).read_bytes() for name in sent.visible("*")} == before
    assert [batch.batch_id for batch in wire.list_page(None).batches] == [sent.token()]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), is_zipped=st.booleans())
def test_any_bytes_are_survived(sent: FilesRig, data: bytes, is_zipped: bool) -> None:
    """Whatever lies in the inbox, a look at the batch says that it is not answered, and raises nothing."""
    path = sent.put(f"{sent.token()}.jsonl{'.gz' if is_zipped else ''}", data)
    batch = sent.providers().get("openai@files").get(sent.token())
    path.unlink()
    assert batch is not None
    assert not batch.state.is_terminal


# --- when results are whole -------------------------------------------------------------------------


def test_parts_in_any_order_and_zipped(sent: FilesRig) -> None:
    """A cluster's shards make one batch: any number of files, rows in any order, gzip or not."""
    rows, token = sent.answers_of()[::-1], sent.token()
    sent.put(f"{token}-00001.jsonl", rows[:5])
    sent.sync()
    assert sent.only().phase is Phase.OPEN
    zipped = gzip.compress("".join(json.dumps(row) + "\n" for row in rows[5:]).encode())
    sent.put(f"{token}.part-2.jsonl.gz", zipped)
    sent.sync()
    assert sent.only().phase is Phase.VERIFIED
    assert (len(sent.only().downloads), matches(sent)) == (2, {"matched": N})


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_cut_file_is_not_taken(sent: FilesRig, cut: int) -> None:
    """Bytes that lack the end of the last answer are a file still being written, however old they are."""
    whole = "".join(json.dumps(row) + "\n" for row in sent.answers_of()).encode()
    path = sent.put(f"{sent.token()}.jsonl", whole[: -cut - 1])
    sent.sync()
    assert (sent.only().phase, sent.only().downloads) == (Phase.OPEN, ())
    path.write_bytes(whole)
    sent.age()
    sent.sync()
    assert matches(sent) == {"matched": N}


def test_a_cut_zipped_file_is_not_taken(sent: FilesRig) -> None:
    """Half a gzip stream is said to be one, and waited for."""
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in sent.answers_of()).encode())
    sent.put(f"{sent.token()}.jsonl.gz", whole[:-30])
    sent.sync()
    assert sent.only().phase is Phase.OPEN
    assert any("cannot be inflated" in note for note in sent.notes)


def test_what_was_written_just_now_may_still_grow(sent: FilesRig) -> None:
    """All answers are there, but their file was touched a moment ago: the user is told, and a later pass takes them."""
    sent.put(f"{sent.token()}.jsonl", sent.answers_of(), age_s=QUIET_S - 1)
    sent.sync()
    assert sent.only().phase is Phase.OPEN
    assert any("written to just now" in note for note in sent.notes)
    sent.clock.advance(1)
    sent.sync()
    assert sent.only().phase is Phase.VERIFIED


def test_results_of_a_worker_whose_clock_is_ahead_are_taken(sent: FilesRig) -> None:
    """They are dated tomorrow, and were called written to just now until then."""
    sent.put(f"{sent.token()}.jsonl", sent.answers_of(), age_s=-86_400)
    sent.sync()
    assert sent.only().phase is Phase.VERIFIED


def test_done_ends_what_will_not_come(sent: FilesRig) -> None:
    """`TOKEN.done` takes what is there at once; what never came counts as cancelled and can be asked again."""
    sent.put(f"{sent.token()}.jsonl", sent.answers_of()[:7], age_s=0)
    sent.sync()
    assert sent.only().phase is Phase.OPEN
    sent.put(f"{sent.token()}.done", b"", age_s=0)
    sent.sync()
    assert (sent.only().phase, sent.only().state, matches(sent)) == (
        Phase.VERIFIED, BatchState.CANCELLED, {"matched": 7},
    )  # fmt: skip
    sent.retry()
    assert sum(asked(sent).values()) == N + 5
    sent.work()
    sent.sync()
    assert len(sent.answers()) == N


def test_written_to_after_done_is_not_done(sent: FilesRig) -> None:
    """A file that is newer than the word that it is whole is still being written."""
    sent.put(f"{sent.token()}.done", b"", age_s=3)
    sent.put(f"{sent.token()}.jsonl", sent.answers_of()[:7], age_s=1)
    sent.sync()
    assert sent.only().phase is Phase.OPEN


def test_cancel_collects_what_is_there(sent: FilesRig) -> None:
    """`cancel` says that no more will come; the marker tells the worker, and the answers so far are kept."""
    sent.put(f"{sent.token()}.jsonl", sent.answers_of()[:3])
    report = cancel(sent.store(), [sent.token()], providers=sent.providers())
    assert len(report.asked) == 1
    assert sent.visible("*.cancelled") == [f"{sent.token()}.cancelled"]
    assert sent.work() == 0
    sent.sync()
    assert (sent.only().state, matches(sent)) == (BatchState.CANCELLED, {"matched": 3})


def test_cancel_without_any_answer(sent: FilesRig) -> None:
    """Nothing came: after a while all requests are cancelled, none is missing from the account."""
    cancel(sent.store(), [sent.only().attempt_id[:8]], providers=sent.providers())
    sent.sync()
    sent.clock.advance(100)
    sent.sync()
    assert (sent.only().phase, sent.only().n_answered) == (Phase.VERIFIED, 0)


# --- results that are not as they should be ------------------------------------------------------------


def test_the_same_answer_twice_counts_once(sent: FilesRig) -> None:
    """Identical rows are one answer; a shard that ran twice does no harm."""
    sent.work(lambda rows: rows + rows[:4])
    sent.sync()
    assert (sent.only().phase, matches(sent)) == (Phase.VERIFIED, {"matched": N, "duplicate": 4})


def test_two_answers_to_one_request_are_flagged(sent: FilesRig) -> None:
    """The first row stands, the other is kept and shown."""

    def change(rows: list[Row]) -> list[Row]:
        other = json.loads(json.dumps(rows[0]))
        other["response"]["body"]["choices"][0]["message"]["content"] = "something else"
        return [*rows, other]

    sent.work(change)
    assert sent.sync().exit_code == ExitCode.ATTENTION
    assert (sent.only().phase, matches(sent)) == (Phase.MISMATCH, {"matched": N, "conflict": 1})


def test_foreign_and_unreadable_rows_are_flagged(sent: FilesRig) -> None:
    """Rows of another study, and no JSON at all: every byte is kept, none is joined to a request."""
    sent.work()
    path = sent.inbox / f"{sent.token()}.jsonl"
    path.write_bytes(b'{"custom_id": "theirs-1", "response": null}\nnot json\n\n' + path.read_bytes())
    sent.age()
    assert sent.sync().exit_code == ExitCode.ATTENTION
    assert matches(sent) == {"matched": N, "unmatched": 2, "blank": 1}
    assert sent.rows("select count(*) from raw", "raw") == [(N + 3,)]


def test_answers_to_other_requests_are_not_taken_for_these(sent: FilesRig) -> None:
    """As many lines as requests, but of another batch: nothing is joined by position, and the user is told."""
    sent.work(lambda rows: [row | {"custom_id": f"elsewhere-{n}"} for n, row in enumerate(rows)])
    sent.sync()
    assert sent.only().phase is Phase.OPEN
    assert any("for 0 of its 12 requests only" in note for note in sent.notes)
    (told,) = stuck(sent.attempts())  # by status and doctor
    assert (told.exit_code, sent.sync().exit_code) == (ExitCode.ATTENTION, ExitCode.ATTENTION)
    assert told.hint == sent.sync().notes[0].hint


def test_failed_rows_are_answers_too(sent: FilesRig) -> None:
    """A worker's error row completes the batch and counts as an error."""

    def fail(rows: list[Row]) -> list[Row]:
        error = {"status_code": 500, "request_id": "r", "body": {"error": {"message": "out of memory"}}}
        return [rows[0] | {"response": error}, *rows[1:]]

    sent.work(fail)
    sent.sync()
    assert (sent.only().phase, len(sent.answers())) == (Phase.VERIFIED, N - 1)


def test_a_wrong_name_is_told(sent: FilesRig) -> None:
    """Results under a name of the user's own are read by nobody, and each pass says so."""
    sent.put("results.jsonl", sent.answers_of())
    sent.sync()
    assert any("results.jsonl answers no batch that is open" in note for note in sent.notes)


def test_late_results_are_told_and_change_nothing(sent: FilesRig) -> None:
    """What comes after a batch was ended stays in the inbox, unread, and is named at each pass."""
    sent.put(f"{sent.token()}-a.jsonl", sent.answers_of()[:3])
    sent.put(f"{sent.token()}.done", b"")
    sent.sync()
    sent.put(f"{sent.token()}-b.jsonl", sent.answers_of()[3:])
    before = sent.tree()
    sent.sync()
    assert any(f"{sent.token()}-b.jsonl answers no batch that is open" in note for note in sent.notes)
    assert sent.tree() == before


def test_an_edited_result_is_kept_beside_the_first(sent: FilesRig) -> None:
    """After a mismatch a mended file is fetched on request; what was received before stays in `raw`."""
    sent.work(lambda rows: [*rows, {"custom_id": "theirs-1"}])
    sent.sync()
    assert sent.only().phase is Phase.MISMATCH
    sent.put(f"{sent.token()}.jsonl", [row | {"id": "mended"} for row in sent.answers_of()] + [{"custom_id": "a"}] * 2)
    resolve(sent.store(), sent.only().attempt_id, Resolution.REFETCH, providers=sent.providers())
    sent.sync()
    assert len(sent.only().downloads) == 2
    assert sent.rows("select count(distinct file_sha256) from raw", "raw") == [(2,)]
    assert matches(sent)["matched"] == N


# --- the folder ------------------------------------------------------------------------------------------


def test_the_outbox_may_be_tidied(sent: FilesRig) -> None:
    """Once results stand in the inbox nobody needs the request files: removing them loses nothing."""
    sent.work()
    for name in sent.visible("*"):
        (sent.outbox / name).unlink()
    sent.sync()
    assert sent.only().phase is Phase.VERIFIED
    assert sent.visible("*") == []


def test_a_removed_batch_is_not_found_and_not_lost(sent: FilesRig) -> None:
    """Without its record a batch is unknown to the folder: that is noted, and nothing is sent again by itself."""
    record = sent.outbox / f".{sent.token()}.batch"
    data = record.read_bytes()
    record.unlink()
    sent.sync()
    assert [type(event) for event in sent.only().not_found] == [NotFound]
    assert len(sent.attempts()) == 1
    record.write_bytes(data)
    sent.work()
    sent.sync()
    assert sent.only().phase is Phase.VERIFIED


# --- beside other modes --------------------------------------------------------------------------------------


def test_a_refused_key_does_not_stop_files(tmp_path: Path) -> None:
    """Batches of a provider and files in its format are two ways: trouble on one is none on the other."""
    rig = new_rig(tmp_path, models=("gpt-4.1-mini", "gpt-4o"))
    rig.study_path.write_text(rig.study_path.read_text().replace('mode = "files"\n', "", 1))
    rig.plan()
    report = rig.submit()
    assert report.exit_code == ExitCode.ACCESS
    assert [(a.mode, a.phase) for a in rig.attempts()] == [("files", Phase.OPEN)]
    rig.work()
    rig.sync()
    assert len(rig.answers()) == N


def test_a_provider_without_files_is_refused_at_plan(rig: FilesRig) -> None:
    """A provider with no request format of its own is refused in a sentence that names its modes."""
    text = rig.study_path.read_text().replace('"openai"', '"ollama"')
    rig.study_path.write_text(text)
    with pytest.raises(StudyError, match="ollama has no mode 'files'"):
        plan_study(rig.store(), load(rig.study_path))


def test_every_batch_provider_has_files() -> None:
    """Whatever has a batch format that anybody could answer has a folder for it, without a key."""
    for descriptor in (found for found in registry.descriptors() if Mode.FILES in found.modes):
        wire = registry.connect(f"{descriptor.name}@files", environ={}, lake_path=Path("/lake"))
        assert wire.descriptor.name == descriptor.name
        assert not wire.is_loopback


def test_the_commands(tmp_path: Path) -> None:
    """plan, submit, status, the worker, sync, keys, doctor: as processes, in an environment without any key."""
    rig = new_rig(tmp_path)
    rig.study_path.write_text(rig.study_path.read_text().replace('"openai"', '"vllm"'))
    known = {name for d in registry.descriptors() for name in (*d.key_env, d.base_url_env)}
    environment = {name: value for name, value in os.environ.items() if name not in known}
    environment["BATCHPOND_LAKE"] = str(rig.lake)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run_text(*arguments, env=environment)

    assert run("plan", str(rig.study_path)).returncode == 0
    done = run("submit", "demo", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"1 file of requests waits to be answered in {rig.outbox}" in done.stderr
    done = run("status")
    assert (done.returncode, f"waits to be answered in {rig.outbox}" in done.stderr) == (0, True), done.stderr
    files_worker.work(rig.folder)
    for path in rig.inbox.iterdir():
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
    done = run("sync", "--exit-code")
    assert (done.returncode, "12 lines downloaded, 1 verified" in done.stderr) == (0, True), done.stderr
    assert run("keys", "--check").returncode == 0
    (rig.inbox / "mine.jsonl").touch()
    done = run("doctor", "--format", "csv")
    assert (done.returncode, "mine.jsonl answers no batch that is open" in done.stdout) == (0, True), done.stderr
