"""Facts for tests: a record with only what the test is about said, and something harmless everywhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from batchpond.lake.records import Event, Resolution
from batchpond.model import BatchState, ErrorClass, FileRole, Mode, Origin, ShardKind

RecordT = TypeVar("RecordT", bound=Event)

_HARMLESS: Final[dict[str, Any]] = {
    "study": "demo", "study_version": "v1", "approval_id": "p1", "expires_at": datetime(2100, 1, 1, tzinfo=UTC),
    "shard_id": "s1", "shard_kind": ShardKind.FIRST, "attempt_id": "a1", "ordinal": 1, "batch_id": "b1",
    "provider": "openai", "host": "127.0.0.1", "endpoint": "/v1/chat/completions", "request_model": "m1",
    "origin": Origin.SIMULATED, "cells": "", "n_requests": 4, "size_bytes": 40, "input_tokens": 100,
    "round_no": 1, "progress": "incomplete", "looked": "{}", "scope": "org-1", "provider_status": "validating",
    "state": BatchState.QUEUED, "error_class": ErrorClass.TRANSIENT, "message": "no", "reason": "it is so",
    "evidence": "0 batches", "resolution": Resolution.ABSENT, "boot_id": "boot", "monotonic_s": 1.0,
    "file_id": "f1", "file_role": FileRole.OUTPUT, "sha256": "0" * 64, "n_lines": 1,
    "n_completed": 0, "n_failed": 0,
}  # fmt: skip
_WORDS: Final[dict[str, type[StrEnum]]] = {
    "state": BatchState, "error_class": ErrorClass, "resolution": Resolution, "shard_kind": ShardKind, "mode": Mode,
    "origin": Origin, "file_role": FileRole,
}  # fmt: skip


def fact(record: type[RecordT], **said: Any) -> RecordT:
    """Return a fact of that kind that says this; what it must say besides is harmless."""
    required = (f.name for f in msgspec.structs.fields(record) if f.required)
    words = {name: _WORDS[name](value) for name, value in said.items() if name in _WORDS}
    return record(**{name: _HARMLESS[name] for name in required} | said | words)
