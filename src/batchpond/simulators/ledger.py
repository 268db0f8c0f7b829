"""The independent record: every request received, batch created and token billed, appended before answers.

One JSON object a line in `ledger.jsonl`. Keys are recorded as a fingerprint, never themselves;
of headers only the names.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from batchpond.simulators.faults import Op
from batchpond.simulators.wire import Request

FINGERPRINT_LENGTH = 12


def fingerprint(key: str) -> str:
    """Return what stands for a key in the ledger: the start of its SHA-256."""
    return hashlib.sha256(key.encode("utf-8")).hexdigest()[:FINGERPRINT_LENGTH]


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """One batch ever created, whatever became of it; `first_custom_id` where create tells it."""

    batch_id: str
    provider: str
    created_at: float
    key: str
    input_file_id: str
    metadata: dict[str, str] | None
    call: int
    first_custom_id: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """What one batch (or one live call, with its own id) was charged for."""

    batch_id: str
    provider: str
    model: str
    n_requests: int
    input_tokens: int
    output_tokens: int


class Ledger:
    """An append-only file with its totals in memory; a line cut by a crash is dropped on opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: Counter[str] = Counter()
        self.batches: dict[str, BatchEntry] = {}
        self.bills: dict[str, Bill] = {}
        self.hosts: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.n_requests = 0
        self._replay()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def request(self, request: Request, key: str, provider: str, op: Op, now_s: float) -> int:
        """Record a request made with `key` on arrival; return its number."""
        self._append(
            {
                "kind": "request",
                "n": self.n_requests + 1,
                "at": now_s,
                "provider": provider,
                "op": op,
                "method": request.method,
                "path": request.path,
                "query": {name: value for name, value in request.query.items() if name != "key"},
                "host": request.headers.get("host", ""),
                "key": fingerprint(key) if key else None,
                "header_names": sorted(request.headers),
            }
        )
        return self.n_requests

    def answered(self, n: int, status: int | None, faults: tuple[str, ...]) -> None:
        """Record how the `n`-th request was answered; a status of None is no answer at all."""
        self._append({"kind": "answer", "n": n, "status": status, "faults": faults})

    def created(self, entry: BatchEntry) -> None:
        """Record a batch, once."""
        if entry.batch_id not in self.batches:
            self._append({"kind": "created", **asdict(entry)})

    def billed(self, bill: Bill) -> None:
        """Record a charge, once per batch."""
        if bill.batch_id not in self.bills:
            self._append({"kind": "billed", **asdict(bill)})

    def summary(self) -> dict[str, Any]:
        """Return the totals, every batch and every bill, ready for JSON."""
        bills = list(self.bills.values())
        return {
            "n_requests": self.n_requests,
            "calls": dict(self.calls),
            "hosts": dict(self.hosts),
            "keys": dict(self.keys),
            "batches": [asdict(entry) for entry in self.batches.values()],
            "bills": [asdict(bill) for bill in bills],
            "billed": {
                "n_requests": sum(bill.n_requests for bill in bills),
                "input_tokens": sum(bill.input_tokens for bill in bills),
                "output_tokens": sum(bill.output_tokens for bill in bills),
            },
        }

    def _append(self, record: dict[str, Any]) -> None:
        # One write call: a killed process leaves the whole line or, at worst, a cut last one.
        os.write(self._fd, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        self._fold(record)

    def _fold(self, record: dict[str, Any]) -> None:
        kind = record.pop("kind")
        if kind == "request":
            self.n_requests = record["n"]
            self.calls[f"{record['provider']}.{record['op']}"] += 1
            self.hosts[record["host"]] += 1
            if record["key"]:
                self.keys[record["key"]] += 1
        elif kind == "created":
            entry = BatchEntry(**record)
            self.batches[entry.batch_id] = entry
        elif kind == "billed":
            bill = Bill(**record)
            self.bills[bill.batch_id] = bill

    def _replay(self) -> None:
        if not self.path.exists():
            return
        good = 0
        with self.path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._fold(orjson.loads(line))
                good += len(line)
        if good < self.path.stat().st_size:
            os.truncate(self.path, good)
