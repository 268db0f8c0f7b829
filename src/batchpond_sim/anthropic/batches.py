"""The batches of a simulated Anthropic account, their rows and how they look.

    in_progress -> ended            in_progress -> canceling -> ended

A batch of nothing but refused requests has ended like any other; there is no failed state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchpond_sim.anthropic.answers import VERSION, Conditions, answer
from batchpond_sim.faults.faults import Value, number
from batchpond_sim.judges.judge import Panel
from batchpond_sim.judges.speech import RowAnswer
from batchpond_sim.shared.batches import Account, Batch, End
from batchpond_sim.shared.rows import (
    NotRun,
    Outputs,
    RowCount,
    RowPlan,
    Said,
    Shape,
    dump_row,
    load_row,
    request_key,
    write_rows,
)
from batchpond_sim.world.world import World

PROVIDER = "anthropic"
WINDOW_S = 86_400
RETENTION_S = 29 * 86_400
SHAPE = Shape("custom_id", b'"id":"msg_', ("result", "message", "usage"), (b'"text":"', b'"thinking":"'))
_NOT_RUN = {NotRun.EXPIRED: "expired", NotRun.CANCELLED: "canceled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch(Batch):
    """A batch whose requests came with it; they are kept in a blob until it has ended."""

    version: str = VERSION
    has_results: bool = False
    n_results_404: int = 0

    def status(self) -> str:
        """Return the status word."""
        if self.is_ended:
            return "ended"
        return "in_progress" if self.cancel_s is None else "canceling"

    def is_archived(self, now_s: float) -> bool:
        """Return whether the results are gone for their age."""
        return now_s >= self.created_s + RETENTION_S


@dataclass(frozen=True, slots=True)
class AnthropicSpeaker:
    """Answers a batch's requests as rows of its result stream; `fail` makes all of them errors."""

    batch_id: str
    version: str
    panel: Panel
    fail: str | None = None
    cached: set[str] = field(default_factory=set)

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> Said:
        """Return the row of the `i`-th request."""
        if self.fail is not None:
            kind = self.fail if self.fail.endswith("_error") else "invalid_request_error"
            said = RowAnswer(400, {"type": kind, "message": f"The request failed: {self.fail}."}, is_checked=False)
        else:
            conditions = Conditions(self.version, True, self.cached)
            said = answer(body, request_key(custom_id), self.panel, conditions, force)
        if said.is_success:
            return Said.of(_row(custom_id, {"type": "succeeded", "message": said.body}), said)
        error = said.body if said.is_checked else said.body | {"details": {"error_visibility": "user_facing"}}
        request_id = f"workerreq_{self.batch_id[-12:]}{i:06x}" if said.is_checked else None
        result = {"type": "errored", "error": {"type": "error", "error": error, "request_id": request_id}}
        return Said.of(_row(custom_id, result), said)

    def not_run(self, i: int, custom_id: str, why: NotRun) -> bytes:  # noqa: ARG002
        """Return the row of a request that was not run."""
        return _row(custom_id, {"type": _NOT_RUN[why]})


def _row(custom_id: str, result: dict[str, Any]) -> bytes:
    return dump_row({"custom_id": custom_id, "result": result})


class AnthropicAccount(Account[MessageBatch]):
    """All batches."""

    def __init__(self, world: World) -> None:
        super().__init__(world, PROVIDER, MessageBatch, WINDOW_S)

    def requests_blob(self, batch_id: str) -> Path:
        """Return where a batch's requests are until it has ended."""
        return self.blob(f"{batch_id}.requests")

    def results_blob(self, batch_id: str) -> Path:
        """Return where a batch's results are once it has ended."""
        return self.blob(f"{batch_id}.results")

    def write(self, batch: MessageBatch, plan: RowPlan) -> RowCount:
        """Write the result stream."""
        fail = batch.effects.get("fail")
        speaker = AnthropicSpeaker(batch.id, batch.version, self.world.panel, fail if isinstance(fail, str) else None)
        return write_rows(self._requests(batch), Outputs(self.part(batch, "output"), None, SHAPE), plan, speaker)

    def _requests(self, batch: MessageBatch) -> Iterator[tuple[str, dict[str, Any]]]:
        with self.requests_blob(batch.id).open("rb") as lines:
            for line in lines:
                request = load_row(line)
                yield request["custom_id"], request["params"]

    def publish(self, batch: MessageBatch) -> MessageBatch:
        """Make the result stream available, unless a fault withholds it."""
        if "expire_bare" in batch.effects or "empty_output" in batch.effects:
            return batch
        part, results = self.part(batch, "output"), self.results_blob(batch.id)
        if part.exists():
            part.replace(results)
        n_404 = int(number(batch.effects.get("results_404")))
        return replace(batch, has_results=results.exists(), n_results_404=n_404)

    def clear(self, batch: MessageBatch) -> None:
        """Remove the parts of a batch, and the requests of an ended one."""
        super().clear(batch)
        if batch.is_ended:
            self.requests_blob(batch.id).unlink(missing_ok=True)

    def drop(self, batch: MessageBatch) -> None:
        """Delete an ended batch with its results."""
        super().drop(batch)
        self.results_blob(batch.id).unlink(missing_ok=True)


def timestamp(seconds: float) -> str:
    """Return Unix seconds as the API writes times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def batch_view(batch: MessageBatch, now_s: float, host: str, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a batch as the API shows it, or as `faults` make it look."""
    is_ended = batch.is_ended and "regress" not in faults
    status = batch.status() if is_ended or not batch.is_ended else "in_progress"
    created_s = batch.created_s + number(faults.get("clock_skew"))
    has_results = is_ended and batch.has_results and not batch.is_archived(now_s)
    url = f"http://{host}/anthropic/v1/messages/batches/{batch.id}/results"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": str(faults["status_word"]) if "status_word" in faults else status,
        "request_counts": _counts(batch, now_s, is_ended, faults),
        "ended_at": timestamp(batch.done_s) if is_ended else None,
        "created_at": timestamp(created_s),
        "expires_at": timestamp(created_s + WINDOW_S),
        "archived_at": timestamp(batch.created_s + RETENTION_S) if batch.is_archived(now_s) else None,
        "cancel_initiated_at": None if batch.cancel_s is None else timestamp(batch.cancel_s),
        "results_url": url if has_results else "" if "error_file_empty_string" in faults else None,
    }


def _counts(batch: MessageBatch, now_s: float, is_ended: bool, faults: Mapping[str, Value]) -> dict[str, Any] | None:
    if "counts_null" in faults:
        return None
    share = 1.0 if is_ended else batch.share_done(now_s)
    if "counts_late" in faults and not is_ended:
        share = 0.0
    succeeded, errored = int(batch.n_completed * share), int(batch.n_failed * share)
    counts: dict[str, Any] = {"processing": 0, "succeeded": succeeded, "errored": errored, "canceled": 0, "expired": 0}
    rest = batch.n_total - succeeded - errored
    if not is_ended:
        counts["processing"] = rest
    elif batch.end == End.CANCELLED:
        counts["canceled"] = rest
    else:
        counts["expired"] = rest
    if "counts_wrong" in faults:
        counts |= {"succeeded": 0 if succeeded == 1 else 1, "errored": 0}
    return {name: str(n) for name, n in counts.items()} if "counts_text" in faults else counts
