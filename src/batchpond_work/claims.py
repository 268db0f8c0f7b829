"""Who works on which part: a lease in a file of its own, the election of who takes over, and the part that is held.

`claims/PART.gN.claim` is the Nth claim to a part and says who holds it. It is made by put-if-absent, so that of all who
want to be the Nth exactly one is; the highest is the one that counts. Its holder renews it; where that has not
happened for as long as the claim itself says, by the clock that dates the files, the next may be made. A holder
that was asleep adds nothing more: who takes over sees to that before it looks at what is answered.

Of a part that this worker holds answers come, small files go out, and one at its end, beside what the inbox has.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batchpond_work.place import CLAIMS, INBOX, Claim, Mark, Part, Place, parsed

_CLAIM: Final = re.compile(r"g(\d+)\.claim")
_ROWS: Final = re.compile(r"-g(\d+)-(\d+)\.jsonl")


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims at a place, as one worker sees them."""

    folder: Place
    worker: str
    lease_s: float

    def take(self, part: str) -> Claim | None:
        """Claim a part that nobody holds, and see to it that nobody else adds to it; None where somebody came first."""
        latest, before = self._latest(part), None
        if latest:
            before = self._standing(part, latest)
            if before is None or not self._has_lapsed(before):
                return None
        generation = max(latest, self.folder.generation(part)) + 1
        claim = Claim(part, generation, None if before is None else str(before[1].get("worker")))
        if not self.folder.make(_path(part, generation), self._said(part), self.worker):
            return None
        self.folder.fence(part, generation)
        return claim

    def holds(self, claim: Claim) -> bool:
        """Whether a claim is still the one that counts."""
        standing = self._standing(claim.part, claim.generation)
        is_ours = standing is not None and standing[1].get("worker") == self.worker
        return is_ours and self._latest(claim.part) == claim.generation

    def renew(self, claim: Claim, *, is_free: bool = False) -> bool:
        """Say that its holder lives, or that whoever comes next may have the part; whether it was still held."""
        said = self._said(claim.part, **({"free": True} if is_free else {}))
        return self.holds(claim) and self.folder.renew(_path(claim.part, claim.generation), said, is_free=is_free)

    def free(self, claim: Claim) -> None:
        """Let a part go that has requests left: whoever comes next may have it at once."""
        self.renew(claim, is_free=True)

    def write(self, claim: Claim, number: int, data: bytes) -> bool:
        """Let the next file of a part's rows appear as long as the part is this worker's; whether it did."""
        return self.folder.write(claim, number, data, self.worker, lambda: self.holds(claim))

    def drop(self, claim: Claim) -> None:
        """Take away a part's claims once all answers are in, the one that counts last: who slept holds it no more."""
        for generation in range(1, claim.generation + 1):
            self.folder.remove(_path(claim.part, generation))

    def drop_all(self, batch: str) -> None:
        """Take away what claims are left of a batch of which every answer is in the inbox."""
        names = (name for name in self.folder.listed(CLAIMS, f"{batch}-") if name.endswith(".claim"))
        for part in {name.rsplit(".", 2)[0] for name in names}:
            self.drop(Claim(part, self._latest(part), None))

    def close(self, batch: str, sizes: Mapping[str, int]) -> None:
        """Say that these files answer all of a batch, and take away what killed workers left of it."""
        self.folder.fence(batch, 0)
        self.drop_all(batch)
        self.folder.replace(f"{CLAIMS}/{batch}.answered", json.dumps(sizes).encode(), self.worker)

    def was_answered(self, batch: str, sizes: Mapping[str, int]) -> bool:
        """Whether a worker found all of a batch answered by these files: then none has to read them again."""
        said = self.folder.read(f"{CLAIMS}/{batch}.answered")
        return said is not None and parsed(said) == sizes

    def _said(self, part: str, **more: object) -> bytes:
        said = {"part": part, "worker": self.worker, "lease_s": self.lease_s}
        return json.dumps(said | more).encode() + b"\n"

    def _latest(self, part: str) -> int:
        names = (name.removeprefix(f"{part}.") for name in self.folder.listed(CLAIMS, f"{part}.g"))
        return max((int(found[1]) for found in map(_CLAIM.fullmatch, names) if found), default=0)

    def _standing(self, part: str, generation: int) -> tuple[float, dict[str, Any]] | None:
        """Return when a claim was last renewed, and what it says; None where it is gone."""
        standing = self.folder.standing(_path(part, generation))
        return standing and (standing[0], parsed(standing[1]) or {})

    def _has_lapsed(self, standing: tuple[float, dict[str, Any]]) -> bool:
        renewed_s, said = standing
        stated = said.get("lease_s")
        lease_s = stated if isinstance(stated, int | float) else self.lease_s
        return said.get("free") is True or self.folder.now_s(self.worker) - renewed_s > lease_s


def _path(part: str, generation: int) -> str:
    return f"{CLAIMS}/{part}.g{generation}.claim"


def rows_name(part: str, generation: int, number: int) -> str:
    """Return the name of a file of a part's rows that says under which claim it was written."""
    return f"{INBOX}/{part}-g{generation}-{number:04d}.jsonl"


def last_files(part: str, listed: Mapping[str, Mark]) -> dict[int, tuple[int, int]]:
    """Return of each claim whose holder wrote such files the number and the size of the last."""
    last: dict[int, tuple[int, int]] = {}
    for name, mark in listed.items():
        if (found := _ROWS.fullmatch(name.removeprefix(part))) is not None:
            generation = int(found[1])
            last[generation] = max(last.get(generation, (0, 0)), (int(found[2]), mark.size_bytes))
    return last


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
