"""Resumable uploads: what breaks them, where they go on, and where their bytes may go."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.clock import SystemClock
from batchpond.errors import AccessError, ProviderError
from batchpond.providers import registry
from batchpond.providers.http import transfers
from tests.rigs.clock import ManualClock
from tests.rigs.gemini_script import HOST, KEY, TOKEN, Answer, Script, ok, refusal
from tests.rigs.hostile_server import Act, hostile, reply, reset
from tests.rigs.swept import examples
from tests.rigs.wire_script import START

# --- uploads --------------------------------------------------------------------------------------


class Drive:
    """Google's side of a resumable upload, with one misfortune a call: see `_misfortune`."""

    def __init__(self, *misfortunes: str, state: str = "ACTIVE") -> None:
        self.misfortunes = list(misfortunes)
        self.state = state
        self.stored = bytearray()
        self.expected = 0
        self.name = ""
        self.n_sessions = 0
        self.sizes: list[int] = []
        self.commands: list[str] = []
        self.is_final = False
        self.script = Script(self._answer)

    def _answer(self, request: httpx.Request) -> Answer:
        if request.method == "GET":
            listed = [self._file()] if self.is_final else []
            return ok({"files": listed} if request.url.path.endswith("/files") else self._file())
        command = request.headers["x-goog-upload-command"]
        self.commands.append(command)
        misfortune = self.misfortunes.pop(0) if self.misfortunes else ""
        assert request.headers["x-goog-api-key"] == KEY
        if command == "start":
            return self._start(request) if not misfortune else self._misfortune(misfortune)
        assert str(request.url) == f"{HOST}/upload/v1beta/files?upload_id={self.n_sessions}&upload_protocol=resumable"
        if command != "query":
            self._take(request, misfortune)
        return self._misfortune(misfortune) if misfortune else self._standing(command)

    def _start(self, request: httpx.Request) -> Answer:
        assert request.headers["x-goog-upload-protocol"] == "resumable"
        assert request.headers["x-goog-upload-header-content-type"] == "application/jsonl"
        self.n_sessions += 1
        self.stored.clear()
        self.expected = int(request.headers["x-goog-upload-header-content-length"])
        self.name = json.loads(request.content)["file"]["displayName"]
        address = f"{HOST}/upload/v1beta/files?upload_id={self.n_sessions}&upload_protocol=resumable"
        return ok(x_goog_upload_url=address, x_goog_upload_status="active")

    def _take(self, request: httpx.Request, misfortune: str) -> None:
        kept = {"nothing arrives": 0, "half arrives": len(request.content) // 2}.get(misfortune, len(request.content))
        if misfortune in ("503", "forgotten"):
            return
        assert int(request.headers["x-goog-upload-offset"]) == len(self.stored)
        self.sizes.append(len(request.content))
        self.stored += request.content[:kept]
        whole = kept == len(request.content)
        self.is_final = whole and request.headers["x-goog-upload-command"].endswith("finalize")

    def _misfortune(self, misfortune: str) -> Answer:
        match misfortune:
            case "503":
                return refusal(503, "UNAVAILABLE")
            case "forgotten":
                return refusal(404, "NOT_FOUND")
            case "no header":
                return ok()
            case _:
                return httpx.ReadError("reset")

    def _standing(self, command: str) -> Answer:
        if not self.is_final:
            return ok(x_goog_upload_status="active", x_goog_upload_size_received=str(len(self.stored)))
        return ok({"file": self._file()} if command != "query" else None, x_goog_upload_status="final")

    def _file(self) -> dict[str, Any]:
        return {
            "name": "files/in1",
            "displayName": self.name,
            "sizeBytes": str(len(self.stored)),
            "createTime": "2026-11-21T00:00:00.5Z",
            "state": self.state,
        }


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "CHUNK_BYTES", 1_000)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size_bytes", [0, 1, 999, 1_000, 1_001, 3_500])
def test_an_upload_goes_in_chunks_and_is_named(tmp_path: Path, size_bytes: int) -> None:
    """Start, chunks in order, `finalize` with the last; what is stored is the file, under our name."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(bytes(number % 251 for number in range(size_bytes)))
    drive = Drive()
    got = drive.script.wire.upload(path, f"{TOKEN}.jsonl")
    assert (got.file_id, got.filename, got.size_bytes) == ("files/in1", f"{TOKEN}.jsonl", size_bytes)
    assert bytes(drive.stored) == path.read_bytes()
    assert drive.expected == size_bytes
    n_chunks = max(1, -(-size_bytes // 1_000))
    assert drive.commands == ["start", *["upload"] * (n_chunks - 1), "upload, finalize"]


MISFORTUNES = ["nothing arrives", "half arrives", "503", "answer lost", "no header", "forgotten"]


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=examples(120), deadline=None)
@given(st.lists(st.sampled_from(["", "", *MISFORTUNES]), max_size=10))
def test_whatever_breaks_an_upload_the_file_arrives_whole_or_an_error_says_so(
    tmp_path_factory: pytest.TempPathFactory, misfortunes: list[str]
) -> None:
    """After a break the provider is asked where it stands, and not a byte is sent twice or left out."""
    path = tmp_path_factory.mktemp("up") / "p.jsonl"
    path.write_bytes(bytes(number % 251 for number in range(3_500)))
    drive = Drive(*misfortunes)
    try:
        got = drive.script.wire.upload(path, "mine.jsonl")
    except ProviderError:
        assert misfortunes.count("forgotten") > 0 or len([each for each in misfortunes if each]) >= 6
        return
    assert (got.file_id, got.size_bytes) == ("files/in1", 3_500)
    assert bytes(drive.stored) == path.read_bytes()


@pytest.mark.usefixtures("small_chunks")
def test_an_upload_goes_on_where_the_provider_stands(tmp_path: Path) -> None:
    """Half a chunk that arrived is not sent again."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(bytes(number % 251 for number in range(2_500)))
    drive = Drive("", "half arrives")
    drive.script.wire.upload(path, "mine.jsonl")
    assert drive.commands == ["start", "upload", "query", "upload", "upload, finalize"]
    assert drive.sizes == [1_000, 1_000, 1_000]
    assert bytes(drive.stored) == path.read_bytes()


