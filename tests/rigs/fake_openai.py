"""A small OpenAI batch API on a loopback port: it shares no line with the simulators, and does as it is told.

Every batch is complete at once unless it is held. What a script puts into `create_answers`, `refusals` or `bodies` is
used up one by one; then it behaves.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIRST = "<BETTER_SAMPLE>SAMPLE_1</BETTER_SAMPLE>"
SECOND = "<BETTER_SAMPLE>SAMPLE_2</BETTER_SAMPLE>"


@dataclass(frozen=True)
class Answer:
    """What is sent back in place of the usual; without a status the connection is cut."""

    status: int | None
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def error(status: int, code: str = "", **headers: str) -> Answer:
    """Return a refusal in the provider's own envelope."""
    said = {"error": {"message": f"refused: {code or status}", "type": "refused", "code": code or None, "param": None}}
    sent = (("x-request-id", "req_1"), *((name.replace("_", "-"), value) for name, value in headers.items()))
    return Answer(status, json.dumps(said).encode(), headers=sent)


def page(status: int) -> Answer:
    """Return a proxy's page."""
    return Answer(status, b"<html><body>proxy</body></html>", "text/html")


@dataclass
class FakeOpenAI:
    """The account: its files, its batches, and what was asked of it."""

    port: int = 0
    is_held: bool = False
    is_locked: bool = False
    """Whether every call is refused for its key."""
    age_s: int = 0
    """How long ago batches were made, as they say."""
    text: str = FIRST
    create_answers: list[Answer | None] = field(default_factory=list)
    """What creates answer after they were carried out."""
    refusals: list[Answer | None] = field(default_factory=list)
    """What creates answer that are not carried out."""
    bodies: list[bytes] = field(default_factory=list)
    """What downloads of results hold instead."""
    on_create: Callable[[dict[str, Any]], None] | None = None
    """What happens right before a batch is made."""
    list_answers: list[Answer | None] = field(default_factory=list)
    files: dict[str, tuple[str, bytes, int]] = field(default_factory=dict)
    batches: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """The base URL of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def count(self, method: str, path: str) -> int:
        """Return how often a path was asked for."""
        return sum(m == method and urlsplit(p).path == f"/v1{path}" for m, p in self.asked)

    def lines_of(self, batch: dict[str, Any], text: str | None = None) -> list[bytes]:
        """Return the result lines of a batch, in the order of its requests."""
        _, data, _ = self.files[batch["input_file_id"]]
        said = [json.loads(row) for row in data.splitlines()]
        return [_result(row["custom_id"], row["body"]["model"], text or self.text) for row in said]

    def upload(self, name: str, data: bytes) -> str:
        """Take a file in."""
        file_id = f"file-{len(self.files):06d}"
        self.files[file_id] = (name, data, int(time.time()))
        return file_id

    def create(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Make a batch."""
        number = len(self.batches)
        n = len(self.files[asked["input_file_id"]][1].splitlines())
        batch = {
            "id": f"batch_{number:06d}", "object": "batch", "endpoint": asked["endpoint"], "errors": None,
            "input_file_id": asked["input_file_id"], "completion_window": "24h", "status": "in_progress",
            "output_file_id": None, "error_file_id": None, "created_at": int(time.time()) - self.age_s,
            "expires_at": int(time.time()) - self.age_s + 86_400, "metadata": asked.get("metadata"),
            "request_counts": {"total": n, "completed": 0, "failed": 0},
        }  # fmt: skip
        self.batches.append(batch)
        if not self.is_held:
            self.finish(batch)
        return batch

    def finish(self, batch: dict[str, Any]) -> None:
        """Complete a batch."""
        n = batch["request_counts"]["total"]
        output = f"file-out-{batch['id']}"
        batch |= {"status": "completed", "output_file_id": output, "completed_at": int(time.time())}
        batch["request_counts"] = {"total": n, "completed": n, "failed": 0}

    def answer(self, method: str, path: str, body: bytes, content_type: str) -> Answer:  # noqa: PLR0911 - one per path
        """Do what is asked."""
        self.asked.append((method, path))
        if self.is_locked:
            return error(401, f"key_{len(self.asked)}")  # no two answers are the same
        split = urlsplit(path)
        place, query = split.path.removeprefix("/v1"), parse_qs(split.query)
        match method, place.strip("/").split("/"):
            case "POST", ["files"]:
                name, data = _form_file(body, content_type)
                return _json(self._file(self.upload(name, data)))
            case "POST", ["batches"]:
                return self._create(json.loads(body))
            case "POST", ["batches", batch_id, "cancel"]:
                batch = self._batch(batch_id)
                batch["status"] = "cancelling"
                return _json(batch)
            case "DELETE", ["files", file_id]:
                is_there = self.files.pop(file_id, None) is not None
                return _json({"id": file_id, "deleted": True}) if is_there else error(404, "not_found")
            case "GET", ["files", file_id, "content"]:
                return self._content(file_id)
            case "GET", ["files", file_id]:
                return _json(self._file(file_id))
            case "GET", ["files"]:
                return _json({"object": "list", "data": [self._file(name) for name in self.files], "has_more": False})
            case "GET", ["batches", batch_id]:
                return _json(self._batch(batch_id))
            case "GET", ["batches"]:
                given = self.list_answers.pop(0) if self.list_answers else None
                return given or self._listed(query)
            case _:
                return _json({"object": "list", "data": []})

    def _create(self, asked: dict[str, Any]) -> Answer:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            return refusal
        if self.on_create is not None:
            self.on_create(asked)
        batch = self.create(asked)
        given = self.create_answers.pop(0) if self.create_answers else None
        return given or _json(batch)

    def _content(self, file_id: str) -> Answer:
        if self.bodies:
            return Answer(200, self.bodies.pop(0), "application/octet-stream")
        if file_id in self.files:
            return Answer(200, self.files[file_id][1], "application/octet-stream")
        if file_id.removeprefix("file-out-") not in {batch["id"] for batch in self.batches}:
            return error(404, "not_found")
        batch = self._batch(file_id.removeprefix("file-out-"))
        return Answer(200, b"".join(line + b"\n" for line in self.lines_of(batch)), "application/octet-stream")

    def _listed(self, query: dict[str, list[str]]) -> Answer:
        newest = self.batches[::-1]
        names = [batch["id"] for batch in newest]
        start = names.index(query["after"][0]) + 1 if "after" in query else 0
        end = start + int(query.get("limit", ["20"])[0])
        return _json({"object": "list", "data": newest[start:end], "has_more": end < len(newest)})

    def _batch(self, batch_id: str) -> dict[str, Any]:
        return next(batch for batch in self.batches if batch["id"] == batch_id)

    def _file(self, file_id: str) -> dict[str, Any]:
        name, data, created_at = self.files[file_id]
        return {
            "id": file_id, "object": "file", "bytes": len(data), "created_at": created_at, "filename": name,
            "purpose": "batch", "status": "processed",
        }  # fmt: skip


