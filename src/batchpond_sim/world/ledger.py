"""The independent record: every request received, batch created and token billed, appended before answers.

One JSON object a line in `ledger.jsonl`. Keys are recorded as a fingerprint, never themselves;
of headers only the names. A live call is one short line, written when its answer is known; in memory
live calls are counted by what they asked, so that a hundred thousand of them are a few megabytes.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.faults.faults import Op
from batchpond_sim.host.wire import Request

FINGERPRINT_LENGTH = 12
BODIES_MAX = 1_000_000


@lru_cache(maxsize=1024)
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


def body_id(path: str, body: bytes) -> str:
    """Return what stands for a live call's body in the ledger: the same for equal JSON sent to the same path."""
    try:
        canonical = orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
    except orjson.JSONDecodeError:
        canonical = body  # what is no JSON stands for itself
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass") + b"\n" + canonical, digest_size=12).hexdigest()


@dataclass(slots=True)
class LiveCount:
    """How often one body was asked live, run and billed, and answered with HTTP 200 (a spoiled answer included)."""

    n_asked: int = 0
    n_billed: int = 0
    n_answered: int = 0

    def add(self, *, is_billed: bool, is_answered: bool) -> None:
        """Count a call."""
        self.n_asked += 1
        self.n_billed += is_billed
        self.n_answered += is_answered


@dataclass(slots=True)
class LiveCall:
    """A live call under way; `billed` is its input and output tokens once it has been run."""

    record: dict[str, Any]
    model: str = ""
    body: str = ""
    tokens_guessed: int = 0
    billed: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """What one batch was charged for."""

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
        self.live = LiveCount()
        self.live_bodies: dict[str, LiveCount] = {}
        self.live_tokens: tuple[int, int] = (0, 0)
        self._open: dict[int, LiveCall] = {}
        self._replay()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def request(self, request: Request, key: str, provider: str, op: Op, now_s: float) -> int:
        """Record a request made with `key` on arrival (a live one: in memory); return its number."""
        if op is Op.LIVE:
            return self._live_request(request, key, provider, now_s)
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

    def _live_request(self, request: Request, key: str, provider: str, now_s: float) -> int:
        n = self.n_requests + 1
        record: dict[str, Any] = {
            "kind": "live",
            "n": n,
            "at": now_s,
            "provider": provider,
            "op": Op.LIVE,
            "path": request.path,
            "host": request.headers.get("host", ""),
            "key": fingerprint(key) if key else None,
        }
        self._open[n] = LiveCall(record)
        self._count(record)
        return self.n_requests

    def live_call(self, n: int) -> LiveCall:
        """Return the live call under way that is the `n`-th request."""
        return self._open[n]

    def answered(self, n: int, status: int | None, faults: tuple[str, ...]) -> None:
        """Record how the `n`-th request was answered; a status of None is no answer at all."""
        call = self._open.pop(n, None)
        if call is None:
            self._append({"kind": "answer", "n": n, "status": status, "faults": faults})
            return
        end = {"model": call.model, "body": call.body, "status": status, "billed": call.billed, "faults": faults}
        record = call.record | end
        self._write(record)
        self._count_live(record)

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
                "n_requests": sum(bill.n_requests for bill in bills) + self.live.n_billed,
                "input_tokens": sum(bill.input_tokens for bill in bills) + self.live_tokens[0],
                "output_tokens": sum(bill.output_tokens for bill in bills) + self.live_tokens[1],
            },
            "live": self.live_summary(),
        }

    def live_summary(self) -> dict[str, int]:
        """Return the totals of live calls: `n_duplicates` is how many bills are a body's second, third, ..."""
        billed = [count.n_billed for count in self.live_bodies.values() if count.n_billed]
        return {
            **asdict(self.live),
            "n_bodies": len(self.live_bodies),
            "n_bodies_billed": len(billed),
            "n_duplicates": sum(billed) - len(billed),
            "n_billed_most": max(billed, default=0),
            "input_tokens": self.live_tokens[0],
            "output_tokens": self.live_tokens[1],
        }

    def live_rows(self, n_billed_least: int = 0) -> Iterator[dict[str, Any]]:
        """Yield each body that was billed so often, with its counts, in the order in which they came."""
        for body, count in list(self.live_bodies.items()):
            if count.n_billed >= n_billed_least:
                yield {"body": body, **asdict(count)}

    def _append(self, record: dict[str, Any]) -> None:
        self._write(record)
        self._fold(record)

    def _write(self, record: dict[str, Any]) -> None:
        # One write call: a killed process leaves the whole line or, at worst, a cut last one.
        os.write(self._fd, orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def _count(self, record: dict[str, Any]) -> None:
        # Live lines are written when calls end, so that a replay may meet them in another order.
        self.n_requests = max(self.n_requests, record["n"])
        self.calls[f"{record['provider']}.{record['op']}"] += 1
        self.hosts[record["host"]] += 1
        if record["key"]:
            self.keys[record["key"]] += 1

    def _count_live(self, record: dict[str, Any]) -> None:
        is_billed = record["billed"] is not None
        is_answered = is_billed and record["status"] == 200
        self.live.add(is_billed=is_billed, is_answered=is_answered)
        if is_billed:
            self.live_tokens = (self.live_tokens[0] + record["billed"][0], self.live_tokens[1] + record["billed"][1])
        body = record["body"]
        if not body:
            return  # the client went away before it had sent one
        # Beyond the most bodies that are told apart, all others are counted as one.
        name = body if body in self.live_bodies or len(self.live_bodies) < BODIES_MAX else "others"
        self.live_bodies.setdefault(name, LiveCount()).add(is_billed=is_billed, is_answered=is_answered)

    def _fold(self, record: dict[str, Any]) -> None:
        kind = record.pop("kind")
        if kind == "request":
            self._count(record)
        elif kind == "live":
            self._count(record)
            self._count_live(record)
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
