"""A small lake for tests, written through the real store: plan, shards, events, raw lines, responses, judgments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from batchpond import ids
from batchpond.lake.events import EventLog
from batchpond.lake.manifest import Damage
from batchpond.lake.records import (
    Created,
    Downloaded,
    Event,
    Intent,
    OfAttempt,
    Planned,
    Sent,
    Sharded,
    Status,
    Uploaded,
    Verified,
)
from batchpond.lake.schemas import (
    IMPORTED_JUDGMENTS,
    JUDGMENTS,
    PLAN,
    RAW,
    RESPONSES,
    SHARD_REQUESTS,
    STUDIES,
    TABLES,
    Table,
)
from batchpond.lake.store import Store
from batchpond.model import Mode, ShardKind
from batchpond.views import database
from tests.rigs.clock import ManualClock
from tests.rigs.events import fact

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PARSER = "pairwise-1-test"

# A line that answers its request, and one that does not.
OK: dict[str, Any] = {"outcome": "decided", "verdict": "first", "text": "yes", "cost_usd": 0.01}
BAD: dict[str, Any] = {"status": "errored", "outcome": "error", "error_class": "transient", "error_code": "500"}


@dataclass
class LakeBuilder:
    """Writes facts and counts files; every method publishes at once."""

    path: Path
    store: Store = field(init=False)
    clock: ManualClock = field(init=False)
    log: EventLog = field(init=False)
    n_files: int = 0

    def __post_init__(self) -> None:
        self.clock = ManualClock(START)
        self.store = Store.init(self.path, self.clock)
        self.log = EventLog(self.store)

    def rows(self, table: Table, rows: Sequence[dict[str, Any]], folder: str = "") -> None:
        """Publish rows; columns that are not given are NULL."""
        self.n_files += 1
        full = [{name: row.get(name) for name in table.schema.names} for row in rows]
        self.store.publish(table, f"{folder}f{self.n_files:06d}", full)

    def event(self, record: type[Event], **columns: Any) -> None:
        """Append one event, a second after the one before."""
        self.clock.advance(1)
        self.log.append(fact(record, **columns))

    def plan(self, rows: Sequence[dict[str, Any]], study: str = "demo", version: str = "v1") -> None:
        """Plan a study version: each row needs slot and request_id; the rest has defaults."""
        defaults = {
            "study": study, "study_version": version, "parser_id": PARSER, "task": "pairwise", "round_no": 1,
            "mode": "batch", "cell_id": "c1", "template_id": "t1", "rubric_id": "quality", "provider": "openai",
            "endpoint": "/v1/chat/completions", "request_model": "m1", "thinking": "none", "unit_id": "",
            "pair_id": "p1", "item_first": "a", "item_second": "b", "direction": "forward", "is_lo_first": True,
            "repeat_no": 1,
        }  # fmt: skip
        self.rows(PLAN, [defaults | row for row in rows], f"p_study={study}/")
        self.rows(STUDIES, [{"study": study, "study_version": version, "n_plan_rows": len(rows)}])
        self.event(Planned, study=study, study_version=version)

    def shard(self, shard_id: str, requests: Sequence[str]) -> None:
        """Record the lines of a shard."""
        rows = [
            {"shard_id": shard_id, "line_number": n, "request_id": r, "request_key": ids.request_key(r)}
            for n, r in enumerate(requests, 1)
        ]
        self.rows(SHARD_REQUESTS, rows, "p_provider=openai/")

    def retry(self, shard_id: str, requests: Sequence[str], study: str = "demo", version: str = "v1") -> None:
        """Record a shard of requests that are to be asked again, and send nothing."""
        self.shard(shard_id, requests)
        self.event(
            Sharded, shard_id=shard_id, shard_kind=ShardKind.RETRY, study=study, study_version=version, mode=Mode.BATCH,
            provider="openai", endpoint="/v1/chat/completions", request_model="m1", n_requests=len(requests),
            size_bytes=100, input_tokens=100,
        )  # fmt: skip

    def intent(self, attempt_id: str, shard_id: str, n_requests: int, **columns: Any) -> None:
        """Record the intent to send an attempt."""
        defaults: dict[str, Any] = {
            "shard_kind": "first", "ordinal": 1, "study": "demo", "study_version": "v1", "provider": "openai",
            "endpoint": "/v1/chat/completions", "request_model": "m1", "origin": "simulated", "host": "127.0.0.1",
            "cost_expected_usd": 0.5, "cost_max_usd": 1.0, "input_tokens": 100,
        }  # fmt: skip
        self.event(Intent, attempt_id=attempt_id, shard_id=shard_id, n_requests=n_requests, **(defaults | columns))

    def sent(self, attempt_id: str, shard_id: str, requests: Sequence[str], **columns: Any) -> None:
        """Record a shard and an attempt for it, up to the provider's acknowledgement."""
        self.shard(shard_id, requests)
        self.again(attempt_id, shard_id, len(requests), **columns)

    def again(self, attempt_id: str, shard_id: str, n_requests: int, **columns: Any) -> None:
        """Record an attempt for a shard that stands already, up to the provider's acknowledgement."""
        self.intent(attempt_id, shard_id, n_requests, **columns)
        self.event(Uploaded, attempt_id=attempt_id, file_id=f"file-{attempt_id}")
        self.event(Sent, attempt_id=attempt_id, ordinal=1)
        self.event(
            Created, attempt_id=attempt_id, batch_id=f"batch-{attempt_id}", state="queued",
            provider_status="validating", provider_created_at=START,
        )  # fmt: skip

    def ended(
        self, attempt_id: str, state: str = "completed", record: type[OfAttempt] = Verified, **columns: Any
    ) -> None:
        """Record the end of a batch and that its lines were read."""
        self.event(
            Status, attempt_id=attempt_id, batch_id=f"batch-{attempt_id}", state=state, provider_status=state,
            **columns,
        )  # fmt: skip
        self.event(Downloaded, attempt_id=attempt_id, file_id=f"out-{attempt_id}", n_lines=1)
        self.event(record, attempt_id=attempt_id)

    def lines(self, attempt_id: str, lines: Sequence[dict[str, Any]]) -> None:
        """Publish an attempt's raw lines, responses and judgments; verdict and outcome go to the judgment."""
        where = {
            "provider": "openai", "batch_id": f"batch-{attempt_id}", "attempt_id": attempt_id,
            "file_id": f"out-{attempt_id}", "file_role": "output",
        }  # fmt: skip
        raw, responses, judgments = [], [], []
        for number, line in enumerate(lines, 1):
            place = where | {"line_number": number}
            request = line.get("request_id")
            raw.append(place | {"file_sha256": "0" * 64, "line": "{}"})
            custom_id = ids.custom_id(attempt_id, request) if request else line.get("custom_id")
            defaults = {"match": "matched", "status": "succeeded", "custom_id": custom_id, "origin": "simulated"}
            responses.append(place | defaults | line)
            if "outcome" in line:
                judgments.append(
                    place | {"request_id": request, "parser_id": line.get("parser_id", PARSER)}
                    | {"outcome": line["outcome"]}
                    | {name: line.get(name) for name in ("verdict", "label", "score", "confidence", "explanation")}
                )  # fmt: skip
        self.rows(RAW, raw, "p_provider=openai/p_day=2026-01-02/")
        self.rows(RESPONSES, responses, "p_reader=openai-1/")
        self.rows(JUDGMENTS, judgments, f"p_parser={PARSER}/")

    def imported(self, rows: Sequence[dict[str, Any]]) -> None:
        """Publish imported judgments."""
        defaults = dict.fromkeys(("template_id", "rubric_id", "provider", "request_model", "thinking"), "unspecified")
        base = {"study": "imported", "task": "pairwise", "unit_id": "", "repeat_no": 1} | defaults
        self.rows(IMPORTED_JUDGMENTS, [base | {"import_key": f"k{n}"} | row for n, row in enumerate(rows)])

    def build(self) -> list[Damage]:
        """Write the lens."""
        return database.build(self.store.path, database.listed(self.store.path))

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Write the lens and open it."""
        self.build()
        return database.connect(self.store.path)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Write the lens and return a query's rows."""
        with self.connect() as connection:
            rows: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
            return rows


def table_names() -> list[str]:
    """Return the names of the lake's tables."""
    return list(TABLES)
