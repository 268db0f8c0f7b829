"""A key that a provider refuses, or that is missing, is told by `status` and `doctor` until a pass gets through."""

from __future__ import annotations

import json

import pytest

from tests.process.test_nothing_pending import stood
from tests.rigs.fake_openai import FakeOpenAI, error, fake_openai
from tests.rigs.program import STUDY, N, Program

STANDS = "nothing goes on at openai since 20"


def told(program: Program, command: str) -> tuple[int, bool]:
    """Return a command's exit code, and whether it says that openai lets nobody in."""
    done = program.run(command)
    return done.returncode, STANDS in done.stdout + done.stderr


def test_a_key_that_is_refused_is_told_until_it_is_right_again(account: FakeOpenAI, program: Program) -> None:
    """Exit 4 of `status` and `doctor`, as of `sync`, while a batch is open; what is no news is not written."""
    account.is_held = True
    assert program.submit().returncode == 0
    account.is_locked = True
    assert program.sync().returncode == 4
    before = stood(program)
    assert program.sync().returncode == 4
    assert stood(program) == before
    for command in ("status", "doctor"):
        assert told(program, command) == (4, True)
    (refused,) = json.loads(program.run("status", "--json").stdout)["refused"]
    assert "OPENAI_API_KEY was refused" in refused["message"]
    assert "answered 401: refused: key_" in refused["message"]
    account.is_locked = False
    assert program.sync().returncode == 0
    before = stood(program)
    assert program.sync().returncode == 0
    assert stood(program) == before
    assert told(program, "status") == (0, False)
    assert told(program, "doctor")[1] is False


def test_what_is_not_sent_yet_waits_for_the_key(account: FakeOpenAI, program: Program) -> None:
    """What waits for a refused key needs a person, and goes by itself once the key is right."""
    account.is_locked = True
    assert program.submit().returncode == 4
    assert told(program, "status") == (4, True)
    (wait,) = json.loads(program.run("status", "--json").stdout)["waits"]
    assert (wait["reason"], wait["n_requests"], wait["needs_attention"]) == ("a key that openai accepts", N, True)
    account.is_locked = False
    program.sync()
    program.sync()
    assert program.outcomes() == {"decided": N}
    assert told(program, "status") == (0, False)


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_a_pass_without_a_key_is_told_where_the_key_is_set(command: str, account: FakeOpenAI, program: Program) -> None:
    """Cron has no key, the shell has: `status` there says what cron met, with exit 4, and the next pass settles it."""
    account.is_held = True
    assert program.submit().returncode == 0
    program.more = {"OPENAI_API_KEY": ""}
    assert program.sync().returncode == 4
    program.more = {}
    done = program.run(command)
    assert done.returncode == 4
    assert "OPENAI_API_KEY is set but empty" in done.stdout + done.stderr
    assert program.sync().returncode == 0
    assert told(program, "status") == (0, False)


def test_a_reader_without_a_key_is_no_alarm(account: FakeOpenAI, program: Program) -> None:
    """Who only looks, in a shell without keys, at a study whose passes get through, sees exit 0."""
    account.is_held = True
    assert program.submit().returncode == 0
    program.more = {"OPENAI_API_KEY": ""}
    assert told(program, "status") == (0, False)


def test_another_account_than_the_batches_is_told_too(account: FakeOpenAI, program: Program) -> None:
    """A base URL that leads elsewhere keeps a study from going on as a wrong key does."""
    account.is_held = True
    assert program.submit().returncode == 0
    with fake_openai() as other:
        program.more = {"OPENAI_BASE_URL": other.url}
        assert program.sync().returncode == 4
    program.more = {}
    done = program.run("status")
    assert (done.returncode, "batches of this lake live at" in done.stderr) == (4, True)
    assert program.sync().returncode == 0
    assert told(program, "status") == (0, False)


def test_one_provider_goes_on_while_the_key_of_another_is_refused(account: FakeOpenAI, program: Program) -> None:
    """Only the refused one is told of, only for studies that wait for it, and only until nothing does."""
    with fake_openai() as other:
        study = program.folder / "study.toml"
        second = '[[models]]\nprovider = "groq"\nmodel = "llama-3.1-8b-instant"\nmax_output_tokens = 200\n'
        study.write_text(study.read_text() + second)
        program.more = {"GROQ_BASE_URL": other.url, "GROQ_API_KEY": "gsk-fake"}
        assert program.run("plan", "study.toml").returncode == 0
        other.is_locked = True
        assert program.submit().returncode == 4
        assert program.sync().returncode == 4
        assert program.outcomes() == {"decided": N, None: N}
        done = program.run("status")
        assert (done.returncode, STANDS in done.stderr) == (4, False)
        assert "nothing goes on at groq since 20" in done.stderr
        program.write()
        assert program.run("plan", "study.toml").returncode == 0
        program.sync()
        done = program.run("status")
        assert (done.returncode, "groq" in done.stderr) == (0, False), done.stderr


def test_a_key_that_lacks_rights_for_a_model_is_told_while_it_does(account: FakeOpenAI, program: Program) -> None:
    """A create that is refused with 403 is told with what it said, in the back-off and after it, until one succeeds."""
    account.refusals = [error(403, "model_not_allowed")]
    assert program.submit().returncode == 4
    for wait_s in (0, 40):
        program.wait(wait_s)
        for command in ("status", "doctor"):
            done = program.run(command)
            assert done.returncode == 4
            said = f"openai refused {N} requests of study {STUDY} for want of rights: refused: model_not_allowed"
            assert said in done.stdout + done.stderr
            assert STANDS not in done.stdout + done.stderr
    program.sync()
    assert program.run("status").returncode == 0
    program.sync()
    assert program.outcomes() == {"decided": N}


def test_a_pass_in_the_back_off_of_a_refused_right_is_exit_4(account: FakeOpenAI, program: Program) -> None:
    """Cron hears of it at every pass, not at the first alone."""
    account.refusals = [error(403, "model_not_allowed")]
    assert [program.submit().returncode, program.sync().returncode] == [4, 4]
