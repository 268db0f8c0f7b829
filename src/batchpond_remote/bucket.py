"""The objects below an address: list, get, put if absent, put, delete; each call has a deadline, each retry a reason.

Put if absent is the store's own (`If-None-Match: *` at S3 and Azure, `ifGenerationMatch=0` at Google), so that of all
who want a name exactly one gets it. Whose put an unclear one was, is told by the bytes that stand there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, from_url

from batchpond.clock import Work
from batchpond.errors import AwayError, RefusedError, UsageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from batchpond.clock import Clock

CALL_DEADLINE: Final = timedelta(minutes=5)  # with its retries: an object goes in one piece
SMALL_DEADLINE: Final = timedelta(seconds=30)  # of a name, a page of a listing, or no more bytes than these:
_SMALL_BYTES: Final = 1 << 20
_WAITS_S: Final = (0.0, 0.2, 1.0, 5.0)
_KEYS: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE",
)  # fmt: skip
_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file"})
_CHUNK_BYTES: Final = 4 << 20
_PART_BYTES: Final = 8 << 20  # of which S3 takes 10,000
_PARTS_AT_ONCE: Final = 4
_LIST_PAGE: Final = 1_000


class Object(NamedTuple):
    """An object as it is listed: what changes when its bytes do, and how many those are."""

    tag: str
    size_bytes: int


class Bucket:
    """The objects below an address, by their names there."""

    def __init__(self, url: str, clock: Clock) -> None:
        """Know where it is; raises UsageError for an address of another kind, or one that lacks a setting."""
        self.url = checked(url)
        self._clock = clock
        try:
            self._store, self._small = _connected(self.url, CALL_DEADLINE), _connected(self.url, SMALL_DEADLINE)
        except (BaseError, ValueError) as error:
            raise UsageError(f"{url}: {_first_line(error)}", hint="the guide `remote` says what is set how") from error

    @property
    def is_loopback(self) -> bool:
        """Whether the store is on this machine, as those of tests are."""
        if self.url.startswith("az"):
            return os.environ.get("AZURE_STORAGE_USE_EMULATOR") == "true"
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "") if self.url.startswith("s3") else ""
        return self.url.startswith("file:") or urlsplit(endpoint).hostname in {"127.0.0.1", "::1", "localhost"}

    def objects(self, prefix: str = "") -> dict[str, Object]:
        """Return what there is below a name; a call per 1,000 objects."""
        with self._told(f"list {prefix or 'what is there'}"):
            found = (one for page in obstore.list(self._small, prefix or None, chunk_size=_LIST_PAGE) for one in page)
            return {
                one["path"]: Object(_tag(one["e_tag"]) or f"{one['size']} {one['last_modified']}", one["size"])
                for one in found
            }

    def listed(self, folder: str, start: str) -> dict[str, tuple[int, int]]:
        """Return size and time of what stands in a folder under names that begin so, which stores list together."""
        found, first = dict[str, tuple[int, int]](), f"{folder}/{start}"
        with self._told(f"list {folder}"):
            for page in obstore.list(self._small, folder, offset=first, chunk_size=_LIST_PAGE):
                mine = [one for one in page if one["path"].startswith(first)]
                found |= {one["path"]: (one["size"], int(one["last_modified"].timestamp()) * 10**9) for one in mine}
                if len(mine) < len(page):
                    break
        return {path.removeprefix(f"{folder}/"): stands for path, stands in found.items()}

    def holds(self, name: str) -> bool:
        """Whether an object has this name, or one below it as in a folder."""
        with self._told(f"look for {name}"):
            try:
                return bool(obstore.head(self._small, name))
            except FileNotFoundError:
                return any(obstore.list(self._small, name, chunk_size=1))

    def put(self, name: str, content: bytes | Path) -> str:
        """Put an object in the place of another, if any, a large file in parts; return its tag."""
        with self._told(f"write {name}"):
            put = obstore.put(self._store, name, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
            return _tag(put["e_tag"])

    def put_new(self, name: str, data: bytes) -> tuple[bool, str]:
        """Put an object under a name that nobody has; whether it is this one that stands there now, and its tag.

        An answer that did not come, and a refusal of a name that nobody has (S3's 409 while another's put is under
        way), are followed by another try: what stands there then is ours where it has our bytes.
        """
        failure: BaseException | None = None
        store = self._small if len(data) <= _SMALL_BYTES else self._store
        for wait_s in _WAITS_S:
            self._clock.sleep(wait_s)
            try:
                with self._told(f"write {name}"):
                    put = obstore.put(store, name, data, mode="create", use_multipart=False)
                    return True, _tag(put["e_tag"])
            except _TakenError as taken:
                failure = taken.__cause__
            except AwayError as error:
                failure = error
            found = self._get_or_none(name, store)
            if found is not None:
                return found[0] == data, found[1]
        raise AwayError(f"{self.url}/{name} could not be written: {_first_line(failure)}", hint=_HINT) from failure

    def get(self, name: str) -> bytes | None:
        """Return a small object's bytes, None where there is none of that name."""
        return (self._get_or_none(name, self._small) or (None, ""))[0]

    def _get_or_none(self, name: str, store: ObjectStore) -> tuple[bytes, str] | None:
        with suppress(FileNotFoundError), self._told(f"read {name}"):
            found = obstore.get(store, name)
            return bytes(found.bytes()), _tag(found.meta["e_tag"])
        return None

    def fetch(self, name: str, into: Path) -> bool:
        """Stream an object into an empty file; whether there is one."""
        with suppress(FileNotFoundError), self._told(f"read {name}"), into.open("wb") as file:
            for chunk in obstore.get(self._store, name).stream(min_chunk_size=_CHUNK_BYTES):
                file.write(chunk)
            return True
        return False

    def drop(self, name: str) -> None:
        """Delete an object, if there is one."""
        with suppress(FileNotFoundError), self._told(f"delete {name}"):
            obstore.delete(self._small, name)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            raise _TakenError from error
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            text = _first_line(error)
            is_refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
            if is_refused or " 403 " in text or text.endswith(_STALE):
                hint = "credentials are looked for as the cloud's own tools do; the guide `remote` names them"
                raise RefusedError(f"{self.url}: may not {what}: {text}", hint=hint) from error
            raise AwayError(f"{self.url}: could not {what}: {text}", hint=_HINT) from error


