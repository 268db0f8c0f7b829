"""Downloads and uploads against servers that truncate, drip and redirect, on real sockets."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from batchpond.clock import SystemClock, Work, heard_by
from batchpond.errors import LakeError, ProviderError
from batchpond.model import Download
from batchpond.providers.http import transfers
from batchpond.providers.http.client import HttpError, HttpLimits
from batchpond.providers.http.errors import RetryPolicy
from tests.rigs.hostile_server import drip, hostile, raw, reply, reset
from tests.rigs.http import ENVELOPE, client

# --- downloads ------------------------------------------------------------------------------------


def test_a_download_is_on_disk_whole_private_and_hashed(tmp_path: Path) -> None:
    """Bytes, size and digest agree; the file is for its owner only; U+2028 and CR survive."""
    content = "a\u2028b\r\n\x00".encode() * 50_000
    with hostile(reply(content, content_type="application/octet-stream")) as server:
        got = client(server.url).download("/files/f/content", tmp_path / "part")
    assert got == Download(len(content), hashlib.sha256(content).hexdigest())
    assert (tmp_path / "part").read_bytes() == content
    assert (tmp_path / "part").stat().st_mode & 0o777 == 0o600


def test_an_empty_file_is_a_download(tmp_path: Path) -> None:
    """Some servers name an error file that holds nothing."""
    with hostile(reply(b"", content_type="application/octet-stream")) as server:
        assert client(server.url).download("/f", tmp_path / "part") == Download(0, hashlib.sha256(b"").hexdigest())


@pytest.mark.parametrize("status", [404, 410])
def test_a_missing_file_is_none_and_leaves_nothing(tmp_path: Path, status: int) -> None:
    """404 is an answer, not an error, and not a file."""
    with hostile(reply(ENVELOPE, status)) as server:
        assert client(server.url).download("/f", tmp_path / "part") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "broken",
    [
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"),
        reply(gzip.compress(b"abcdef" * 99)[:-9], Content_Encoding="gzip"),
        reply(b"x", 500),
        reset,
    ],
    ids=["short", "chunks without end", "gzip cut", "500", "reset"],
)
def test_a_broken_download_is_made_again_from_the_start(tmp_path: Path, broken: object) -> None:
    """Nothing of the first try is left in the second."""
    with hostile(broken, reply(b"whole\n", content_type="application/octet-stream")) as server:  # type: ignore[arg-type]
        assert client(server.url).download("/f", tmp_path / "part") is not None
        assert len(server.requests) == 2
    assert (tmp_path / "part").read_bytes() == b"whole\n"


def test_a_download_that_stays_broken_leaves_no_file(tmp_path: Path) -> None:
    """Only a whole body is left on disk."""
    act = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    with hostile(act) as server, pytest.raises(HttpError):
        client(server.url, retries=RetryPolicy(attempts=2)).download("/f", tmp_path / "part")
    assert list(tmp_path.iterdir()) == []


def test_a_dripping_download_is_given_up(tmp_path: Path) -> None:
    """Slower than the floor over a whole window is a failure, however long it might go on."""
    act = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x", 0.05, 60)
    with hostile(act) as server, pytest.raises(HttpError, match="slow"):
        client(server.url, SystemClock(), retries=RetryPolicy(attempts=1)).download("/f", tmp_path / "part")
    assert server.n_left == 1
    assert list(tmp_path.iterdir()) == []


def test_a_gzip_body_is_inflated_once_and_bounded(tmp_path: Path) -> None:
    """A proxy may compress what was asked for plain; a bomb stops at the cap."""
    rows = b'{"a":1}\n' * 1000
    for headers in ({"Content_Encoding": "gzip"}, {}):  # proxies were seen to forget to say so
        with hostile(reply(gzip.compress(rows), **headers)) as server:
            got = client(server.url).download("/f", tmp_path / "part")
        assert got == Download(len(rows), hashlib.sha256(rows).hexdigest())
    with hostile(reply(gzip.compress(rows), Content_Encoding="gzip")) as server:
        assert client(server.url).download("/f", tmp_path / "part") == Download(
            len(rows), hashlib.sha256(rows).hexdigest()
        )
    bomb = gzip.compress(b"\0" * (8 << 20))
    limits = HttpLimits(download_bytes=1 << 20)
    with hostile(reply(bomb, Content_Encoding="gzip")) as server:
        with pytest.raises(HttpError, match="larger than"):
            client(server.url, limits=limits).download("/f", tmp_path / "bomb")
        assert len(server.requests) == 1
    assert not (tmp_path / "bomb").exists()


def test_a_gzip_body_of_several_members_is_one_body(tmp_path: Path) -> None:
    """Defect 4.6: what was packed in pieces is whole, and cut in the last piece it is not."""
    rows = [b'{"a":%d}\n' % n * 500 for n in range(3)]
    packed = b"".join(gzip.compress(part) for part in rows)
    with hostile(reply(packed, Content_Encoding="gzip")) as server:
        got = client(server.url).download("/f", tmp_path / "part")
    assert got == Download(len(b"".join(rows)), hashlib.sha256(b"".join(rows)).hexdigest())
    with hostile(reply(packed[:-9], Content_Encoding="gzip")) as server, pytest.raises(HttpError):
        client(server.url, retries=RetryPolicy(1)).download("/f", tmp_path / "cut")


def test_a_small_body_does_not_become_a_large_file(tmp_path: Path) -> None:
    """F075, defect 4.4: 100 KB that inflate to a thousand times as much are refused long before the cap on size."""
    bomb = gzip.compress(b"\0" * (100 << 20))
    with hostile(reply(bomb, Content_Encoding="gzip")) as server:
        with pytest.raises(HttpError, match="times its size"):
            client(server.url).download("/f", tmp_path / "bomb")
        assert len(server.requests) == 1
    assert not (tmp_path / "bomb").exists()


def test_a_web_page_is_never_stored_as_results(tmp_path: Path) -> None:
    """A login page with status 200 is refused."""
    with (
        hostile(reply(b"<html>", 200, "text/html; charset=utf-8")) as server,
        pytest.raises(HttpError, match="web page"),
    ):
        client(server.url).download("/f", tmp_path / "part")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_failure_is_a_lake_error_not_a_network_one(tmp_path: Path) -> None:
    """What the disk does is not asked again of the provider."""
    with hostile(reply(b"x", content_type="text/plain")) as server:
        with pytest.raises(LakeError, match="cannot write"):
            client(server.url).download("/f", tmp_path / "absent" / "part")
        assert len(server.requests) == 1


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """A link planted at the destination does not lead the bytes elsewhere."""
    (tmp_path / "part").symlink_to(tmp_path / "victim")
    with hostile(reply(b"x", content_type="text/plain")) as server, pytest.raises(LakeError):
        client(server.url).download("/f", tmp_path / "part")
    assert not (tmp_path / "victim").exists()


# --- uploads --------------------------------------------------------------------------------------


def test_an_upload_is_streamed_and_repeated_from_the_start(tmp_path: Path) -> None:
    """The second try sends the whole file again, under the name that was asked for."""
    path = tmp_path / "payload.jsonl"
    path.write_bytes(b'{"custom_id":"a"}\n' * 20_000)
    with hostile(reply(b"", 500), reply({"id": "file-1", "bytes": 1})) as server:
        answer = client(server.url).upload_multipart("/files", path, "token.jsonl", {"purpose": "batch"})
        assert answer.json["id"] == "file-1"
        assert len(server.requests) == 2
        body = server.requests[1].body
    assert path.read_bytes() in body
    assert b'filename="token.jsonl"' in body
    assert b'name="purpose"\r\n\r\nbatch' in body


def test_a_payload_that_is_gone_is_a_lake_error(tmp_path: Path) -> None:
    """The disk is at fault, and nothing is sent."""
    with hostile(reply({})) as server:
        with pytest.raises(LakeError, match="cannot read"):
            client(server.url).upload_multipart("/files", tmp_path / "absent", "x", {})
        assert server.requests == []


def test_a_certificate_that_does_not_hold_ends_the_call_at_once(tmp_path: Path) -> None:
    """No way around verification, no second try, and the key does not leave."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("NOT CHECKED: no openssl command to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    received: list[bytes] = []

    def act(connection: socket.socket) -> None:
        with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secure:
            received.append(secure.recv(4096))

    with hostile(act, is_silent=True) as server:
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        with pytest.raises(HttpError, match="certificate"):
            client(url, SystemClock()).request_json("GET", "/x")
    assert b"".join(received) == b""
    assert server.n_connections == 1


