"""What the wire of every batch API promises: bought once, known for certain or in doubt, the key at home."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond import ids
from batchpond.clock import SystemClock
from batchpond.errors import AccessError, ProviderError
from batchpond.model import BatchState, Created, CreateSpec, Rejected, RemoteBatch, ResponseStatus, Unclear
from batchpond.providers import registry
from batchpond.providers.base import BatchProvider
from batchpond.providers.shared.dialect import Dialect, ModelSettings
from tests.rigs import simulator
from tests.rigs.batch_wires import ANTHROPIC, EVIL, KEY, MISTRAL, OPENAI, TOGETHER, TOKEN, WIRES, No, Wire, hurdle
from tests.rigs.hostile_server import Act, eof, hostile, raw, reset
from tests.rigs.sim_providers import SIMULATED
from tests.rigs.swept import examples
from tests.rigs.wire_script import START, Script

each = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
takes_files = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.input_file_id is not None], ids=lambda wire: wire.name
)


def rows(name: str) -> pytest.MarkDecorator:
    """Return each provider's rows of one kind."""
    found = [(wire, row) for wire in WIRES for row in (hurdle(wire) if name == "hurdle" else getattr(wire, name))]
    return pytest.mark.parametrize(
        ("wire", "row"), found, ids=[f"{wire.name}-{n}" for n, (wire, _) in enumerate(found)]
    )


@pytest.fixture
def payload(tmp_path: Path) -> Path:
    """Two requests, for those that send them inside the create call."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"custom_id":"a","params":{"n":1}}\n{"custom_id":"b","params":{"n":2}}\n')
    return path


def hosts(script: Script) -> set[str]:
    return {request.url.host for request in script.requests}


def test_every_provider_of_batches_has_a_row() -> None:
    """A provider that is added is held to all of this."""
    assert tuple(wire.name for wire in WIRES) == registry.NAMES


@each
def test_the_wire_and_the_module_are_what_the_rest_expects(wire: Wire) -> None:
    """The interfaces of providers, member by member; an absence is believed only after two create deadlines."""
    for protocol, thing in ((BatchProvider, wire.script().wire), (Dialect, registry.module(wire.name))):
        wanted = {name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")}
        assert {name for name in wanted if not hasattr(thing, name)} == set()
    descriptor = registry.module(wire.name).DESCRIPTOR
    assert descriptor.create_deadline_s * 2 + 300 <= descriptor.settle_s


# --- create ---------------------------------------------------------------------------------------


@rows("nos")
def test_a_definite_no_to_create_is_a_rejection_with_its_class(wire: Wire, row: No, payload: Path) -> None:
    """One POST, what the caller may do next, and the provider's words without the key."""
    answer, error_class, code, wait_s = row
    script = wire.script(answer)
    got = script.wire.create(wire.spec(payload))
    assert isinstance(got, Rejected)
    assert (got.error_class, got.status_code, got.retry_after_s) == (error_class, answer.status_code, wait_s)
    assert got.code == code
    assert got.message.partition(" [")[0] in answer.text
    assert not got.message.startswith("{")
    assert KEY not in got.message
    assert len(script.requests) == 1


@rows("hurdle")
def test_any_doubt_about_create_is_unclear_after_one_post(wire: Wire, row: Any, payload: Path) -> None:
    """Timeouts, resets, 5xx and answers that may be a proxy's raise nothing, lead nowhere and are never repeated."""
    script = wire.script(row, wire.ok(wire.batch()))
    assert isinstance(script.wire.create(wire.spec(payload)), Unclear)
    assert [request.method for request in script.requests] == ["POST"]


@pytest.mark.parametrize(
    "act", [reset, eof, raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), raw(b"junk\r\n\r\n")]
)
@each
def test_a_create_whose_connection_breaks_is_sent_once(wire: Wire, act: Act, payload: Path) -> None:
    """Over real sockets: whatever comes back, one POST leaves."""
    with hostile(act) as server:
        environ = wire.environ | {SIMULATED[wire.name].url_env: server.url.removesuffix("/v1")}
        if wire.name == "vertex":
            environ["BATCHPOND_VERTEX_STORAGE_URL"] = environ["STORAGE_EMULATOR_HOST"] = server.url
        found = registry.connect(wire.name, SystemClock(), environ=environ)
        assert isinstance(found.create(wire.spec(payload)), Unclear)
    assert server.posts() == 1


