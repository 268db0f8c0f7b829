"""Another Cloud Storage emulator as the place where a simulated job reads and writes."""

from __future__ import annotations

import shutil
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

from batchpond.errors import UsageError
from batchpond_sim.storage.store import NoBucketError, Target

_TIMEOUT_S = 30.0


class RemoteStore:
    """The objects behind an emulator's JSON API, such as `http://127.0.0.1:9023`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"{url!r} is not the address of a storage emulator", hint="write http://127.0.0.1:9023")
        self._host, self._port, self._path = parts.hostname, parts.port or 80, parts.path.rstrip("/")

    def fetch(self, bucket: str, name: str, path: Path) -> bool:
        """Copy an object's bytes to `path`; False when there is none."""
        connection = self._connection()
        try:
            connection.request("GET", f"{self._path}/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media")
            answer = connection.getresponse()
            if answer.status != 200:
                return False
            with path.open("wb") as file:
                shutil.copyfileobj(answer, file)
        finally:
            connection.close()
        return True

    def put(self, target: Target, source: Path, n_404: int) -> None:  # noqa: ARG002  # faults are not the emulator's
        """Store a copy of a file; raises NoBucketError where the emulator will not have it."""
        query = f"uploadType=media&name={quote(target.name, safe='')}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(source.stat().st_size)}
        connection = self._connection()
        try:
            with source.open("rb") as file:
                path = f"{self._path}/upload/storage/v1/b/{target.bucket}/o?{query}"
                connection.request("POST", path, body=file, headers=headers)
                status = connection.getresponse().status
        finally:
            connection.close()
        if status != 200:
            raise NoBucketError(target.bucket)

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
