"""All that runs of one study is stopped at a word, and nothing more of it is sent until somebody says so."""

from __future__ import annotations

import json

from tests.process.test_nothing_pending import stood
from tests.rigs.fake_openai import Answer, FakeOpenAI
from tests.rigs.program import STUDY, N, Program


def begun(account: FakeOpenAI, program: Program) -> None:
    """Have two of a study's four batches run, and one of another study."""
    program.prepare(max_requests=3)
    (program.folder / "lake" / "config.toml").write_text("[limits.openai]\nopen_batches = 2\n")
    account.is_held = True
    assert program.submit().returncode == 0
    (program.folder / "lake" / "config.toml").unlink()
    study = program.folder / "other.toml"
    study.write_text((program.folder / "study.toml").read_text().replace(STUDY, "other").replace("samples", "others"))
    (program.folder / "others.csv").write_text("id,text\na,one\nb,two\n")
    assert program.run("plan", "other.toml").returncode == 0
    assert program.run("submit", "other", "--yes").returncode == 0
    account.batches[0]["request_counts"]["completed"] = 2
    program.run("sync", "--no-submit")
    program.wait(4_000)  # counts alone are news hourly at most
    program.run("sync", "--no-submit")


def n_asked(account: FakeOpenAI) -> int:
    """Return how many batches were asked to stop."""
    return sum(path.endswith("/cancel") for _, path in account.asked)


def test_a_study_is_stopped_and_goes_on_when_somebody_says_so(account: FakeOpenAI, program: Program) -> None:
    """Its batches are cancelled, those of others run on; passes send nothing of it, and `submit` and `retry` all."""
    begun(account, program)
    before = stood(program)
    asked = program.run("cancel", "--study", STUDY)
    assert asked.returncode == 2
    known = "6 requests, of which 2 are known to be answered; what is, is billed"
    said = f"2 batches: {known}"
    assert said in asked.stderr
    assert (n_asked(account), stood(program)) == (0, before)
    done = program.run("cancel", "--study", STUDY, "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)["asked"]) == (0, ["batch_000000", "batch_000001"])
    assert [batch["status"] for batch in account.batches] == ["cancelling", "cancelling", "in_progress"]
    account.finish(account.batches[2])
    for batch in account.batches[:2]:
        account.finish(batch)
        batch |= {"status": "cancelled", "output_file_id": None}
    program.sync()
    assert len(account.batches) == 3, "what was not sent stays so"
    assert f"6 requests of study {STUDY} (2 batches) wait for a new approval" in program.run("status").stderr
    account.is_held = False
    assert program.submit().returncode == 0
    assert program.run("retry", STUDY, "--only", "cancelled", "--yes").returncode == 0
    program.sync()
    assert program.outcomes() == {"decided": N + 2}


def test_what_was_asked_to_stop_is_not_asked_again(account: FakeOpenAI, program: Program) -> None:
    """A second word finds nothing to stop, once a pass has seen the first."""
    begun(account, program)
    assert program.run("cancel", "--study", STUDY, "--yes").returncode == 0
    program.run("sync")
    done = program.run("cancel", "--study", STUDY, "--yes", "--json")
    assert (json.loads(done.stdout)["asked"], n_asked(account)) == ([], 2)


def test_a_batch_that_may_exist_is_told_and_not_stopped(account: FakeOpenAI, program: Program) -> None:
    """Nobody can stop what has no name yet: exit 3, and the next word finds it."""
    program.settle_s, account.is_held = "600", True
    account.create_answers = [Answer(None)] * 9
    account.list_answers = [None, *[Answer(400)] * 30]
    program.submit()
    done = program.run("cancel", "--study", STUDY, "--yes")
    assert (done.returncode, "is not known yet: it was not stopped" in done.stderr) == (3, True), done.stderr
    account.list_answers = []
    program.sync()
    assert program.run("cancel", "--study", STUDY, "--yes").returncode == 0
    assert account.batches[0]["status"] == "cancelling"


def test_one_of_both_is_named(program: Program) -> None:
    """Neither batches nor a study, or both, is exit 2 before anything is asked; so is a study that nobody knows."""
    for given in ((), ("batch_1", "--study", STUDY), ("--study", "smal")):
        assert program.run("cancel", *given, "--yes").returncode == 2
