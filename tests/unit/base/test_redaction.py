"""Secrets stay inside: in repr, pickle, copies, dataclasses, logs and any text that passes `redact`."""

from __future__ import annotations

import copy
import dataclasses
import logging
import pickle

import pytest

from batchpond.text import REDACTED, RedactingFilter, Secret, guard_loggers, redact

CANARY = "sk-CANARY-redaction-0123456789"


@dataclasses.dataclass(frozen=True)
class Holder:
    key: Secret


def test_a_secret_shows_itself_only_when_asked() -> None:
    """Every way to print, copy or store it gives the placeholder."""
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    shown = [repr(secret), str(secret), f"{secret}", f"{secret:>80}", "%s %r" % (secret, secret), repr([secret])]  # noqa: UP031
    shown += [repr(Holder(secret)), repr(dataclasses.asdict(Holder(secret)))]
    assert all(CANARY not in text for text in shown)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(secret, protocol)
        assert CANARY.encode() not in data
        assert pickle.loads(data).reveal() == REDACTED  # noqa: S301
    assert copy.copy(secret) is secret
    assert copy.deepcopy(secret) is secret
    assert not hasattr(secret, "__dict__")


def test_secrets_compare_but_do_not_hash() -> None:
    """A hash would let a value be tested for."""
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret(CANARY + "x")
    assert Secret(CANARY) != CANARY
    with pytest.raises(TypeError):
        hash(Secret(CANARY))


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"GET /x?key={CANARY}&a=1",
        f"Incorrect API key provided: {CANARY}.",
        "header Authorization: Bearer abc.def-GHI_123",
        "sk-proj-abcdefghijklmnop",
        "sk-ant-api03-abcdefghijklmnop",
        "gsk_abcdefghijklmnopqrs",
        "AIzaSyA1234567890abcdef",
        "https://h/o?X-Goog-Signature=deadbeef0123&x=1",
    ],
)
def test_loaded_keys_and_things_shaped_like_keys_are_removed(text: str) -> None:
    """The text around the key stays."""
    Secret(CANARY)
    cleaned = redact(text)
    assert REDACTED in cleaned
    for part in (CANARY, "abc.def", "abcdefghijklmnop", "AIzaSy", "deadbeef"):
        assert part not in cleaned


@pytest.mark.parametrize(
    "text", ["batch_68f0 file-abc", "the task-force risk-free xai-grok token count 7", "SAMPLE_1 is better"]
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Ids and words are not taken for keys."""
    assert redact(text) == text


def test_log_records_lose_secrets_in_text_arguments_and_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The filter rewrites the record itself, so every handler is safe."""
    Secret(CANARY)
    logger = logging.getLogger("batchpond.test_redaction")
    logger.addFilter(RedactingFilter())
    try:
        int(f"bad {CANARY}")
    except ValueError:
        logger.exception("with %s and %d", CANARY, 7)
    assert CANARY not in caplog.text
    assert "and 7" in caplog.text


def test_the_http_libraries_stay_quiet_even_when_a_user_turns_on_debug_logs() -> None:
    """Their INFO lines print URLs; they start at WARNING, with the filter on each."""
    guard_loggers()
    guard_loggers()
    for name in ("httpx", "httpcore", "httpcore.http11", "httpcore.connection"):
        logger = logging.getLogger(name)
        assert not logger.isEnabledFor(logging.INFO)
        assert sum(isinstance(each, RedactingFilter) for each in logger.filters) == 1