def _json(document: Any) -> Answer:
    return Answer(200, json.dumps(document).encode(), headers=(("x-request-id", "req_1"),))


def _result(custom_id: str, model: str, text: str) -> bytes:
    message = {"role": "assistant", "content": text, "refusal": None}
    body = {
        "id": f"chatcmpl-{custom_id}", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }  # fmt: skip
    response = {"status_code": 200, "request_id": f"r-{custom_id}", "body": body}
    return json.dumps({"id": f"b-{custom_id}", "custom_id": custom_id, "response": response, "error": None}).encode()


def _form_file(body: bytes, content_type: str) -> tuple[str, bytes]:
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    for part in body.split(b"--" + boundary):
        head, _, data = part.partition(b"\r\n\r\n")
        named = re.search(rb'filename="([^"]+)"', head)
        if named:
            return named.group(1).decode(), data.removesuffix(b"\r\n")
    raise ValueError("no file in the form")


@contextmanager
def fake_openai() -> Iterator[FakeOpenAI]:
    """Run the account on a port of its own."""
    account = FakeOpenAI()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            with account.lock:
                answer = account.answer(self.command, self.path, body, self.headers.get("content-type", ""))
            if answer.status is None:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("transfer-encoding", ""):
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        do_GET = do_POST = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    account.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield account
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
