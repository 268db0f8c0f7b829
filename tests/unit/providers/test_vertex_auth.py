"""Who calls Vertex AI, and where: settings, tokens that run out, credentials that are missing or must not be sent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from batchpond.clock import SystemClock
from batchpond.errors import AccessError, UsageError
from batchpond.model import Created, CreateSpec, ErrorClass, Rejected
from batchpond.providers import registry
from batchpond.providers.http import keys
from batchpond.providers.vertex.auth import Credentials
from batchpond.providers.vertex.batch import VertexClient
from batchpond.providers.vertex.dialect import DIALECT
from batchpond.study.prices import load_config
from batchpond_sim.host import server
from batchpond_sim.world.world import Settings
from tests.rigs.clock import ManualClock
from tests.rigs.vertex_script import ENVIRON, INPUT, SECRET, SPEC, TOKEN_ENV, Script, job, ok, refusal
from tests.rigs.wire_script import START


@pytest.fixture
def key_file(tmp_path: Path) -> dict[str, Any]:
    """A service account's key, made on the spot."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {
        "type": "service_account",
        "project_id": "key-project",
        "private_key_id": "k1",
        "private_key": pem.decode(),
        "client_email": "judge@key-project.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }


@pytest.fixture
def simulated() -> Iterator[server.Running]:
    with server.running(Settings(seed=1, latency_s=(5.0, 10.0))) as sim:
        yield sim


@pytest.fixture
def account(
    simulated: server.Running, key_file: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VertexClient]:
    """The wire of a service account whose tokens are a simulator's."""
    url = simulated.base_url_of("vertex")
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key_file | {"token_uri": f"{url}/token"}))
    for name in DIALECT.DESCRIPTOR.key_env:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setenv("GOOGLE_VERTEX_BASE_URL", url)
    wire = registry.connect("vertex", SystemClock())
    yield wire
    wire.close()


# --- tokens ------------------------------------------------------------------------------------------


def tokens_given(sim: server.Running) -> int:
    return len(list(sim.world.path.glob("vertex/tokens/*.json")))


def test_a_service_account_gets_its_own_tokens_and_its_project(
    account: VertexClient, simulated: server.Running
) -> None:
    """One token serves both origins for as long as it is good."""
    assert account.check() == f"vertex/{account.host}"
    assert "/key-project/" in account.host
    assert account.find_uploads("nothing.jsonl", START) == []
    assert tokens_given(simulated) == 1


def test_a_token_that_was_refused_is_renewed_once_and_the_call_made_again(
    account: VertexClient, simulated: server.Running
) -> None:
    """It ran out by Google's clock, not yet by ours."""
    account.check()
    simulated.world.advance(4_000)
    assert account.list_page(None).batches == ()
    assert tokens_given(simulated) == 2


def test_a_create_with_a_token_that_ran_out_is_a_no_that_passes(
    account: VertexClient, simulated: server.Running, tmp_path: Path
) -> None:
    """A create is one POST: it is not repeated, but the next pass has a new token for it."""
    account.check()
    simulated.world.advance(4_000)
    spec = CreateSpec(SPEC.token, SPEC.endpoint, SPEC.request_model, INPUT, tmp_path, 2, SPEC.metadata)
    refused = account.create(spec)
    assert isinstance(refused, Rejected)
    assert refused.error_class is ErrorClass.TRANSIENT
    assert isinstance(account.create(spec), Created)
    assert len(simulated.world.ledger.batches) == 1


class Tickets:
    """Credentials as google-auth has them: a token, and when it runs out in UTC without saying so."""

    quota_project_id = "quota-project"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.token: str | None = None
        self.expiry: Any = None
        self.n = 0

    def refresh(self, _request: object) -> None:
        self.n += 1
        self.token = f"ya29.ticket-{self.n}"
        self.expiry = self.clock.now().replace(tzinfo=None) + timedelta(hours=1)


def test_a_token_is_renewed_five_minutes_before_it_runs_out() -> None:
    """Not earlier, and not after; the guard of the key knows the ones before."""
    clock = ManualClock(START)
    tickets = Tickets(clock)
    auth = Credentials(tickets, clock)
    for seconds, n in ((0, 1), (3_299, 1), (2, 2), (3_000, 2), (301, 3)):
        clock.advance(seconds)
        headers = auth.headers()
        assert tickets.n == n
        assert getattr(headers["Authorization"], "reveal")() == f"Bearer ya29.ticket-{n}"  # noqa: B009
        assert headers["x-goog-user-project"] == "quota-project"
    assert set(auth.secrets()) == {f"ya29.ticket-{n}" for n in (1, 2, 3)}
    assert "ya29" not in repr(auth.headers())


def test_a_fixed_token_that_was_refused_ends_the_pass() -> None:
    """There is no other one: asking again and again would change nothing."""
    script = Script(refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."))
    with pytest.raises(AccessError, match=TOKEN_ENV):
        script.wire.list_page(None)
    assert len(script.requests) == 1
    got = script.wire.create(SPEC)
    assert isinstance(got, Rejected)
    assert got.error_class is ErrorClass.ACCESS


def test_a_create_that_cannot_get_a_token_is_a_no_and_nothing_is_sent(
    account: VertexClient, simulated: server.Running, tmp_path: Path
) -> None:
    """Between the record of sending and the POST nothing may raise."""
    simulated.world.add_fault("*@*:status=400")
    n = simulated.world.ledger.n_requests
    got = account.create(SPEC)
    assert isinstance(got, Rejected)
    assert (got.error_class, got.code) == (ErrorClass.ACCESS, "no_token")
    assert simulated.world.ledger.n_requests - n == 1, "the token's own call"


# --- credentials -------------------------------------------------------------------------------------


def test_real_credentials_are_never_sent_to_a_simulator(
    simulated: server.Running, key_file: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key file whose tokens are Google's does not count on this machine: any word will do there."""
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key_file))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    environ = os.environ | {"GOOGLE_VERTEX_BASE_URL": simulated.base_url_of("vertex")}
    for name in DIALECT.DESCRIPTOR.key_env:
        environ.pop(name, None)
    wire = registry.connect("vertex", SystemClock(), environ=environ)
    assert wire.check() == f"vertex/{wire.host}"
    wire.close()
    assert tokens_given(simulated) == 0


