"""Where keys and base URLs come from, which are refused, and what `keys` shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from batchpond.clock import SystemClock
from batchpond.errors import AccessError, UsageError
from batchpond.providers import registry
from batchpond.providers.http.keys import listing, resolve
from batchpond.providers.openai.dialect import DIALECT
from tests.rigs.clock import ClockFile, ManualClock
from tests.rigs.hostile_server import hostile, reply

DESCRIPTOR = DIALECT.DESCRIPTOR
KEY = "sk-canary-keys-0123456789"


def test_the_key_and_base_url_come_from_the_sdks_own_variables() -> None:
    """OPENAI_API_KEY and OPENAI_BASE_URL, as the official SDK reads them."""
    access = resolve(DESCRIPTOR, {"OPENAI_API_KEY": KEY})
    assert (access.key.reveal(), access.base_url) == (KEY, DESCRIPTOR.default_base_url)
    access = resolve(DESCRIPTOR, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://proxy.example/v1/"})
    assert access.base_url == "https://proxy.example/v1"
    assert resolve(DESCRIPTOR, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "  "}).base_url == DESCRIPTOR.default_base_url
    assert KEY not in repr(access)


def test_another_providers_base_url_never_moves_this_key() -> None:
    """Only the provider's own variable sends its key elsewhere."""
    environ = {"OPENAI_API_KEY": KEY, "ANTHROPIC_BASE_URL": "https://evil.example", "BASE_URL": "https://evil.example"}
    assert resolve(DESCRIPTOR, environ).base_url == DESCRIPTOR.default_base_url


def test_a_dotenv_file_in_the_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloned repository cannot redirect a key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=https://evil.example\nOPENAI_API_KEY=x\n")
    assert resolve(DESCRIPTOR, {"OPENAI_API_KEY": KEY}).base_url == DESCRIPTOR.default_base_url
    with pytest.raises(AccessError):
        resolve(DESCRIPTOR, {})


@pytest.mark.parametrize(
    "value", ["", "  ", KEY + "\n", f'"{KEY}"', f"'{KEY}'", "a b", "kéy", "a\r\nX-Evil: 1", "a\x00b"]
)
def test_keys_that_cannot_be_a_header_are_refused_without_being_shown(value: str) -> None:
    """Empty, quoted, and header-splitting keys, with a hint and without the key."""
    with pytest.raises(AccessError) as caught:
        resolve(DESCRIPTOR, {"OPENAI_API_KEY": value})
    assert caught.value.hint is not None
    assert KEY not in caught.value.message + (caught.value.hint or "")
    assert listing([DESCRIPTOR], {"OPENAI_API_KEY": value})[0].problem is not None


def test_a_missing_key_is_named_except_on_this_machine() -> None:
    """A simulator needs none."""
    with pytest.raises(AccessError, match="OPENAI_API_KEY"):
        resolve(DESCRIPTOR, {})
    assert resolve(DESCRIPTOR, {"OPENAI_BASE_URL": "http://127.0.0.1:8080/openai/v1"}).key.reveal()


def test_an_unsafe_base_url_is_a_usage_error() -> None:
    """Plain http to another machine would show the key to the network."""
    with pytest.raises(UsageError):
        resolve(DESCRIPTOR, {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://api.openai.com/v1"})


def test_the_first_variable_that_is_set_wins() -> None:
    """Providers with two key variables say their order."""
    two = dataclasses.replace(DESCRIPTOR, key_env=("FIRST_KEY", "SECOND_KEY"))
    assert resolve(two, {"SECOND_KEY": "bbbbbbbb"}).key_env == "SECOND_KEY"
    assert resolve(two, {"SECOND_KEY": "bbbbbbbb", "FIRST_KEY": "aaaaaaaa"}).key_env == "FIRST_KEY"


def test_the_listing_shows_every_provider_and_no_key() -> None:
    """Name, variable, found or not, and the host the key would go to."""
    rows = listing(registry.descriptors(), {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:81/v1"})
    row = next(row for row in rows if row.provider == "openai")
    assert (row.key_env, row.is_found, row.base_url_host, row.problem) == ("OPENAI_API_KEY", True, "127.0.0.1:81", None)
    assert KEY not in repr(rows)
    assert not listing([DESCRIPTOR], {})[0].is_found


def test_checking_keys_makes_one_free_call_and_says_whose_key_it_is() -> None:
    """The scope comes from the answer's headers; a refusal is a row, not an exception."""
    clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))
    page = {"object": "list", "data": [], "has_more": False}
    with hostile(reply(page, openai_organization="org-7", openai_project="proj_x")) as server:
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        check = next(check for check in registry.check_keys(clock, environ) if check.row.provider == "openai")
        assert check.scope == f"openai/127.0.0.1:{server.port}/org-7/proj_x"
        assert [seen.method for seen in server.requests] == ["GET"]
    error = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    with hostile(reply(error, 401)) as server:
        environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        check = next(check for check in registry.check_keys(clock, environ) if check.row.provider == "openai")
        assert check.scope is None
        assert "OPENAI_API_KEY was refused" in (check.problem or "")
        assert KEY not in repr(check)


def test_an_unknown_provider_is_a_usage_error_with_a_guess() -> None:
    """A typing mistake is met with the nearest name."""
    with pytest.raises(UsageError) as caught:
        registry.module("opnai")
    assert "openai" in (caught.value.hint or "")


@pytest.mark.parametrize("connect", [registry.connect, registry.connect_live])
def test_the_clock_of_tests_is_for_simulators_alone(connect: Callable[..., object], tmp_path: Path) -> None:
    """A false time that reached a provider could make an absence look proven: no client is made for it."""
    clock = SystemClock(ClockFile(tmp_path / "clock").path)
    here = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    connect("openai", clock, environ=here)
    for elsewhere in ({}, {"OPENAI_BASE_URL": "https://proxy.example/v1"}):
        with pytest.raises(UsageError, match="BATCHPOND_TEST_CLOCK is for simulators on this machine"):
            connect("openai", clock, environ={"OPENAI_API_KEY": KEY, **elsewhere})