@takes_files
def test_without_an_uploaded_file_nothing_is_sent(wire: Wire) -> None:
    """Requests that are nowhere could not be asked."""
    script = wire.script(wire.ok(wire.batch()))
    with pytest.raises(ProviderError, match=r"uploaded file|object in Cloud Storage"):
        script.wire.create(CreateSpec(TOKEN, wire.endpoint, wire.model, None, Path("unused"), 1, ()))
    assert script.requests == []


# --- looking --------------------------------------------------------------------------------------


@each
@settings(max_examples=examples(150))
@given(data=st.data())
def test_any_object_with_the_right_id_is_a_batch(wire: Wire, data: st.DataObject) -> None:
    """Wrong types everywhere still give a RemoteBatch, whose counts and token are not guessed."""
    body = json.dumps(data.draw(wire.odd)).encode()
    got = wire.script(httpx.Response(200, content=body)).wire.get(wire.batch_id)
    assert isinstance(got, RemoteBatch)
    assert got.n_total in (None, 0)
    assert {name: getattr(got, name) for name in ("token", *wire.never)} == dict.fromkeys(("token", *wire.never))


@rows("gone")
def test_a_missing_batch_is_none(wire: Wire, row: httpx.Response) -> None:
    """Which is no proof of loss."""
    script = wire.script(row, wire.ok(wire.batch()))
    assert script.wire.get(wire.batch_id) is None
    assert script.wire.get(wire.batch_id) is not None


@rows("gone")
def test_a_result_that_is_gone_is_none(wire: Wire, row: httpx.Response, tmp_path: Path) -> None:
    """Nothing is left on disk in its place."""
    assert wire.script(row).wire.download(wire.result_id, tmp_path / "x") is None
    assert wire.script(row).wire.peek(wire.result_id, 9) is None
    assert not (tmp_path / "x").exists()


@rows("others")
def test_another_object_is_an_error(wire: Wire, row: Any) -> None:
    """An answer about something else is no answer."""
    with pytest.raises(ProviderError):
        wire.script(wire.ok(row)).wire.get(wire.batch_id)


@each
def test_ids_cannot_leave_their_place_in_the_path(wire: Wire) -> None:
    """An id from a provider is data: slashes, dots and queries do not address anything else."""
    script = wire.script(wire.refusal(404))
    if wire.path is not None:
        script.wire.get("../files?x=1#y")
        assert script.requests[0].url.raw_path == wire.path
    for bad in ("", ".", "..", *(() if wire.path else ("../files?x=1#y", "a/b/c"))):
        with pytest.raises(ProviderError):
            script.wire.get(bad)
    assert len(script.requests) == (wire.path is not None)


@rows("late")
def test_cancel_that_comes_too_late_is_none(wire: Wire, row: httpx.Response) -> None:
    """The final state is for the next look to tell."""
    assert wire.script(row).wire.cancel(wire.batch_id) is None


@each
def test_cancel_is_repeated_safely_and_returns_the_batch(wire: Wire) -> None:
    """Cancelling twice is cancelling once."""
    answers, state = wire.cancelling
    script = wire.script(httpx.ReadTimeout("x"), *map(wire.ok, answers))
    got = script.wire.cancel(wire.batch_id)
    assert got is not None
    assert got.state is state
    assert [request.method for request in script.requests] == ["POST", "POST", "GET"][: 1 + len(answers)]
    assert len({request.url.path for request in script.requests[:2]}) == 1


@rows("lies")
def test_a_listing_that_lies_is_an_error_and_never_looks_complete(wire: Wire, row: Any) -> None:
    """A cursor that stands still, an empty page with more, a row without an id: no proof of absence."""
    with pytest.raises(ProviderError):
        wire.script(wire.ok(row)).wire.list_page(wire.cursor)


