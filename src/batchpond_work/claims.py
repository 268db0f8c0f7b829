"""Who works on which part: a lease in a file of its own, and the election of the one who takes over.

`claims/PART.gN.claim` is the Nth claim to a part and says who holds it. It is made by put-if-absent, so that of all who
want to be the Nth exactly one is; the highest is the one that counts. Its holder touches it; where that has not
happened for as long as the claim itself says, by the clock of the file system, the next may be made. A holder
that was asleep finds the later claim before it writes again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any, Final

from batchpond_work.folder import Folder, parsed

_CLAIM: Final = re.compile(r"\.g(\d+)\.claim")


@dataclass(frozen=True, slots=True)
class Claim:
    """A part that this worker holds; `after` says who let it lie, None where nobody had it."""

    part: str
    generation: int
    after: str | None


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims in a folder, as one worker sees them."""

    folder: Folder
    worker: str
    lease_s: float

    def take(self, part: str) -> Claim | None:
        """Claim a part that nobody holds; None where somebody does, or came first."""
        latest, before = self._latest(part), None
        if latest:
            before = self._standing(part, latest)
            if before is None or not self._has_lapsed(before):
                return None
        said = json.dumps({"part": part, "worker": self.worker, "lease_s": self.lease_s}).encode() + b"\n"
        if not self.folder.put(self._path(part, latest + 1), said, self.worker):
            return None
        return Claim(part, latest + 1, None if before is None else str(before[1].get("worker")))

    def holds(self, claim: Claim) -> bool:
        """Whether a claim is still the one that counts."""
        standing = self._standing(claim.part, claim.generation)
        is_ours = standing is not None and standing[1].get("worker") == self.worker
        return is_ours and self._latest(claim.part) == claim.generation

    def renew(self, claim: Claim) -> bool:
        """Say that its holder lives, unless another holds the part by now; whether that was so."""
        if not self.holds(claim):
            return False
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path(claim.part, claim.generation))
        return True

    def free(self, claim: Claim) -> None:
        """Let a part go that has requests left: whoever comes next may have it at once."""
        if self.holds(claim):
            os.utime(self._path(claim.part, claim.generation), (0, 0))

    def drop(self, claim: Claim) -> None:
        """Take away a part's claims once all answers are in, the one that counts last: who slept holds it no more."""
        for generation in range(1, claim.generation + 1):
            self._path(claim.part, generation).unlink(missing_ok=True)

    def drop_all(self, batch: str) -> None:
        """Take away what claims are left of a batch of which every answer is in the inbox."""
        for part in {path.name.rsplit(".", 2)[0] for path in self.folder.claims.glob(f"{batch}-*.claim")}:
            self.drop(Claim(part, self._latest(part), None))

    def _path(self, part: str, generation: int) -> Any:
        return self.folder.claims / f"{part}.g{generation}.claim"

    def _latest(self, part: str) -> int:
        names = (name.removeprefix(part) for name in os.listdir(self.folder.claims) if name.startswith(part))
        return max((int(found[1]) for found in map(_CLAIM.fullmatch, names) if found), default=0)

    def _standing(self, part: str, generation: int) -> tuple[float, dict[str, Any]] | None:
        """Return when a claim was last renewed, and what it says; None where it is gone."""
        try:
            with self._path(part, generation).open("rb") as file:  # opened, NFS asks its server for the time
                return os.fstat(file.fileno()).st_mtime, parsed(file.read()) or {}
        except FileNotFoundError:
            return None

    def _has_lapsed(self, standing: tuple[float, dict[str, Any]]) -> bool:
        renewed_s, said = standing
        lease_s = said.get("lease_s")
        return self._now_s() - renewed_s > (lease_s if isinstance(lease_s, int | float) else self.lease_s)

    def _now_s(self) -> float:
        """Return the time by the clock that dates the files of this folder."""
        path = self.folder.claims / f".now-{self.worker}"
        path.touch()
        os.utime(path)
        now_s = path.stat().st_mtime
        path.unlink(missing_ok=True)
        return now_s
