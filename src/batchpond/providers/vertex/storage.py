"""Google Cloud Storage over its JSON API: the objects that a job reads and writes.

Shapes: the discovery document of the storage API, v1, revision 20261009, and its guide of resumable uploads.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any, Final

from batchpond import fields
from batchpond.errors import ProviderError
from batchpond.model import Download, RemoteFile
from batchpond.providers.http.client import HttpClient, HttpError, segment
from batchpond.providers.http.transfers import Ranges, Start
from batchpond.providers.shared.batches import PAGES_MAX, every_page, page_by_token
from batchpond.providers.vertex.auth import BUCKET

OBJECTS_MAX: Final = 10_000
_PAGE_ROWS: Final = 1_000
_DOWNLOADS_MAX: Final = 3
_MIME_TYPE: Final = "application/jsonl"
_MISSING: Final = frozenset({404})
_DROPPED: Final = frozenset({204, 404, 412})
_EXISTS: Final = 412


def _parts(uri: str) -> tuple[str, str]:
    """Return the bucket and the name of an object or a folder; raises ProviderError for what is no `gs://` URI."""
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    if scheme != "gs" or not BUCKET.fullmatch(bucket) or any(character < " " for character in name):
        raise ProviderError(f"{uri[:200]!r} is no address in Cloud Storage")
    return bucket, name


def _path(uri: str) -> str:
    bucket, name = _parts(uri)
    return f"/storage/v1/b/{bucket}/o/{segment(name)}"


class Storage:
    """The objects that one credential sees.

    Each call raises AccessError that names the missing role where one is missing.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def stat(self, uri: str) -> RemoteFile | None:
        """Return an object's size and time, None when there is none."""
        found = self._metadata(uri)
        return None if found is None else _file(uri, found)

    def upload(self, path: Path, uri: str) -> RemoteFile:
        """Put a file at an address where nothing is; the same bytes being there already is a success.

        Other bytes there are what an earlier, broken upload left, and are replaced. Raises ProviderError when
        what is stored is not the file.
        """
        found = self._put(path, uri, 0)
        if found is None:
            found = self._metadata(uri) or {}
            if not _holds(found, path):
                found = self._put(path, uri, fields.count(found.get("generation")) or 0)
        if found is None:
            raise ProviderError(f"{uri} was written by somebody else meanwhile", hint="run the same command again")
        if not _holds(found, path):
            self._drop(uri, found)
            raise ProviderError(
                f"{self._http.host} stored other bytes than those of {path.name}; no batch exists",
                hint="run the same command again: it is uploaded anew",
            )
        return _file(uri, found)

    def list(self, folder: str) -> list[RemoteFile]:
        """Return the objects below a folder, by name.

        Raises ProviderError when the bucket is not there, when there are too many, and when the listing does not
        go on as it says: an incomplete one must never look like a complete one.
        """
        bucket, prefix = _parts(folder)
        path = f"/storage/v1/b/{bucket}/o"
        params: dict[str, str | int] = {"prefix": prefix, "maxResults": _PAGE_ROWS}
        found: dict[str, RemoteFile] = {}
        for rows in every_page(
            lambda cursor: page_by_token(self._http, path, params, cursor, "items"),
            f"{self._http.host} lists more than {PAGES_MAX} pages below {folder}",
        ):
            for row in map(fields.mapping, rows):
                name = fields.identifier(row.get("name"))
                if name is None or not name.startswith(prefix):
                    raise ProviderError(f"{self._http.host} lists an object outside {folder}")
                found[name] = _file(f"gs://{bucket}/{name}", row)
            if len(found) > OBJECTS_MAX:
                raise ProviderError(f"there are more than {OBJECTS_MAX} objects below {folder}")
        return [found[name] for name in sorted(found)]

    def download(self, uri: str, path: Path) -> Download | None:
        """Stream an object's bytes to `path`, checked against its digest; None when there is none.

        Raises ProviderError, with nothing left at `path`, when other bytes come again and again.
        """
        for _ in range(_DOWNLOADS_MAX):
            got = self._http.download(f"{_path(uri)}?alt=media", path)
            # Google's 403 for bytes reads like a 404: what is known of the object tells them apart. The digest of one
            # that is kept packed is not that of the bytes that come.
            found = self._metadata(uri)
            if got is None or found is None or found.get("contentEncoding") or _holds(found, path):
                return got
        path.unlink(missing_ok=True)
        raise ProviderError(
            f"{self._http.host} does not give the bytes of {uri} whole", hint="run the same command again"
        )

    def drop(self, uri: str) -> bool:
        """Delete an object; False where there was none."""
        found = self._metadata(uri)
        if found is not None:
            self._drop(uri, found)
        return found is not None

    def peek(self, uri: str, max_bytes: int) -> bytes | None:
        """Return an object's first bytes; None when there is none."""
        found = self._http.peek(f"{_path(uri)}?alt=media", max_bytes)
        if found is None:
            self._metadata(uri)
        return found

    def _metadata(self, uri: str) -> dict[str, Any] | None:
        answer = self._http.request_json("GET", _path(uri), allow=_MISSING)
        return fields.mapping(answer.json) if answer.is_success else None

    def _put(self, path: Path, uri: str, generation: int) -> dict[str, Any] | None:
        """Upload over that generation, 0 for none; None when there is another one."""
        bucket, name = _parts(uri)
        query = f"uploadType=resumable&name={segment(name)}&ifGenerationMatch={generation}"
        start = Start(
            f"/upload/storage/v1/b/{bucket}/o?{query}",
            {"contentType": _MIME_TYPE},
            _MIME_TYPE,
            Ranges(),
        )
        try:
            return fields.mapping(self._http.upload_resumable(start, path).json)
        except HttpError as error:
            if error.status_code != _EXISTS:
                raise
        return None

    def _drop(self, uri: str, found: dict[str, Any]) -> None:
        generation = fields.count(found.get("generation"))
        query = "" if generation is None else f"?ifGenerationMatch={generation}"
        self._http.request_json("DELETE", _path(uri) + query, allow=_DROPPED)


def _file(uri: str, found: dict[str, Any]) -> RemoteFile:
    name = uri.rpartition("/")[2]
    return RemoteFile(uri, name, fields.count(found.get("size")), fields.moment(found.get("timeCreated")))


def _holds(found: dict[str, Any], path: Path) -> bool:
    """Whether an object has a file's size and, where Google says one, its digest."""
    size_bytes = fields.count(found.get("size"))
    if size_bytes is not None and size_bytes != path.stat().st_size:
        return False
    said = fields.identifier(found.get("md5Hash"))
    return (size_bytes is not None and said is None) or said == _md5(path)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode("ascii")