@pytest.mark.parametrize(("wire", "limit", "name"), [(OPENAI, "100", "after"), (ANTHROPIC, "1000", "after_id")])
def test_a_listing_goes_on_by_its_cursor(wire: Wire, limit: str, name: str) -> None:
    """A full page is asked for, then what comes after its last; none on the last page."""
    first = {"data": [wire.batch(id="b2"), wire.batch(id="b1")], "has_more": True, "last_id": "b1"}
    last = {"data": [wire.batch(id="b0")], "has_more": False}
    script = wire.script(wire.ok(first), wire.ok(last))
    page = script.wire.list_page(None)
    assert [batch.batch_id for batch in page.batches] == ["b2", "b1"]
    assert page.next_cursor == "b1"
    assert script.wire.list_page("b1").next_cursor is None
    asked = [dict(request.url.params) for request in script.requests]
    assert asked == [{"limit": limit}, {"limit": limit, name: "b1"}]


# --- the key --------------------------------------------------------------------------------------


@each
def test_check_names_the_scope_or_the_variable(wire: Wire) -> None:
    """Free GETs; a refusal names the variable that the key came from; what no answer says is a dash."""
    answer, scope = wire.scope
    script = wire.script(httpx.Response(200, json=answer))
    assert script.wire.check() == scope
    assert {request.method for request in script.requests} == {"GET"}
    with pytest.raises(AccessError, match=wire.key_name):
        wire.script(wire.refused).wire.check()


@each
def test_the_key_is_in_no_public_representation(wire: Wire) -> None:
    """Nothing that a debugger or log prints of the wire shows the key."""
    found: Any = wire.script(wire.ok({})).wire
    assert KEY not in repr(found) + repr(vars(found)) + repr(vars(vars(found._http)["_auth"]))


@each
def test_a_redirect_never_takes_the_key_along(wire: Wire, tmp_path: Path) -> None:
    """Neither a look nor a download follows one to a host that is not the provider's."""
    moved = httpx.Response(302, headers={"location": EVIL})
    for call in (lambda found: found.get(wire.batch_id), lambda found: found.download(wire.result_id, tmp_path / "x")):
        script = wire.script(moved)
        with pytest.raises(ProviderError, match="redirect"):
            call(script.wire)
        assert len(script.requests) == 1
        assert "evil.example" not in hosts(script)
        assert KEY in str(script.requests[0].headers.values())
    assert not (tmp_path / "x").exists()


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "path", "form"),
    [
        (OPENAI, "/v1/files", {"purpose": "batch"}),
        (MISTRAL, "/v1/files", {"purpose": "batch"}),
        # Not the announced way, whose bytes go to a storage host: the key and the content stay with one host.
        (TOGETHER, "/v1/files/upload", {"purpose": "batch-api", "file_name": "t.jsonl", "file_type": "jsonl"}),
    ],
)
def test_an_upload_is_one_form_whose_size_is_told(wire: Wire, path: str, form: dict[str, str], payload: Path) -> None:
    """The file object carries what the provider stored, for the caller to compare."""
    script = wire.script(wire.ok({"id": "file-1", "bytes": 8, "filename": "t.jsonl", "created_at": 1795200000}))
    got = script.wire.upload(payload, "t.jsonl")
    assert (got.file_id, got.size_bytes, got.filename) == ("file-1", 8, "t.jsonl")
    (request,) = script.requests
    assert request.url.path == path
    for name, value in form.items():
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in request.content
    assert payload.read_bytes() in request.content
    with pytest.raises(ProviderError, match="without a file id"):
        wire.script(wire.ok({"bytes": 8})).wire.upload(payload, "x")
    with pytest.raises(ProviderError, match="redirect"):
        wire.script(httpx.Response(302, headers={"location": EVIL})).wire.upload(payload, "x")


# --- a whole life over the simulator --------------------------------------------------------------