@pytest.mark.usefixtures("small_chunks")
def test_a_lost_last_answer_is_made_up_for_by_the_listing(tmp_path: Path) -> None:
    """The upload is final, its file is found by the name that it was given: nothing is sent twice."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x" * 10)
    drive = Drive("", "answer lost")
    got = drive.script.wire.upload(path, "mine.jsonl")
    assert (got.file_id, got.size_bytes) == ("files/in1", 10)
    assert drive.commands == ["start", "upload, finalize", "query"]


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/upload?upload_id=1",
        "http://generativelanguage.googleapis.com/upload?upload_id=1",
        "https://generativelanguage.googleapis.com:444/upload",
        "https://generativelanguage.googleapis.com@evil.example/upload",
        "https://evil.example\\@generativelanguage.googleapis.com/upload",
        "//evil.example/upload",
        "ftp://generativelanguage.googleapis.com/upload",
        "upload",
    ],
)
def test_an_upload_address_of_another_origin_is_refused_with_nothing_sent_there(tmp_path: Path, address: str) -> None:
    """Neither the key nor a byte of the payload goes to another host, scheme or port."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x")
    script = Script(ok(x_goog_upload_url=address, x_goog_upload_status="active"))
    with pytest.raises((ProviderError, AccessError)) as caught:
        script.wire.upload(path, "mine.jsonl")
    assert [str(request.url) for request in script.requests] == [f"{HOST}/upload/v1beta/files"]
    assert KEY not in str(caught.value)


def test_a_provider_that_claims_more_than_the_file_is_not_believed(tmp_path: Path) -> None:
    """Nothing is cut off or made up to fit."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x" * 10)
    address = f"{HOST}/upload/v1beta/files?upload_id=1"
    script = Script(
        ok(x_goog_upload_url=address, x_goog_upload_status="active"),
        refusal(503, "UNAVAILABLE"),
        ok(x_goog_upload_status="active", x_goog_upload_size_received="11"),
    )
    with pytest.raises(ProviderError, match="more than the 10 bytes"):
        script.wire.upload(path, "mine.jsonl")


def test_a_provider_that_never_ends_an_upload_is_given_up(tmp_path: Path) -> None:
    """Every chunk taken and none the last: bounded."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x" * 10)
    address = f"{HOST}/upload/v1beta/files?upload_id=1"
    script = Script(ok(x_goog_upload_url=address, x_goog_upload_status="active"), ok(x_goog_upload_status="active"))
    with pytest.raises(ProviderError, match="did not end"):
        script.wire.upload(path, "mine.jsonl")
    assert len(script.requests) < 30


