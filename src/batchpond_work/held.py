"""What the inbox holds, and a part that this worker holds: answers come, small files go out, and one at its end."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final

from batchpond_work.claims import Claims
from batchpond_work.place import INBOX, Claim, Part, Place, parsed

_RESULTS: Final = re.compile(r"(?:[^A-Za-z0-9].*)?\.jsonl(?:\.gz)?")


def row_of(custom_id: str, *, response: dict[str, Any] | None = None, error: dict[str, str] | None = None) -> bytes:
    """Return a result row in the form of OpenAI's output files; a number beyond all that can be written is null."""
    row = {"id": f"work-{custom_id}", "custom_id": custom_id, "response": response, "error": error}
    try:
        text = json.dumps(row, allow_nan=False)
    except ValueError:  # 1e999 is read as infinity, which is no JSON
        text = json.dumps(json.loads(json.dumps(row), parse_constant=lambda _: None))
    return text.encode() + b"\n"


def is_error(row: bytes) -> bool:
    """Whether a row says that its request failed."""
    said = parsed(row) or {}
    response = said.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    return bool(said.get("error")) or (isinstance(status, int) and status >= 400)


@dataclass(slots=True)
class Inbox:
    """Which custom_ids the result files of one batch hold; each file is read once, until it changes."""

    place: Place
    batch: str
    _read: dict[str, tuple[tuple[int, str], frozenset[str]]] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the result files, in name order."""
        return {name: size_bytes for name, (size_bytes, _) in self._marks().items()}

    def held(self) -> set[str]:
        """Return the custom_ids of all whole rows that are there now."""
        while True:
            marks = self._marks()
            known = {
                name: self._read[name] for name in marks if name in self._read and self._read[name][0] == marks[name]
            }
            new = [name for name in marks if name not in known]
            try:
                found = zip(new, self.place.answered(new), strict=True)
                self._read = known | {name: (marks[name], ids) for name, ids in found}
            except FileNotFoundError:  # joined to another meanwhile, which is there now
                continue
            return set().union(*(held for _, held in self._read.values()))

    def _marks(self) -> dict[str, tuple[int, str]]:
        found = self.place.listed(INBOX, self.batch)
        return {name: found[name][:2] for name in found if _RESULTS.fullmatch(name[len(self.batch) :])}


@dataclass(slots=True)
class Held:
    """A part under a claim; `wanted` has the custom_ids without a row, `rows` what came and is not written yet.

    `n_wanted` is how many had none when it was claimed, `n_late` how many rows came when it was another's.
    """

    folder: Place
    claims: Claims
    claim: Claim
    part: Part
    inbox: Inbox
    wanted: set[str]
    n_wanted: int
    n_jobs: int = 0
    is_lost: bool = False
    is_closed: bool = False
    why: str | None = None
    rows: dict[str, bytes] = field(default_factory=dict)
    written_s: float = field(default_factory=time.monotonic)
    n_late: int = 0
    _n_files: int = 0

    def take(self, custom_id: str, row: bytes) -> None:
        """Take a row of a request that this part waits for."""
        self.wanted.discard(custom_id)
        self.rows[custom_id] = row

    def write(self) -> None:
        """Write what came; of a part that another took over nothing, for that one asks for the same again."""
        if self.rows and not self.is_lost:
            self.is_lost = not self.claims.write(self.claim, self._n_files + 1, b"".join(self.rows.values()))
            self._n_files += 1
        if self.is_lost:
            self.n_late += len(self.rows)
        self.rows = {}
        self.written_s = time.monotonic()

    def renew(self) -> None:
        """Keep the part, or learn that it is another's, or that no more answers are wanted."""
        self.is_lost = self.is_lost or not self.claims.renew(self.claim)
        self.is_closed = self.is_closed or self.folder.is_closed(self.inbox.batch)

    def leave(self) -> bool:
        """Write what came, and let the part go; whether this worker saw to it that every request has an answer."""
        self.write()
        self.renew()
        if self.is_lost:
            return False
        if self.wanted and not self.is_closed:
            self.claims.free(self.claim)
            return False
        if not self.is_closed:  # whoever ended it may be reading already
            own = [name for name in self.inbox.sizes() if name.startswith(f"{self.part.name}-")]
            self.folder.join(own, lambda data: self.claims.write(self.claim, self._n_files + 1, data))
        self.claims.drop(self.claim)
        return not self.wanted