def test_without_google_auth_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an optional extra; a token of the environment works without it."""
    monkeypatch.setitem(sys.modules, "google.auth", None)
    environ = {name: value for name, value in ENVIRON.items() if name != TOKEN_ENV}
    with pytest.raises(AccessError) as caught:
        registry.connect("vertex", ManualClock(START), environ=environ)
    assert "batchpond[vertex]" in (caught.value.hint or "")
    assert TOKEN_ENV in (caught.value.hint or "")
    assert Script(ok({})).wire.list_page(None).batches == ()


def test_without_any_credentials_the_way_to_get_them_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token, no file, no machine of Google's."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", *DIALECT.DESCRIPTOR.key_env):
        monkeypatch.delenv(name, raising=False)
    environ = {name: value for name, value in ENVIRON.items() if name != TOKEN_ENV}
    with pytest.raises(AccessError) as caught:
        registry.connect("vertex", ManualClock(START), environ=environ)
    assert "gcloud auth application-default login" in (caught.value.hint or "")


def test_gclouds_variable_is_a_token_too() -> None:
    """As CLOUDSDK_AUTH_ACCESS_TOKEN is for gcloud itself."""
    environ = {name: value for name, value in ENVIRON.items() if name != TOKEN_ENV}
    script = Script(ok({}))
    wire = registry.connect(
        "vertex", script.clock, transport=script.transport, environ=environ | {"CLOUDSDK_AUTH_ACCESS_TOKEN": SECRET}
    )
    wire.list_page(None)
    assert script.requests[0].headers["authorization"] == f"Bearer {SECRET}"


# --- settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "BATCHPOND_VERTEX_BUCKET"])
@pytest.mark.parametrize("value", [None, " ", "not/one!"])
def test_a_setting_that_is_missing_or_none_is_named(name: str, value: str | None) -> None:
    """Before anything is called."""
    environ = {key: found for key, found in ENVIRON.items() if key != name} | ({} if value is None else {name: value})
    with pytest.raises(UsageError) as caught:
        registry.connect("vertex", ManualClock(START), environ=environ)
    assert name in caught.value.message or "bucket" in caught.value.message
    if value != "not/one!":
        assert "config.toml" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"), ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)  # fmt: skip
def test_a_location_has_its_host(location: str, host: str) -> None:
    """As google-genai has it."""
    script = Script(ok(job()), GOOGLE_CLOUD_LOCATION=location)
    script.wire.create(SPEC)
    assert script.requests[0].url.host == host
    assert f"/locations/{location}/" in script.requests[0].url.path


def test_a_lakes_settings_win_over_the_shell(tmp_path: Path) -> None:
    """A project that a shell happens to name is not where this lake's batches are."""
    (tmp_path / "config.toml").write_text(
        '[providers.vertex]\nproject = "lake-project"\nlocation = "europe-west4"\nbucket = "gs://lake-bucket/a/b/"\n'
    )
    environ = {**ENVIRON, **load_config(tmp_path).variables}
    wire = registry.connect("vertex", ManualClock(START), environ=environ)
    assert wire.host == "europe-west4-aiplatform.googleapis.com/lake-project/europe-west4"
    assert vars(wire)["_place"].bucket == "lake-bucket"
    assert vars(wire)["_place"].folder == "a/b"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[providers.vertex]\nregion = "x"\n', r"config\.toml:2: providers\.vertex\.region is not a known key"),
        ("[providers.vertex]\nproject = 7\n", "providers.vertex.project is 7; it must be text"),
        ('[providers.vortex]\nproject = "x"\n', r"config\.toml:1: providers\.vortex is not a known key"),
        ('[providers.openai]\nproject = "x"\n', r"config\.toml:2: providers\.openai\.project is not a known key"),
        ("providers = 3\n", r"config\.toml:1: providers must be a table, not a number"),
    ],
)
def test_a_setting_of_a_lake_that_means_nothing_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    """A misspelt one would be ignored in silence."""
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(UsageError, match=problem):
        load_config(tmp_path)


def test_a_simulated_vertex_never_writes_to_a_real_bucket() -> None:
    """Nor a real one to a simulated: both or neither."""
    for environ in ({"STORAGE_EMULATOR_HOST": "localhost:9023"}, {"GOOGLE_VERTEX_BASE_URL": "http://127.0.0.1:1",
                    "STORAGE_EMULATOR_HOST": "https://storage.googleapis.com"}):  # fmt: skip
        with pytest.raises(UsageError, match="both be real or both be simulated"):
            registry.connect("vertex", ManualClock(START), environ=ENVIRON | environ)


def test_the_listing_of_keys_knows_a_credentials_file() -> None:
    """A path is no key: blanks in it are no error."""
    rows = {
        row.provider: row for row in keys.listing(registry.descriptors(), {"GOOGLE_APPLICATION_CREDENTIALS": "/a b"})
    }
    assert (rows["vertex"].is_found, rows["vertex"].problem) == (True, None)
    assert not rows["gemini"].is_found
