"""A small S3 over HTTP on loopback that can be told to fail: what a test's buckets stand in.

Path-style addresses; GET, HEAD, PUT with `If-None-Match: *`, DeleteObjects, and ListObjectsV2 with pages, as the API
reference has them (https://docs.aws.amazon.com/AmazonS3/latest/API/). Nothing checks signatures.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


@dataclass
class Shop:
    """What stands in the buckets, how often each kind of call came, and what to do wrong to which.

    `faults` are taken from the front by the next call that they fit: a method or `LIST`, a piece of the key, and what
    happens: `lost_ack` does it and answers nothing, `conflict`, `slow_down` and `denied` refuse it.
    """

    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    page: int = 1_000
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

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
        self._answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def _handle(self) -> None:
        shop, split = self.shop, urlsplit(self.path)
        key, query = unquote(split.path).lstrip("/"), parse_qs(split.query, keep_blank_values=True)
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        method = "LIST" if "list-type" in query else self.command
        with shop.lock:
            shop.calls[method] += 1
            fault = shop.fault(method, key + query.get("prefix", [""])[0])
            match fault:
                case "conflict":
                    return self._refuse(409, "ConditionalRequestConflict")
                case "slow_down":
                    return self._refuse(503, "SlowDown")
                case "denied":
                    return self._refuse(403, "AccessDenied")
            done = getattr(self, f"_{method.lower()}")(key, query, sent)
        if fault == "lost_ack":
            self.close_connection = True
            return None
        status, body, headers = done
        return self._refuse(status, body) if isinstance(body, str) else self._answer(status, body, **headers)

    do_GET = do_HEAD = do_PUT = do_POST = _handle

    def _put(self, key: str, _: object, sent: bytes) -> tuple[int, bytes | str, dict[str, str]]:
        if self.headers.get("If-None-Match") == "*" and key in self.shop.objects:
            return 412, "PreconditionFailed", {}
        self.shop.objects[key] = sent, datetime.now(UTC)
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
        prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
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
