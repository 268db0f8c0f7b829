"""A place in an object store, which has no links, and nothing to touch or rename.

A store gives a name to one alone (`If-None-Match: *`, or what it calls that), replaces an object only where it is the
one that was put (`If-Match`), and dates it by a clock of its own. All that a part's Nth holder adds is
`inbox/PART-gN-K.jsonl`, one K after the other. Who takes over puts an empty file under the next of these names: from
then on the other finds it taken, however long it slept, and what it added before is there to be read. So no file of an
inbox is ever replaced, joined or removed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from batchpond_work import ACCESS, USAGE, WorkError
from batchpond_work.claims import last_files, rows_name
from batchpond_work.place import CLAIMS, INBOX, NO_OUTBOX, OUTBOX, Claim, Mark, Place, ids_of, unquoted

if TYPE_CHECKING:
    from obstore import PutResult

FRESH_S: Final = 1.0  # a listing of claims is relied on: what is made of it is decided by who gets a name
CLOCK_S: Final = 60.0  # the difference of two clocks is
_CALL: Final = timedelta(minutes=5)  # with its retries
SMALL_CALL: Final = timedelta(seconds=30)  # one that carries a name or a page of a listing
_WAITS_S: Final = (0.0, 0.2, 1.0, 5.0, 15.0)
_AT_ONCE: Final = 8
_REFUSED: Final = re.compile(r"40[13] (?:Unauthorized|Forbidden)|(?:ExpiredToken|InvalidToken|TokenRefreshRequired)$")
_HINT: Final = "credentials are looked for as the cloud's own tools do; the guide `remote` names them"


class Address(Place):
    """A place in an object store; raises WorkError for one that cannot be, or has no requests.

    What is read of it as a file is brought to a folder of this machine, `scratch`.
    """

    look_s: ClassVar[float] = 10.0

    def __init__(self, url: str, scratch: Path) -> None:
        self._url, self._scratch = url.rstrip("/"), scratch
        self._made: dict[str, PutResult] = {}
        self._claims: dict[str, Mark] = {}
        self._said: dict[str, tuple[str, bytes]] = {}
        self._listed_s, self._asked_s = -FRESH_S, -CLOCK_S
        self._ahead_s = 0.0
        try:
            self._store, self._small = (
                from_url(
                    self._url,
                    client_options={"timeout": call, "allow_http": True},  # where somebody gave an endpoint without TLS
                    retry_config={"max_retries": 4, "retry_timeout": call},
                )
                for call in (_CALL, SMALL_CALL)
            )
        except (BaseError, ValueError) as error:
            raise WorkError(f"{url}: {_first_line(error)}", hint=_HINT, exit_code=USAGE) from error
        if not self.listed(OUTBOX):
            raise WorkError(f"{url} has no outbox", hint=NO_OUTBOX, exit_code=USAGE)

    def __str__(self) -> str:
        return self._url

    def listed(self, side: str, start: str = "") -> dict[str, Mark]:
        """Return objects of one side; stores list by name, so that those that begin so stand together."""
        if side == CLAIMS:
            return {name: mark for name, mark in self._fresh_claims().items() if name.startswith(start)}
        return self._listing(side, start)

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes."""
        return self._get(name)[0]

    def requests(self, batch: str) -> Path | None:
        """Return a batch's requests, brought here."""
        path = self._scratch / f"{batch}.jsonl"
        with suppress(FileNotFoundError):
            self._fetch(f"{OUTBOX}/{batch}.jsonl", path)
            return path
        return None

    def answered(self, names: Collection[str]) -> list[frozenset[str]]:
        """Return what files of the inbox answer, several read at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._ids, names))

    def standing(self, name: str) -> tuple[float, bytes] | None:
        """Return a claim as it was listed a moment ago."""
        mark = self._fresh_claims().get(name.removeprefix(f"{CLAIMS}/"))
        if mark is None:
            return None
        if self._said.get(name, ("", b""))[0] != mark.tag:
            self._said[name] = mark.tag, self.read(name) or b""
        return mark.changed_s, self._said[name][1]

    def now_s(self, by: str) -> float:
        """Return the store's time; how far it is ahead of a clock here that nobody sets is asked now and then."""
        if time.monotonic() - self._asked_s > CLOCK_S:
            name, self._asked_s = f"{CLAIMS}/.now-{by}", time.monotonic()
            self.replace(name, b"", by)
            with self._told(f"look at {name}"):
                self._ahead_s = obstore.head(self._small, name)["last_modified"].timestamp() - self._asked_s
            self.remove(name)
        return time.monotonic() + self._ahead_s

    def make(self, name: str, data: bytes, by: str) -> bool:  # noqa: ARG002 - no passing name is needed
        """Put a claim."""
        self._made.pop(name, None)
        return self.renew(name, data, is_free=False)

    def renew(self, name: str, data: bytes, *, is_free: bool) -> bool:  # noqa: ARG002 - what it says tells that
        """Put a claim in the place of itself."""
        self._listed_s = -FRESH_S
        put = self._put(name, data, self._made.get(name))
        if put is not None:
            self._made[name] = put
        return put is not None

    def remove(self, name: str) -> None:
        """Delete an object."""
        self._listed_s = -FRESH_S
        with suppress(FileNotFoundError), self._told(f"delete {name}"):
            obstore.delete(self._small, name)

    def replace(self, name: str, data: bytes, by: str) -> None:  # noqa: ARG002 - no passing name is needed
        """Put an object, whatever stands there."""
        with self._told(f"write {name}"):
            obstore.put(self._store, name, data, use_multipart=False)

    def fence(self, part: str, generation: int) -> None:
        """Put an empty file under the name that each former holder's next one would have."""
        last = self._last(part)
        for former in range(1, generation):
            number, size_bytes = last.get(former, (0, 1))
            is_fenced = size_bytes == 0
            while not is_fenced:
                number += 1
                is_fenced = self._put(rows_name(part, former, number), b"") is not None

    def generation(self, part: str) -> int:
        """Return the last claim whose holder wrote anything, or is fenced off."""
        return max(self._last(part), default=0)

    def write(self, claim: Claim, number: int, data: bytes, by: str, is_held: Callable[[], bool]) -> bool:  # noqa: ARG002
        """Put the next file of a holder under its name, which alone tells whether it may."""
        return self._put(rows_name(claim.part, claim.generation, number), data) is not None

    def _last(self, part: str) -> dict[int, tuple[int, int]]:
        return last_files(part, self._listing(INBOX, f"{part}-g"))

    def _fresh_claims(self) -> dict[str, Mark]:
        if time.monotonic() - self._listed_s > FRESH_S:
            self._listed_s, self._claims = time.monotonic(), self._listing(CLAIMS, "")
        return self._claims

    def _listing(self, side: str, start: str) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        with self._told(f"list {side}"):
            for page in obstore.list(self._small, side, offset=f"{side}/{start}", chunk_size=1_000):
                for one in page:
                    name = one["path"].removeprefix(f"{side}/")
                    if name.startswith(start) and "/" not in name:
                        tag = unquoted(one["e_tag"]) or str(one["last_modified"])
                        found[name] = Mark(one["size"], tag, one["last_modified"].timestamp())
                if page and not page[-1]["path"].startswith(f"{side}/{start}"):
                    break
        return dict(sorted(found.items()))

    def _put(self, name: str, data: bytes, over: PutResult | None = None) -> PutResult | None:
        """Put an object under a name that nobody has, or `over` what was put before; None where it is another's.

        After no answer, or a refusal, what stands there tells: it is ours where it has our bytes.
        """
        mode: Any = "create" if over is None else {kind: tag for kind, tag in over.items() if tag is not None}
        failure: Exception | None = None
        for wait_s in _WAITS_S:
            time.sleep(wait_s)
            try:
                with self._told(f"write {name}"):
                    return obstore.put(self._store, name, data, mode=mode, use_multipart=False)
            except (OSError, _RefusedError) as error:
                failure = error
            try:
                stands, version = self._get(name)
            except OSError:
                continue
            if stands == data:
                return version
            is_as_before = stands is None if over is None else unquoted(version["e_tag"]) == unquoted(over["e_tag"])
            if not is_as_before:
                return None
        raise OSError(str(failure)) from failure

    def _get(self, name: str) -> tuple[bytes | None, PutResult]:
        with suppress(FileNotFoundError), self._told(f"read {name}"):
            found = obstore.get(self._store, name)
            return bytes(found.bytes()), {"e_tag": found.meta["e_tag"], "version": found.meta["version"]}
        return None, {"e_tag": None, "version": None}

    def _fetch(self, name: str, into: Path) -> None:
        with self._told(f"read {name}"), into.open("wb") as file:
            for chunk in obstore.get(self._store, name).stream():
                file.write(chunk)

    def _ids(self, name: str) -> frozenset[str]:
        path = self._scratch / f"rows-{name}"
        self._fetch(f"{INBOX}/{name}", path)
        try:
            return ids_of(path)
        finally:
            path.unlink()

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            raise _RefusedError(f"may not {what}: {_first_line(error)}") from error
        except BaseError as error:
            text = f"could not {what}: {_first_line(error)}"
            if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _REFUSED.search(text):
                raise WorkError(f"{self._url}: {text}", hint=_HINT, exit_code=ACCESS) from error
            if "NoSuchBucket" in str(error):
                raise WorkError(f"{self._url}: there is no such bucket", exit_code=USAGE) from error
            raise OSError(text) from error


class _RefusedError(Exception):
    """A name is taken, or what stands there is another."""


def _first_line(error: BaseException) -> str:
    first, code = str(error).partition("\n")[0], re.search(r"<Code>(\w+)</Code>", str(error))
    return f"{first.partition(' <')[0]} {code[1]}" if code else first
