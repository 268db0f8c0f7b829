"""What Gemini's files and batches say, made uniform: pure, and total over any JSON."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from batchpond import fields, ids
from batchpond.model import BatchError, BatchState, RemoteBatch, RemoteFile
from batchpond.providers.gemini.lines import is_blank, read_status
from batchpond.text import redact

INLINE: Final = "inline:"
# By the word after BATCH_STATE_ or JOB_STATE_ (google-genai 3.4 `_transformers.py` maps one to the other).
_STATES: Final = {
    "PENDING": BatchState.QUEUED,
    "QUEUED": BatchState.QUEUED,
    "RUNNING": BatchState.RUNNING,
    "PAUSED": BatchState.RUNNING,
    "UPDATING": BatchState.RUNNING,
    "CANCELLING": BatchState.CANCELLING,
    "SUCCEEDED": BatchState.COMPLETED,
    "PARTIALLY_SUCCEEDED": BatchState.COMPLETED,
    "FAILED": BatchState.FAILED,
    "CANCELLED": BatchState.CANCELLED,
    "EXPIRED": BatchState.EXPIRED,
}
_HAS_ANSWERS: Final = frozenset({BatchState.COMPLETED, BatchState.CANCELLED})
_EXPIRES_AFTER: Final = timedelta(hours=48)
_INLINE_MAX: Final = 1_000_000


def operation_name(name: str) -> str:
    """Return a batch's name with its `batches/`."""
    return name if name.startswith("batches/") else f"batches/{name}"


def file_of(value: object) -> RemoteFile | None:
    """Return a file object made uniform, None when it has no name."""
    found = fields.mapping(value)
    name = fields.identifier(found.get("name"))
    if name is None:
        return None
    size_bytes, created_at = fields.count(found.get("sizeBytes")), fields.moment(found.get("createTime"))
    return RemoteFile(name, fields.text(found.get("displayName")) or "", size_bytes, created_at)


def read_batch(value: object) -> RemoteBatch | None:
    """Return a batch's operation made uniform, None when it has no name; an unknown state is RUNNING.

    `expires_at` is the documented 48 hours after creation: Google's answers have no such time.
    """
    found = fields.mapping(value)
    metadata = fields.mapping(found.get("metadata"))
    name = fields.identifier(found.get("name")) or fields.identifier(metadata.get("name"))
    if name is None:
        return None
    status = fields.word(metadata.get("state")) or ""
    state = _state(status, found)
    created_at = fields.moment(metadata.get("createTime"))
    stats = metadata.get("batchStats")
    display_name = fields.text(metadata.get("displayName")) or ""
    return RemoteBatch(
        batch_id=name,
        state=state,
        provider_status=status,
        seen=_without_answers(found),
        created_at=created_at,
        expires_at=_expiry(created_at),
        ended_at=fields.moment(metadata.get("endTime")) if state.is_terminal else None,
        n_total=_count(stats, "requestCount"),
        n_completed=_count(stats, "successfulRequestCount"),
        n_failed=_count(stats, "failedRequestCount"),
        input_file_id=fields.identifier(fields.mapping(metadata.get("inputConfig")).get("fileName")),
        output_file_id=_output(found, name, state),
        token=display_name if display_name.startswith(f"{ids.TOKEN_PREFIX}-") else None,
        errors=_errors(found.get("error")),
    )


def responses_file(value: object) -> str | None:
    """Return the name of the file that a batch's answers are in."""
    for output in _outputs(value):
        if name := fields.identifier(output.get("responsesFile")):
            return name
    return None


def inline_responses(value: object) -> list[Any] | None:
    """Return the answers that a batch carries itself, None when it carries none."""
    for output in _outputs(value):
        answers = output.get("inlinedResponses")
        if isinstance(answers, dict):
            answers = answers.get("inlinedResponses", [])
        if isinstance(answers, list):
            return answers[:_INLINE_MAX]
    return None


def _outputs(value: object) -> tuple[dict[str, Any], dict[str, Any]]:
    found = fields.mapping(value)
    return fields.mapping(found.get("response")), fields.mapping(fields.mapping(found.get("metadata")).get("output"))


def _output(found: dict[str, Any], name: str, state: BatchState) -> str | None:
    """Return the result file's name, or that of the inline answers, which a listing does not show.

    Files are named for batches that ended without success too, if Google names one. An expired batch
    has none.
    """
    if not state.is_terminal:
        return None
    if output := responses_file(found):
        return output
    return INLINE + name if state in _HAS_ANSWERS or inline_responses(found) else None


def _state(status: str, found: dict[str, Any]) -> BatchState:
    """Return the state; where Google leaves the word out, `done` and what is beside it tell."""
    word = status.strip().upper().removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
    if word not in ("", "UNSPECIFIED"):
        return _STATES.get(word, BatchState.RUNNING)
    if found.get("done") is not True:
        return BatchState.RUNNING
    if is_blank(found.get("error")):
        return BatchState.COMPLETED if isinstance(found.get("response"), dict) else BatchState.RUNNING
    return BatchState.CANCELLED if read_status(found.get("error"))[1].code == "CANCELLED" else BatchState.FAILED


def _expiry(created_at: datetime | None) -> datetime | None:
    try:
        return None if created_at is None else created_at + _EXPIRES_AFTER
    except OverflowError:
        return None


def _count(stats: object, name: str) -> int | None:
    """Return a count of `batchStats`; zeros are left out there, so an absent one is 0."""
    return fields.count(stats.get(name, 0)) if isinstance(stats, dict) and stats else None


def _errors(error: object) -> tuple[BatchError, ...]:
    if is_blank(error):
        return ()
    _, read = read_status(error)
    return (BatchError(read.code, redact(read.message)),)


def _without_answers(found: dict[str, Any]) -> dict[str, Any]:
    """Return an operation without answers and requests, which may be millions of tokens long."""
    kept = dict(found)
    if isinstance(response := kept.get("response"), dict) and "inlinedResponses" in response:
        kept["response"] = response | {"inlinedResponses": "left out"}
    metadata = kept.get("metadata")
    if not isinstance(metadata, dict):
        return kept
    output, given = metadata.get("output"), metadata.get("inputConfig")
    if isinstance(output, dict) and "inlinedResponses" in output:
        metadata = metadata | {"output": output | {"inlinedResponses": "left out"}}
    if isinstance(given, dict) and "requests" in given:
        metadata = metadata | {"inputConfig": given | {"requests": "left out"}}
    return kept | {"metadata": metadata}
