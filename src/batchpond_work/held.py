"""A part that this worker holds: answers come, small files of them go out, and one file of them all at its end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from batchpond_work.claims import Claim, Claims
from batchpond_work.folder import Folder, Inbox, Part, parsed, sync_folder


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
class Held:
    """A part under a claim; `wanted` has the custom_ids without a row, `rows` what came and is not written yet.

    `n_wanted` is how many had none when it was claimed, `n_late` how many rows came when it was another's.
    """

    folder: Folder
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
            self.is_lost = not self._put(b"".join(self.rows.values()))
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
            self._join()
        self.claims.drop(self.claim)
        return not self.wanted

    def _put(self, data: bytes) -> bool:
        """Let a file of rows appear as long as the part is this worker's; whether it did."""
        self._n_files += 1
        path = self.folder.inbox / f"{self.part.name}-{self.claims.worker}-{self._n_files:04d}.jsonl"
        return self.folder.put(path, data, self.claims.worker, lambda: self.claims.holds(self.claim))

    def _join(self) -> None:
        """Replace the small files of a part by one with all of their rows, identical ones once.

        The joined one stands before any other goes: whoever dies in between leaves rows that are there twice, byte
        for byte, until the next worker joins them, and whoever looks sees each at least once.
        """
        named = (path for path in self.inbox.files() if path.name.startswith(f"{self.part.name}-"))
        own = [path for path in named if path.suffix == ".jsonl"]
        lines = [line for path in own for line in path.read_bytes().splitlines(keepends=True)]
        if len(own) > 1 and all(map(parsed, lines)):
            whole = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in dict.fromkeys(lines))
            if self._put(whole):
                for path in own:
                    path.unlink(missing_ok=True)
                sync_folder(self.folder.inbox)
