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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from batchpond.clock import Clock, SystemClock
from batchpond.errors import UsageError
from batchpond_sim.faults.faults import Fault, Op, Stage, Value, parse_fault
from batchpond_sim.host.wire import Request
from batchpond_sim.judges.judge import Panel
from batchpond_sim.judges.settings import parse_judge
from batchpond_sim.world.ledger import Ledger
from batchpond_sim.world.limits import Limiter, parse_limit

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


@dataclass(frozen=True, slots=True)
class Call:
    """One counted request with the faults that hit it."""

    n: int
    op: Op
    op_n: int
    faults: tuple[Fault, ...]

    def at(self, stage: Stage) -> tuple[Fault, ...]:
        """Return the faults that take hold at `stage`."""
        return tuple(fault for fault in self.faults if fault.is_at(stage))

    def value(self, stage: Stage, kind: str) -> tuple[bool, Value]:
        """Return whether a fault of `kind` hits at `stage`, and its argument."""
        for fault in self.at(stage):
            if fault.kind == kind:
                return True, fault.value
        return False, None

    def has(self, stage: Stage, kind: str) -> bool:
        """Return whether a fault of `kind` hits at `stage`."""
        return self.value(stage, kind)[0]


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
        self._clock = clock or SystemClock()
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

    # -- time -------------------------------------------------------------------------------

    def _real_s(self) -> float:
        return self._clock.now().timestamp()

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
            raise UsageError(f"cannot advance by {seconds} seconds", hint="time only goes forward: give 0 or more")
        with self.lock:
            self._anchor_s += seconds
            self._save()
            return self.now_s()

    # -- faults, judges and limits --------------------------------------------------------------------

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

    # -- requests -----------------------------------------------------------------------------

    def arrive(self, request: Request, key: str, provider: str, op: Op) -> Call:
        """Record a request made with `key` and return it with its faults."""
        with self.lock:
            n = self.ledger.request(request, key, provider, op, self.now_s())
            op_n, n_any = self._calls_of(op), self._calls_of(Op.ANY)
            return Call(n, op, op_n, tuple(fault for fault in self.faults if fault.hits(op, op_n, n_any)))

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

    # -- the folder ---------------------------------------------------------------------------

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
            raise UsageError(f"{path} was written by another version", hint="give --state another folder")
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


@contextmanager
def world_at(path: Path, settings: Settings | None = None, clock: Clock | None = None) -> Iterator[World]:
    """Open a world for the length of a with block."""
    world = World(path, settings, clock)
    try:
        yield world
    finally:
        world.close()
