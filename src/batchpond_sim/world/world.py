"""A simulated provider's world: seed, clock, faults, judges, ledger and a folder that survives kill -9.

    DIR/world.json         seed, clock anchors, faults and judges added while running
    DIR/qualities.jsonl    the registered sample texts
    DIR/ledger.jsonl       the independent record
    DIR/<provider>/...     one JSON file per object, blobs beside them

Whatever an answer depends on is in the folder before the answer leaves.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim import Clock, SimulatorError
from batchpond_sim.host.messages import Request
from batchpond_sim.judges.judge import Panel, parse_judge
from batchpond_sim.world.faults import Call, Fault, Op, Value, parse_fault
from batchpond_sim.world.limits import Limiter, parse_limit

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


FORMAT = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """How a world behaves.

    `latency_s` is the range of a batch's total time in virtual seconds, `speed` how many virtual
    seconds pass in a real one. `keys` maps accepted keys to projects; empty means that any key
    is good for one project. `enqueued_limits` maps model patterns to prompt tokens in queue.
    `live_limits` are rate limits of live calls, such as `gpt-5*:rpm=600,tpm=200000`; the first that
    matches a model holds. `live_latency_s` is the range of what a live answer takes, in the client's
    seconds. `storage_url` is where simulated jobs of Vertex AI read and write instead of the simulated
    Cloud Storage. `seed` None keeps the seed of an existing folder (0 in a new one).
    """

    seed: int | None = None
    latency_s: tuple[float, float] = (0.2, 2.0)
    cancel_s: float = 0.2
    speed: float = 1.0
    faults: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    enqueued_limits: Mapping[str, int] = field(default_factory=dict)
    storage_url: str = ""
    live_limits: tuple[str, ...] = ()
    live_latency_s: tuple[float, float] = (0.0, 0.0)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that a killed process leaves the old or the new bytes."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    part.write_bytes(data)
    part.replace(path)


class World:
    """All state of one simulated provider; every method may be called from any thread."""

    def __init__(self, path: Path, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.path = path
        self.settings = settings or Settings()
        self.lock = threading.RLock()
        self._clock = clock
        self._fixed_faults = tuple(parse_fault(spec) for spec in self.settings.faults)
        for spec in self.settings.judges:
            parse_judge(spec)
        self._fixed_limits = tuple(parse_limit(spec) for spec in self.settings.live_limits)
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        saved = self._load()
        wanted = self.settings.seed
        self.seed: int = saved.get("seed", 0) if wanted is None else wanted
        self._anchor_real_s: float = saved.get("anchor_real_s", self._real_s())
        self._anchor_s: float = saved.get("anchor_s", self._anchor_real_s)
        self._speed: float = saved.get("speed", self.settings.speed)
        self._set_speed(self.settings.speed)
        self._added_faults: list[tuple[str, int]] = [(spec, base) for spec, base in saved.get("faults", [])]
        self._added_judges: list[str] = list(saved.get("judges", []))
        self._added_limits: list[str] = list(saved.get("limits", []))
        self.limiter = Limiter()
        self._use_limits()
        self.panel = Panel(self.seed, path / "qualities.jsonl")
        self.ledger = Ledger(path / "ledger.jsonl")
        self.faults: tuple[Fault, ...] = ()
        self._use()
        self._save()

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def _real_s(self) -> float:
        return (datetime.now(UTC) if self._clock is None else self._clock.now()).timestamp()

    def now_s(self) -> float:
        """Return virtual Unix seconds; they go on while the simulator is down."""
        return self._anchor_s + (self._real_s() - self._anchor_real_s) * self._speed

    @property
    def speed(self) -> float:
        """How many virtual seconds pass in a real one."""
        return self._speed

    def _set_speed(self, speed: float) -> None:
        if speed != self._speed:
            self._anchor_s, self._anchor_real_s = self.now_s(), self._real_s()
            self._speed = speed

    def advance(self, seconds: float) -> float:
        """Move virtual time forward, and return it."""
        if not seconds >= 0:
            raise SimulatorError(f"cannot advance by {seconds} seconds", hint="time only goes forward: give 0 or more")
        with self.lock:
            self._anchor_s += seconds
            self._save()
            return self.now_s()

    def add_fault(self, spec: str) -> None:
        """Add a fault that counts calls (for `lines`: batches) from now on."""
        with self.lock:
            fault = parse_fault(spec)
            self._added_faults.append((spec, self._calls_of(fault.op)))
            self._use()
            self._save()

    def clear_faults(self) -> None:
        """Remove every fault, those given at the start included (until the next start)."""
        with self.lock:
            self._added_faults, self._fixed_faults = [], ()
            self._use()
            self._save()

    def add_judge(self, spec: str) -> None:
        """Add a judge that takes precedence over those already there."""
        with self.lock:
            parse_judge(spec)
            self._added_judges.append(spec)
            self._use()
            self._save()

    def add_limit(self, spec: str) -> None:
        """Add a rate limit of live calls that takes precedence over those already there; all buckets are refilled."""
        with self.lock:
            parse_limit(spec)
            self._added_limits.append(spec)
            self._use_limits()
            self._save()

    def clear_limits(self) -> None:
        """Remove every rate limit, those given at the start included (until the next start)."""
        with self.lock:
            self._added_limits, self._fixed_limits = [], ()
            self._use_limits()
            self._save()

    def _use_limits(self) -> None:
        added = (parse_limit(spec) for spec in reversed(self._added_limits))
        self.limiter = Limiter((*added, *self._fixed_limits))

    def _use(self) -> None:
        added = tuple(parse_fault(spec).shifted(base) for spec, base in self._added_faults)
        self.faults = self._fixed_faults + added
        specs = (*reversed(self._added_judges), *self.settings.judges)
        self.panel.judges = tuple(parse_judge(spec) for spec in specs)

    def _calls_of(self, op: Op) -> int:
        if op is Op.LINES:
            return len(self.ledger.batches)
        if op is Op.ANY:
            return sum(self.ledger.calls.values())
        return sum(n for name, n in self.ledger.calls.items() if name.split(".", 1)[1] == op)

    def arrive(self, request: Request, key: str, provider: str, op: Op) -> Call:
        """Record a request made with `key` and return it with its faults."""
        with self.lock:
            n = self.ledger.request(request, key, provider, op, self.now_s())
            op_n, n_any = self._calls_of(op), self._calls_of(Op.ANY)
            return Call(n, op, op_n, tuple(fault for fault in self.faults if fault.hits(op, op_n, n_any)))

    def depart(self, call: Call, status: int | None) -> None:
        """Record how a request was answered; a status of None is a connection that was broken on purpose."""
        with self.lock:
            self.ledger.answered(call.n, status, tuple(fault.spec for fault in call.faults))

    def line_faults(self, batch_n: int) -> list[tuple[str, Value]]:
        """Return the row mutations of the `batch_n`-th batch ever created."""
        return [(fault.kind, fault.value) for fault in self.faults if fault.hits(Op.LINES, batch_n, batch_n)]

    def project(self, key: str, default: str = "proj_simulated") -> str | None:
        """Return the project a key belongs to, None when the key is not good.

        It is `default` where any key is good.
        """
        if not key:
            return None
        return self.settings.keys.get(key) if self.settings.keys else default

    def draw(self, *parts: str | int) -> float:
        """Return a number in [0, 1) that depends on the seed and the parts only."""
        return int.from_bytes(self.digest(*parts)[:7], "big") / (1 << 56)

    def name(self, *parts: str | int) -> str:
        """Return 24 hex digits that depend on the seed and the parts only."""
        return self.digest(*parts).hex()[:24]

    def digest(self, *parts: str | int) -> bytes:
        """Return 32 bytes that depend on the seed and the parts only."""
        return hashlib.blake2b(repr((self.seed, *parts)).encode("utf-8"), digest_size=32).digest()

    def folder(self, provider: str, name: str) -> Path:
        """Return (and make) a folder for a provider's objects."""
        path = self.path / provider / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def _load(self) -> dict[str, Any]:
        path = self.path / "world.json"
        if not path.exists():
            return {}
        saved: dict[str, Any] = orjson.loads(path.read_bytes())
        if saved.get("format") != FORMAT:
            raise SimulatorError(f"{path} was written by another version", hint="give --state another folder")
        return saved

    def _save(self) -> None:
        data = {
            "format": FORMAT,
            "seed": self.seed,
            "anchor_s": self._anchor_s,
            "anchor_real_s": self._anchor_real_s,
            "speed": self._speed,
            "faults": self._added_faults,
            "judges": self._added_judges,
            "limits": self._added_limits,
        }
        write_atomically(self.path / "world.json", orjson.dumps(data, option=orjson.OPT_INDENT_2))

    def snapshot(self) -> dict[str, Any]:
        """Return the ledger and what the world is set to, ready for JSON."""
        with self.lock:
            return {
                "seed": self.seed,
                "now": self.now_s(),
                "faults": [fault.spec for fault in self.faults],
                "judges": [asdict(judge) for judge in self.panel.judges],
                "limits": [asdict(limit) for limit in self.limiter.limits],
                **self.ledger.summary(),
            }