def test_a_file_is_used_when_google_has_taken_it_in(tmp_path: Path) -> None:
    """PROCESSING is waited for, FAILED is an error with its reason, and waiting ends."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"x")
    slow = Drive(state="PROCESSING")
    with pytest.raises(ProviderError, match="still taking in"):
        slow.script.wire.upload(path, "mine.jsonl")
    assert len(slow.script.requests) < 40
    with pytest.raises(ProviderError, match="could not take in"):
        Drive(state="FAILED").script.wire.upload(path, "mine.jsonl")
    states = iter(["PROCESSING", "PROCESSING", "ACTIVE"])
    drive = Drive()
    whole = drive._file
    drive._file = lambda: whole() | {"state": next(states)}  # type: ignore[method-assign]
    assert drive.script.wire.upload(path, "mine.jsonl").size_bytes == 1


def test_an_upload_over_real_sockets_survives_a_reset(tmp_path: Path) -> None:
    """20 MiB in 8 MiB chunks through a loopback server that resets the second."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"0123456789abcdef" * (20 << 16))
    chunk = transfers.CHUNK_BYTES
    acts: list[Act] = []
    with hostile(reply({})) as server:
        address = f"http://127.0.0.1:{server.port}/gemini/upload/v1beta/files?upload_id=1"
        acts += [
            reply(b"", x_goog_upload_url=address, x_goog_upload_status="active"),
            reply(b"", x_goog_upload_status="active"),
            reset,
            reply(b"", x_goog_upload_status="active", x_goog_upload_size_received=str(chunk)),
            reply(b"", x_goog_upload_status="active"),
            reply(
                {"file": {"name": "files/in1", "displayName": "mine", "sizeBytes": str(20 << 20)}},
                x_goog_upload_status="final",
            ),
        ]
        server.acts[:] = acts
        environ = {"GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{server.port}/gemini"}
        wire = registry.connect("gemini", SystemClock(), environ=environ)
        assert wire.upload(path, "mine").size_bytes == 20 << 20
        sent = [(seen.headers["x-goog-upload-command"], len(seen.body)) for seen in server.requests]
        tail = (20 << 20) - 2 * chunk
        assert sent[1:] == [
            ("upload", chunk),
            ("upload", chunk),
            ("query", 0),
            ("upload", chunk),
            ("upload, finalize", tail),
        ]
        whole = b"".join(server.requests[number].body for number in (1, 4, 5))
        assert hashlib.sha256(whole).digest() == hashlib.sha256(path.read_bytes()).digest()


def test_a_large_upload_is_read_in_chunks(tmp_path: Path) -> None:
    """Memory holds less than a chunk of an 80 MiB file."""
    path = tmp_path / "p.jsonl"
    with path.open("wb") as file:
        file.truncate(80 << 20)

    class Sink(httpx.BaseTransport):
        n_received = 0

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            sent = sum(len(block) for block in request.stream)  # type: ignore[union-attr]
            command = request.headers["x-goog-upload-command"]
            if command == "start":
                return httpx.Response(200, headers={"x-goog-upload-url": f"{HOST}/upload/v1beta/files?upload_id=1"})
            assert sent == int(request.headers["content-length"])
            self.n_received += sent
            is_last = command.endswith("finalize")
            body = {"file": {"name": "files/in1", "sizeBytes": str(self.n_received)}} if is_last else {}
            return httpx.Response(200, json=body, headers={"x-goog-upload-status": "final" if is_last else "active"})

    wire = registry.connect("gemini", ManualClock(START), transport=Sink(), environ={"GEMINI_API_KEY": KEY})
    tracemalloc.start()
    try:
        got = wire.upload(path, "mine")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got.size_bytes == 80 << 20
    assert peak < transfers.CHUNK_BYTES


def test_uploads_are_found_by_name_newest_first_on_every_page() -> None:
    """A foreign name, an old namesake or a file that failed does not count; one without a date does."""

    def file(number: int, name: str, age_s: int | None, state: str = "ACTIVE") -> dict[str, Any]:
        made = {} if age_s is None else {"createTime": (START - timedelta(seconds=age_s)).isoformat()}
        return {"name": f"files/f{number}", "displayName": name, "sizeBytes": "1", "state": state} | made

    script = Script(
        ok({"files": [file(1, "mine", 60), file(2, "other", 5), file(3, "mine", 99_000)], "nextPageToken": "t"}),
        ok({"files": [file(4, "mine", 10), file(5, "mine", 1, "FAILED"), file(6, "mine", None)]}),
    )
    found = script.wire.find_uploads("mine", START - timedelta(minutes=5))
    assert [each.file_id for each in found] == ["files/f4", "files/f1", "files/f6"]
    assert [dict(request.url.params) for request in script.requests] == [
        {"pageSize": "100"},
        {"pageSize": "100", "pageToken": "t"},
    ]
