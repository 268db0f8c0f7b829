"""A small study of mode `files`: a lake, the folder beside its tables, and somebody who answers what lies there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batchpond.lake.attempts import Attempt
from batchpond.providers import registry
from batchpond.run.session import Providers
from tests.rigs import files_worker
from tests.rigs.files_worker import Row
from tests.rigs.sim_study import Rig

AGE_S = 60.0
N = 12
"""How many requests the study has for each model."""


@dataclass
class FilesRig(Rig):
    """A user without any key, whose models are all of mode `files`."""

    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        text = self.study_path.read_text()
        self.study_path.write_text(text.replace("max_output_tokens", 'mode = "files"\nmax_output_tokens'))

    def providers(self) -> Providers:
        """Connect anew, as a program does that finds no key."""
        environ = self.environment
        return Providers(lambda name: registry.connect(name, self.clock, environ=environ, lake_path=self.lake))

    @property
    def folder(self) -> Path:
        """Where files are exchanged."""
        return Path(self.environment.get("BATCHPOND_FILES", self.lake / "files"))

    @property
    def outbox(self) -> Path:
        """Where requests appear."""
        return self.folder / "outbox"

    @property
    def inbox(self) -> Path:
        """Where results belong."""
        return self.folder / "inbox"

    def token(self, attempt: Attempt | None = None) -> str:
        """Return the name that an attempt's files begin with; of the only attempt, unless one is given."""
        return (attempt or self.only()).intent.token or ""

    def rows(self, sql: str, *names: str) -> list[tuple[object, ...]]:
        """Return the rows of a query over the named tables."""
        return super().rows(sql, *names)

    def answers_of(self, attempt: Attempt | None = None) -> list[Row]:
        """Return a good answer to each of an attempt's requests."""
        manifest = json.loads((self.outbox / f"{self.token(attempt)}.manifest.json").read_text())
        return list(files_worker.answer_rows(files_worker.requests(self.folder, manifest)))

    def work(self, change: Callable[[list[Row]], list[Row]] = lambda rows: rows) -> int:
        """Answer what lies in the outbox, a while ago; returns how many batches."""
        n_batches = files_worker.work(self.folder, change)
        self.age()
        return n_batches

    def put(self, name: str, rows: Sequence[Row] | bytes, age_s: float = AGE_S) -> Path:
        """Put a file into the inbox that was last written to so long ago."""
        path = self.inbox / name
        if isinstance(rows, bytes):
            path.write_bytes(rows)
        else:
            files_worker.write(path, rows)
        self._set_age(path, age_s)
        return path

    def age(self, age_s: float = AGE_S) -> None:
        """Let all results have been written so long ago."""
        for path in self.inbox.iterdir():
            self._set_age(path, age_s)

    def _set_age(self, path: Path, age_s: float) -> None:
        when_s = self.clock.now().timestamp() - age_s
        os.utime(path, (when_s, when_s))

    def visible(self, pattern: str = "*.jsonl") -> list[str]:
        """Return what somebody sees in the outbox."""
        return sorted(path.name for path in self.outbox.glob(pattern) if not path.name.startswith("."))


def new_rig(path: Path, **settings: object) -> FilesRig:
    """Return a rig of one model and one batch, unless the settings say otherwise."""
    return FilesRig(path, **({"models": ("gpt-4.1-mini",), "max_requests": 50, "with_lens": False} | settings))  # type: ignore[arg-type]


def bring_home(rig: FilesRig) -> None:
    """Pass after pass until all is answered; the worker runs in between."""
    for _ in range(8):
        if not rig.sync().n_pending and len(rig.answers()) == N:
            return
        if rig.outbox.is_dir():
            rig.work()
        rig.clock.advance(1_000)
    raise AssertionError(f"not home: {[(a.phase, a.state) for a in rig.attempts()]}")
