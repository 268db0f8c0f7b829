"""The simulated Gemini Files API: uploads that can be broken off and gone on with, names, lifetimes."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond_sim.host.server import running
from batchpond_sim.world.world import Settings
from tests.rigs.gemini import KEY, gemini, payload

CHUNK = 8 << 20
HOUR = 3600


def test_an_upload_starts_with_a_url_on_the_host_that_was_asked(tmp_path: Path) -> None:
    with running(Settings(), tmp_path) as sim:
        headers = {**KEY, "X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start"}
        answer = httpx.post(f"{sim.root_url}/gemini/upload/v1/files", json={"file": {}}, headers=headers)
        assert answer.headers["x-goog-upload-status"] == "active"
        url = answer.headers["x-goog-upload-url"]
        assert url.startswith(f"{sim.root_url}/gemini/upload/v1/files?upload_id=")
        headers = {"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
        file = httpx.post(url, content=b"abc", headers=headers).json()["file"]
        assert file["uri"] == f"{sim.root_url}/gemini/v1/{file['name']}"


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        name = sim.upload(b"hello", name="files/tok-1", displayName="Token 1")
        file = sim.call("GET", f"/{name}").json()
        digest = base64.b64encode(hashlib.sha256(b"hello").hexdigest().encode()).decode()
        assert {field: file[field] for field in ("name", "displayName", "mimeType", "sizeBytes", "sha256Hash")} == {
            "name": "files/tok-1", "displayName": "Token 1", "mimeType": "application/jsonl", "sizeBytes": "5",
            "sha256Hash": digest,
        }  # fmt: skip
        assert (file["createTime"], file["expirationTime"]) == ("2026-11-21T00:00:00Z", "2026-11-23T00:00:00Z")
        assert (file["state"], file["source"], "downloadUri" in file) == ("ACTIVE", "UPLOADED", False)
        assert sim.http.get(f"/download/v1beta/{name}:download?alt=media").status_code == 400


def test_names_are_chosen_or_made_and_never_taken_twice(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        made = sim.upload(b"a")
        assert len(made.removeprefix("files/")) == 12
        sim.upload(b"a", name="files/tok-1")
        taken = sim.start(1, name="files/tok-1")
        assert (taken.status_code, taken.json()["error"]["status"]) == (409, "ALREADY_EXISTS")
        urls = [sim.start(1, name="files/tok-2").headers["x-goog-upload-url"] for _ in range(2)]
        assert [sim.send(url, "upload, finalize", b"x", 0).status_code for url in urls] == [200, 409]
        sim.call("DELETE", "/files/tok-1")
        assert sim.upload(b"b", name="files/tok-1") == "files/tok-1"


@pytest.mark.parametrize("name", ["files/Token", "files/-a", "files/a-", "files/a_b", "files/" + "a" * 41, "files/"])
def test_names_have_lower_case_letters_digits_and_inner_dashes(tmp_path: Path, name: str) -> None:
    with gemini(tmp_path) as sim:
        assert sim.start(1, name=name).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Goog-Upload-Protocol": "multipart"},
        {"X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "upload"},
        {
            "X-Goog-Upload-Protocol": "resumable", "X-Goog-Upload-Command": "start",
            "X-Goog-Upload-Header-Content-Length": str((2 << 30) + 1),
        },
    ],
)  # fmt: skip
def test_only_resumable_uploads_of_up_to_two_gigabytes_start(tmp_path: Path, headers: dict[str, str]) -> None:
    with gemini(tmp_path) as sim:
        assert sim.http.post("/upload/v1beta/files", headers=headers).status_code == 400


def test_pieces_are_taken_at_the_offset_that_has_been_reached(tmp_path: Path) -> None:
    data = b"0123456789abcdef" * (CHUNK // 16) + b"tail"
    with gemini(tmp_path) as sim:
        url = sim.start(len(data), name="files/pieces").headers["x-goog-upload-url"]
        assert sim.send(url, "upload", data[:CHUNK], 0).headers["x-goog-upload-status"] == "active"
        state = sim.send(url, "query").headers
        assert (state["x-goog-upload-status"], state["x-goog-upload-size-received"]) == ("active", str(CHUNK))
        for offset in (0, CHUNK - 1, CHUNK + 1, None):
            assert sim.send(url, "upload, finalize", data[CHUNK:], offset).status_code == 400
        final = sim.send(url, "upload, finalize", data[CHUNK:], CHUNK)
        assert final.headers["x-goog-upload-status"] == "final"
        assert final.json()["file"]["sizeBytes"] == str(len(data))
        assert sim.send(url, "query").headers["x-goog-upload-status"] == "final"
        assert sim.send(url, "upload, finalize", b"", len(data)).status_code == 400


def test_pieces_have_whole_granules_and_the_size_that_was_announced(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        url = sim.start(10).headers["x-goog-upload-url"]
        assert sim.send(url, "upload", b"12345", 0).status_code == 400
        assert sim.send(url, "upload, finalize", b"", 5).status_code == 400
        assert sim.send(url, "upload, finalize", b"6789012", 5).status_code == 400
        assert sim.send(sim.start(None).headers["x-goog-upload-url"], "upload, finalize", b"any", 0).status_code == 200
        assert sim.send(url, "dance").status_code == 400


def test_a_cancelled_or_unknown_upload_takes_nothing(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        url = sim.start(3).headers["x-goog-upload-url"]
        assert sim.send(url, "cancel").headers["x-goog-upload-status"] == "cancelled"
        assert sim.send(url, "upload, finalize", b"abc", 0).status_code == 400
        assert sim.send(url.replace("upload_id=", "upload_id=no"), "query").status_code == 404


@settings(max_examples=25, deadline=None)
@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_a_broken_upload_is_gone_on_with(tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int) -> None:
    """What arrived before the break is kept; with the rest the file is whole."""
    with gemini(tmp_path_factory.mktemp("world"), f"files.upload@1:cut_upload={cut}") as sim:
        url = sim.start(len(data), name="files/broken").headers["x-goog-upload-url"]
        with pytest.raises(httpx.ReadError):
            sim.send(url, "upload, finalize", data, 0)
        kept = int(sim.send(url, "query").headers["x-goog-upload-size-received"])
        assert kept == min(cut, len(data))
        file = sim.send(url, "upload, finalize", data[kept:], kept).json()["file"]
        assert base64.b64decode(file["sha256Hash"]).decode() == hashlib.sha256(data).hexdigest()


def test_a_lost_answer_to_the_last_piece_leaves_a_file(tmp_path: Path) -> None:
    with gemini(tmp_path, "files.upload@1:reset_after") as sim:
        url = sim.start(3, name="files/lost").headers["x-goog-upload-url"]
        with pytest.raises(httpx.ReadError):
            sim.send(url, "upload, finalize", b"abc", 0)
        assert sim.send(url, "query").headers["x-goog-upload-status"] == "final"
        assert sim.call("GET", "/files/lost").json()["sizeBytes"] == "3"


def test_uploaded_files_are_gone_after_48_hours(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        name = sim.upload(payload(1), name="files/tok-1")
        sim.clock.advance(48 * HOUR - 1)
        assert sim.call("GET", f"/{name}").status_code == 200
        sim.clock.advance(1)
        assert sim.call("GET", f"/{name}").status_code == 403
        assert sim.call("GET", "/files").json() == {}
        assert sim.post_batch({"fileName": name}).status_code == 403
        assert sim.upload(payload(1), name="files/tok-1") == name


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
def test_a_missing_or_foreign_file_is_a_403(tmp_path: Path, verb: str) -> None:
    with gemini(tmp_path, keys={"one": "p1", "two": "p2"}) as sim:
        sim.http.headers["x-goog-api-key"] = "one"
        name = sim.upload(b"a", name="files/mine")
        sim.http.headers["x-goog-api-key"] = "two"
        for missing in ("files/none", name):
            answer = sim.call(verb, f"/{missing}")
            assert (answer.status_code, answer.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
            assert "or it may not exist" in answer.json()["error"]["message"]


def test_a_deleted_file_cannot_be_deleted_again(tmp_path: Path) -> None:
    with gemini(tmp_path) as sim:
        name = sim.upload(b"a")
        assert [sim.call("DELETE", f"/{name}").status_code for _ in range(2)] == [200, 403]


def test_a_share_of_an_upload_is_stored_and_a_listing_lags(tmp_path: Path) -> None:
    with gemini(tmp_path, "files.create@1:store=0.5", "files.create@2:stale_list=30") as sim:
        assert sim.call("GET", f"/{sim.upload(b'0123456789')}").json()["sizeBytes"] == "5"
        late = sim.upload(b"0123456789")
        assert len(sim.call("GET", "/files").json()["files"]) == 1
        sim.clock.advance(30)
        assert next(file["name"] for file in sim.call("GET", "/files").json()["files"]) == late