class Place:
    """Where in an object store a file, or a folder of files, is put once it stands whole on this machine."""

    def __init__(self, url: str, clock: Clock, *, force: bool) -> None:
        """Know where it is; raises UsageError for no such place, and unless `force` for one where something stands."""
        parent, _, name = checked(url, "what is written").rpartition("/")
        if parent.endswith("/"):
            raise UsageError(f"{url} names a bucket, and no place in it", hint=f"add a name: {url}/NAME")
        self._bucket, self._is_forced = Bucket(parent, clock), force
        self._check(name)

    def put(self, written: Path) -> None:
        """Put a file, or all files of a folder, whose name is the place's; raises UsageError where one stands."""
        files = [written] if written.is_file() else sorted(filter(Path.is_file, written.rglob("*")))
        names = [file.relative_to(written.parent).as_posix() for file in files]
        with Work(f"to {self._bucket.url}", "files", len(files)) as work, ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
            for _ in pool.map(self._put, names, files):
                work.add()

    def _put(self, name: str, file: Path) -> None:
        """Put one file; a large one goes in parts, and takes nobody's name by a look just before."""
        is_large = file.stat().st_size > _PART_BYTES
        if is_large:
            self._check(name)
        if is_large or self._is_forced:
            self._bucket.put(name, file)
        elif not self._bucket.put_new(name, file.read_bytes())[0]:
            raise self._taken(name)

    def _check(self, name: str) -> None:
        if not self._is_forced and self._bucket.holds(name):
            raise self._taken(name)

    def _taken(self, name: str) -> UsageError:
        return UsageError(f"{self._bucket.url}/{name} exists already", hint="give another name, or --force")


_HINT: Final = "nothing was lost: run the command again once the address can be reached, and its bucket is there"
_STALE: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")  # S3's words with a 400


class _TakenError(Exception):
    """A name is taken, or seems to be."""


def checked(url: str, what: str = "a lake") -> str:
    """Return an address as it is written; raises UsageError for one of another kind."""
    if url.partition("://")[0].lower() not in _SCHEMES:
        raise UsageError(
            f"{what} is a folder on this machine or in an object store, and {url} is neither",
            hint="s3://, gs://, az:// and file:// name object stores; the guide `remote` says how",
        )
    return url.rstrip("/")


def _connected(url: str, deadline: timedelta) -> ObjectStore:
    if url.startswith("file:"):
        return LocalStore(url.removeprefix("file://"), mkdir=True)
    if url.startswith("s3") and "AWS_PROFILE" in os.environ and not any(name in os.environ for name in _KEYS):
        hint = 'export what it names: eval "$(aws configure export-credentials --format env)", and AWS_REGION'
        raise UsageError(f"{url}: AWS_PROFILE names a profile, and ~/.aws is not read here", hint=hint)
    return from_url(
        url,
        client_options={"timeout": deadline, "allow_http": True},  # where somebody gave an endpoint without TLS
        retry_config={"max_retries": 4, "retry_timeout": deadline},
    )


def _tag(found: str | None) -> str:
    return (found or "").strip('"')  # Azure quotes it in answers and not in listings


def _first_line(error: BaseException | None) -> str:
    first, code = str(error).partition("\n")[0], re.search(r"<Code>(\w+)</Code>", str(error))
    return f"{first.partition(' <')[0]} {code[1]}" if code else first
