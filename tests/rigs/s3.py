"""A small S3 over HTTP on loopback that can be told to fail: what a test's buckets stand in.

Path-style addresses; GET, HEAD, PUT with `If-None-Match: *` or `If-Match`, multipart uploads, DeleteObjects, and
ListObjectsV2 with pages and `start-after`, as the API reference has them
(https://docs.aws.amazon.com/AmazonS3/latest/API/). Nothing checks signatures.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

SLOW_S = 5.0
_REFUSALS = {
    "conflict": (409, "ConditionalRequestConflict"),
    "slow_down": (503, "SlowDown"),
    "denied": (403, "AccessDenied"),
    "expired": (400, "ExpiredToken"),
    "no_bucket": (404, "NoSuchBucket"),
}


@dataclass
class Shop:
    """What stands in the buckets, how often each kind of call came, and what to do wrong to which.

    `log` has each call's method, key, and how many bytes came with it. `faults` are taken from the front by the next
    call that they fit: a method, `LIST` or `PART`, a piece of the key, and what happens: `lost_ack` does it and answers
    nothing, `slow` does it and answers late, `conflict`, `slow_down`, `denied`, `expired` and `no_bucket` refuse it.
    `signed` are the names of the keys with which calls came signed.
    """

    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    log: list[tuple[str, str, int]] = field(default_factory=list)
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    signed: set[str] = field(default_factory=set)
    page: int = 1_000
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fetched(self, piece: str) -> list[str]:
        """Return the keys with this piece that were read."""
        return [key for method, key, _ in self.log if method == "GET" and piece in key]

    def fault(self, method: str, key: str) -> str | None:
        for fault in self.faults:
            if fault[0] == method and fault[1] in key:
                self.faults.remove(fault)
                return fault[2]
        return None

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to use it as `s3://anything/...`."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }


def now() -> datetime:
    """Return the store's time, in whole seconds as S3 dates objects."""
    return datetime.now(UTC).replace(microsecond=0)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    shop: Shop

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        declared = '<?xml version="1.0" encoding="UTF-8"?>\n'
        self._answer(status, f"{declared}<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def _handle(self) -> None:
        shop, split = self.shop, urlsplit(self.path)
        key, query = unquote(split.path).lstrip("/"), parse_qs(split.query, keep_blank_values=True)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        named = {"list-type": "LIST", "partNumber": "PART", "uploads": "BEGIN", "uploadId": "END"}
        method = next((name for word, name in named.items() if word in query), self.command)
        with shop.lock:
            shop.calls[method] += 1
            shop.log.append((method, key, len(sent)))
            shop.signed |= {*re.findall("Credential=([^/]+)/", self.headers.get("Authorization", ""))}
            fault = shop.fault(method, key + query.get("prefix", [""])[0])
            if fault in _REFUSALS:
                return self._refuse(*_REFUSALS[fault])
            done = getattr(self, f"_{method.lower()}")(key, query, sent)
        if fault == "slow":
            time.sleep(SLOW_S)
        if fault == "lost_ack":
            self.close_connection = True
            return None
        status, body, headers = done
        return self._refuse(status, body) if isinstance(body, str) else self._answer(status, body, **headers)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _begin(self, key: str, *_: object) -> tuple[int, bytes | str, dict[str, str]]:
        upload = f"upload-{len(self.shop.log)}"
        self.shop.parts[upload] = {}
        text = f"<InitiateMultipartUploadResult><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
        return 200, f"{text}</InitiateMultipartUploadResult>".encode(), {}

    def _part(self, _: str, query: dict[str, list[str]], sent: bytes) -> tuple[int, bytes | str, dict[str, str]]:
        self.shop.parts[query["uploadId"][0]][int(query["partNumber"][0])] = sent
        return 200, b"", {"ETag": _tag(sent)}

    def _end(self, key: str, query: dict[str, list[str]], _: bytes) -> tuple[int, bytes | str, dict[str, str]]:
        parts = self.shop.parts.pop(query["uploadId"][0])
        if self.command == "DELETE":
            return 204, b"", {}
        data = b"".join(parts[number] for number in sorted(parts))
        self.shop.objects[key] = data, now()
        text = f"<Key>{escape(key)}</Key><ETag>{escape(_tag(data))}</ETag>"
        return 200, f"<CompleteMultipartUploadResult>{text}</CompleteMultipartUploadResult>".encode(), {}

    def _put(self, key: str, _: object, sent: bytes) -> tuple[int, bytes | str, dict[str, str]]:
        if self.headers.get("If-None-Match") == "*" and key in self.shop.objects:
            return 412, "PreconditionFailed", {}
        if (wanted := self.headers.get("If-Match")) is not None:
            if key not in self.shop.objects:
                return 404, "NoSuchKey", {}
            if wanted != _tag(self.shop.objects[key][0]):
                return 412, "PreconditionFailed", {}
        self.shop.objects[key] = sent, now()
        return 200, b"", {"ETag": _tag(sent)}

    def _get(self, key: str, *_: object) -> tuple[int, bytes | str, dict[str, str]]:
        if key not in self.shop.objects:
            return 404, "NoSuchKey", {}
        data, changed = self.shop.objects[key]
        said = {"ETag": _tag(data), "Last-Modified": f"{changed:%a, %d %b %Y %H:%M:%S GMT}"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if found:
            first, last = int(found[1]), min(int(found[2]), len(data) - 1)
            said["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return 206, data[first : last + 1], said
        return 200, data, said

    _head = _get

    def _post(self, bucket: str, _: object, sent: bytes) -> tuple[int, bytes | str, dict[str, str]]:
        keys = [unescape(key) for key in re.findall("<Key>(.*?)</Key>", sent.decode())]
        for key in keys:
            self.shop.objects.pop(f"{bucket.rstrip('/')}/{key}", None)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return 200, f"<DeleteResult>{rows}</DeleteResult>".encode(), {}

    def _list(self, bucket: str, query: dict[str, list[str]], _: bytes) -> tuple[int, bytes | str, dict[str, str]]:
        prefix = query.get("prefix", [""])[0]
        after = max(query.get(name, [""])[0] for name in ("continuation-token", "start-after"))
        start = f"{bucket.rstrip('/')}/"
        names = sorted(key.removeprefix(start) for key in self.shop.objects if key.startswith(start + prefix))
        names = [name for name in names if name > after]
        shown = names[: self.shop.page]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size><ETag>{escape(_tag(data))}</ETag>"
            f"<LastModified>{changed:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for name in shown
            for data, changed in [self.shop.objects[start + name]]
        )
        is_cut = len(names) > len(shown)
        more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if is_cut else ""
        text = f"<ListBucketResult><IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}{rows}</ListBucketResult>"
        return 200, text.encode(), {"Content-Type": "application/xml"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of callers that were killed."""


@contextmanager
def served() -> Iterator[Shop]:
    """Serve buckets until the block ends; at its end every fault has been met."""
    shop = Shop()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"shop": shop}))
    shop.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield shop
        assert not shop.faults, f"never met: {shop.faults}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