ANTHROPICS = registry.module("anthropic").DESCRIPTOR.endpoints
LIVES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("openai", "gpt-5.4-mini", "/v1/chat/completions", {"thinking": "low"}),
    ("openai", "gpt-5.4-mini", "/v1/responses", {"thinking": "low", "include_thoughts": True}),
    ("anthropic", "claude-haiku-4-5", ANTHROPICS[0], {"thinking": "low", "max_output_tokens": 4_000}),
    ("anthropic", "claude-haiku-4-5", ANTHROPICS[1], {"temperature": 0.5, "max_output_tokens": 4_000}),
    ("gemini", "gemini-2.5-flash", "generateContent",
     {"thinking": "low", "include_thoughts": True, "max_output_tokens": 2_000}),
    ("gemini", "gemini-3.8-flash", "generateContent", {"thinking": "medium", "max_output_tokens": 800}),
    ("gemini", "gemini-2.5-flash-lite", "generateContent", {"thinking": "none", "temperature": 0.0}),
    ("vertex", "gemini-2.5-flash", "generateContent", {"thinking": "low", "max_output_tokens": 2_000}),
    ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "/v1/chat/completions", {}),
    ("mistral", "mistral-small-2603", "/v1/chat/completions", {}),
    ("mistral", "mistral-medium-3-5", "/v1/chat/completions", {"thinking": "low"}),
    ("xai", "grok-4.3", "/v1/chat/completions", {"thinking": "low"}),
    ("groq", "openai/gpt-oss-20b", "/v1/chat/completions", {"thinking": "low"}),
]  # fmt: skip


def written(path: Path, name: str, n: int, settings: ModelSettings) -> list[str]:
    """Write a payload and return its custom_ids."""
    module = registry.module(name)
    custom_ids = [ids.custom_id("attempt234", ids.digest("request", number)) for number in range(n)]
    body = json.dumps(
        module.build_body("SAMPLE 1:\n[[quality=0.9]] a\n\nSAMPLE 2:\n[[quality=0.1]] b\n", settings).body
    )
    lines = (module.payload_line(each, settings.endpoint, body.encode()) + b"\n" for each in custom_ids)
    path.write_bytes(b"".join(lines))
    return custom_ids


@pytest.mark.parametrize(("name", "model", "endpoint", "more"), LIVES)
def test_a_batch_lives_its_whole_life_over_the_simulators_transport(
    tmp_path: Path, name: str, model: str, endpoint: str, more: dict[str, Any]
) -> None:
    """Upload, find, create, list, get, download, read: every request answered once, by its own id."""
    there, path = SIMULATED[name], tmp_path / "p.jsonl"
    module = registry.module(name)
    case = ModelSettings(model, endpoint, **{"max_output_tokens": 200, **more})
    with simulator.api(tmp_path / "world") as api:
        environ = {there.url_env: there.base_url, there.key_env: KEY}
        wire = registry.connect(name, api.clock, transport=api.transport, environ=environ)
        assert wire.is_loopback
        assert wire.check().startswith(f"{name}/127.0.0.1:1")
        custom_ids = written(path, name, 12, case)
        file_id = None
        if there.has_files:
            remote = wire.upload(path, f"{TOKEN}.jsonl")
            assert remote.size_bytes == path.stat().st_size
            assert [found.file_id for found in wire.find_uploads(f"{TOKEN}.jsonl", START)] == [remote.file_id]
            file_id = remote.file_id
        made = wire.create(CreateSpec(TOKEN, endpoint, model, file_id, path, 12, (("batchpond", TOKEN),)))
        assert isinstance(made, Created)
        assert made.scope == wire.check()
        api.clock.advance(3600)
        (listed,) = wire.list_page(None).batches
        assert (listed.batch_id, listed.token) == (made.batch.batch_id, TOKEN if there.has_token else None)
        assert listed.input_file_id == file_id
        done = wire.get(listed.batch_id)
        assert done is not None
        assert done.state is BatchState.COMPLETED
        assert done.n_total == (None if name == "together" else 12)
        seen = []
        for _, result_id in wire.result_files(done):
            got = wire.download(result_id, tmp_path / "out")
            data = (tmp_path / "out").read_bytes()
            assert got is not None
            assert got.sha256 == hashlib.sha256(data).hexdigest()
            head = wire.peek(result_id, 1_000)
            assert head is not None
            assert data.startswith(head)
            seen += [module.read_line(line) for line in data.split(b"\n") if line]
        assert sorted(each.custom_id or "" for each in seen) == sorted(custom_ids)
        answered = [each for each in seen if each.status is ResponseStatus.SUCCEEDED]
        assert answered
        assert all(each.text and each.input_tokens for each in answered)
        assert not more.get("include_thoughts") or any(each.thoughts and each.reasoning_tokens for each in answered)
        late = wire.cancel(listed.batch_id)
        assert late is None or late.state is BatchState.COMPLETED