# --- how far they are -----------------------------------------------------------------------------


class Heard:
    """Keeps how far each work was at last, and of how much."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, int, int | None]] = []

    def moved(self, work: Work) -> None:
        """Look at it only when it ends."""

    def ended(self, work: Work) -> None:
        """Keep how far it came."""
        self.ends.append((work.what, work.n_done, work.n_total))


def test_whoever_listens_is_told_how_much_has_travelled(tmp_path: Path) -> None:
    """Of uploads with the form around the file; of a download that broke off how far it came, and then the whole."""
    content, path, heard = b"x" * 300_000, tmp_path / "p.jsonl", Heard()
    path.write_bytes(content)
    with hostile(reply({"id": "file-1"})) as server, heard_by(heard):
        client(server.url).upload_multipart("/files", path, "token.jsonl", {"purpose": "batch"})
        n_sent = len(server.requests[0].body)
    broken = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + content[:1_000])
    with hostile(broken, reply(content, content_type="text/plain")) as server, heard_by(heard):
        assert client(server.url).download("/content", tmp_path / "out") is not None
    assert heard.ends[0] == ("uploading", n_sent, n_sent)
    assert n_sent > len(content)
    assert heard.ends[1:] == [("downloading", n, len(content)) for n in (1_000, len(content))]


def test_what_an_adapter_writes_itself_is_bounded_by_an_error_of_a_provider(tmp_path: Path) -> None:
    """Pages and inline answers are no call's body: nobody but the pass takes their error."""
    with pytest.raises(ProviderError, match="larger than 5 bytes"):
        transfers.write(iter([b"x" * 10]), tmp_path / "made", max_bytes=5)
