"""The import of a job's input: every line a row of one table, or the whole job fails.

What a table's column may be is BigQuery's: one type, no null, no empty record, a plain name, 15 levels at most.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from batchpond_sim.gemini.answers import Family, answer, known_family
from batchpond_sim.judges.judge import Panel
from batchpond_sim.shared.batches import Account, Batch, End, RowsError
from batchpond_sim.shared.google import timestamp
from batchpond_sim.shared.rows import (
    AnsweredRow,
    NotRun,
    Outputs,
    RowCount,
    RowPlan,
    Shape,
    dump_row,
    loaded,
    numbered_lines,
    request_key,
    write_rows,
)
from batchpond_sim.vertex.storage import NO_AGENT, ROW_ID, NoBucketError, ObjectStore, Target
from batchpond_sim.world.faults import number
from batchpond_sim.world.world import World

FAILED_TEXT = (
    "Failed to import data. Please check 'Prepare input' section in"
    " https://cloud.google.com/vertex-ai/generative-ai/docs/multimodal/batch-prediction-gemini for the data format."
)
_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_DEPTH_MAX = 15
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class ImportFailure(RowsError):
    """Why a job's input cannot be loaded."""


class Columns:
    """The type of every key, by its path in lower case."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}

    def load(self, row: Any) -> None:
        """Take in one row; raises ImportFailure."""
        for path, name in _typed(row, "", 0):
            if self._types.setdefault(path.lower(), name) != name:
                raise ImportFailure(f"{path}: {name} and {self._types[path.lower()]}")


def _typed(value: Any, path: str, depth: int) -> list[tuple[str, str]]:
    """Return the types of a value and of all that is in it."""
    if value is None or value == {}:
        raise ImportFailure(f"{path}: null or an empty record")
    if isinstance(value, dict):
        if depth == _DEPTH_MAX:
            raise ImportFailure(f"{path}: nested too deeply")
        found = [(path, "RECORD")]
        for name, item in value.items():
            if not _NAME.fullmatch(name):
                raise ImportFailure(f"invalid field name {name!r}")
            found += _typed(item, f"{path}/{name}", depth + 1)
        return found
    if isinstance(value, list):
        return _repeated(value, path, depth)
    names = {bool: "BOOLEAN", int: "INTEGER", float: "FLOAT", str: "STRING"}
    return [(path, names[type(value)])]


def _repeated(items: list[Any], path: str, depth: int) -> list[tuple[str, str]]:
    found = []
    for item in items:
        if isinstance(item, list):
            raise ImportFailure(f"{path}: an array of arrays")
        (own, name), *below = _typed(item, path, depth)
        found += [(own, f"REPEATED {name}"), *below]
    return found


def reserialised(value: Any) -> Any:
    """Return a value beside the request as it comes back: text that looks like a number is one."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value


SHAPE = Shape("custom_id", ROW_ID, ("response", "usageMetadata"), (b'{"text":"',))


@dataclass(frozen=True, slots=True)
class VertexSpeaker:
    """Answers requests to one model; `time` is when rows say that they were made."""

    model: str
    family: Family
    panel: Panel
    time: str

    def answered(self, i: int, custom_id: str, body: dict[str, Any], force: str) -> AnsweredRow:
        """Return the row of the `i`-th request, given its line."""
        said = answer(self.model, self.family, body["request"], request_key(custom_id) or str(i), self.panel, force)
        beside = {name: reserialised(value) for name, value in body.items() if name != "request"}
        # The answer stands before the echo, so that what spoils a row's first text spoils the answer.
        row = {"status": "", "processed_time": self.time, **beside, "response": said.body, "request": body["request"]}
        if not said.is_success:
            phrase = HTTPStatus(said.status).phrase if said.status in set(HTTPStatus) else "Error"
            row["status"] = f"{phrase}: {orjson.dumps({'error': said.body}).decode()}"
            del row["response"]
        return AnsweredRow.of(dump_row(row), said)

    def not_run(self, _i: int, _custom_id: str, _why: NotRun) -> bytes | None:
        """Return nothing: only what was finished is written out."""
        return None


def lines_of(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the requests of an input file; raises ImportFailure at the first line that cannot be loaded."""
    columns, is_empty = Columns(), True
    for _, line in numbered_lines(source):
        is_empty = False
        yield _checked(line, columns)
    if is_empty:
        raise ImportFailure("no rows")


def _checked(line: bytes, columns: Columns) -> tuple[str, dict[str, Any]]:
    row = loaded(line)
    if not isinstance(row, dict) or not isinstance(row.get("request"), dict):
        raise ImportFailure("a row without a request")
    columns.load(row)
    return str(row.get("custom_id", "")), row


PROVIDER = "vertex"
WINDOW_S = (72 + 24) * 3600
ENDED = frozenset({"succeeded", "failed", "expired", "cancelled"})
_CODES = {"import": 3, "permission": 7, "bucket": 9, "system": 13}


def number_of(project: str) -> str:
    """Return a project's number, by its name or its number."""
    if project.isdigit():
        return project
    return str(int(hashlib.sha256(project.encode()).hexdigest()[:10], 16))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord(Batch):
    """A job of one model; `project` is whose key made it, in which project, and at which location."""

    display_name: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    number: str = ""
    location: str = ""
    owner: str = ""
    model_path: str = ""
    output_prefix: str = ""
    error_code: int = 0
    error_text: str = ""
    is_deleted: bool = False

    @property
    def name(self) -> str:
        """The job's full name."""
        return f"projects/{self.number}/locations/{self.location}/batchPredictionJobs/{self.id}"

    @property
    def folder(self) -> str:
        """Where its output is."""
        return f"{self.output_prefix.rstrip('/')}/prediction-model-{timestamp(self.created_s)}"

    def state(self, now_s: float) -> str:
        """Return the state at a time, in lower case and without `JOB_STATE_`."""
        if self.is_ended:
            return "succeeded" if self.end == End.COMPLETED else str(self.end)
        if self.cancel_s is not None:
            return "cancelling"
        return "running" if self.is_validated and self.valid_s <= now_s else "pending"


class VertexAccount(Account[JobRecord]):
    """All jobs of one world; their input and output are in a store."""

    def __init__(self, world: World, store: ObjectStore) -> None:
        self._store = store
        super().__init__(world, PROVIDER, JobRecord, WINDOW_S)

    def input_of(self, job: JobRecord) -> Path:
        """Return where a job's input is kept while it runs."""
        return self.blob(f"{job.id}.input")

    def begin(self, job: JobRecord) -> None:
        """Read the input and answer it, or fail."""
        word = job.effects.get("fail")
        code = 0 if word is None else _code_of(str(word))
        bucket, _, name = job.input_file_id.removeprefix("gs://").partition("/")
        try:
            is_there = self._store.fetch(bucket, name, self.input_of(job))
            if NO_AGENT in job.output_prefix and not code:
                code = 7
            if code == 7:
                # Nobody may write the rows, which shows only when they are there.
                self.put(replace(job, is_validated=True, end=End.FAILED, **_error(job, code)))
            elif code or not is_there:
                self.fail(job, **_error(job, code or 3))
            else:
                super().begin(job)
        except ImportFailure:
            self.fail(job, **_error(job, 3))
        except NoBucketError:
            self.fail(job, **_error(job, 9))

    def write(self, job: JobRecord, plan: RowPlan) -> RowCount:
        """Write the rows of a job."""
        model = job.model or ""
        speaker = VertexSpeaker(model, known_family(model), self.world.panel, timestamp(job.valid_s))
        return write_rows(lines_of(self.input_of(job)), Outputs(self.part(job, "output"), None, SHAPE), plan, speaker)

    def publish(self, job: JobRecord) -> JobRecord:
        """Write a job's rows out, in as many objects as its faults ask for."""
        if "expire_bare" in job.effects:
            return replace(job, is_counted=False)
        part = self.part(job, "output")
        if job.end == End.FAILED or "empty_output" in job.effects or not part.exists():
            return job
        n_404 = int(number(job.effects.get("results_404")))
        for name, piece in self._pieces(part, max(1, int(number(job.effects.get("shards"))))):
            bucket, _, folder = job.folder.removeprefix("gs://").partition("/")
            self._store.put(Target(job.owner, bucket, f"{folder}/{name}"), piece, n_404)
            if piece != part:
                piece.unlink()
        return job

    def _pieces(self, part: Path, n: int) -> list[tuple[str, Path]]:
        if n == 1:
            return [("predictions.jsonl", part)]
        lines = part.read_bytes().splitlines(keepends=True)
        pieces = []
        for i in range(n):
            piece = part.with_name(f"{part.name}.{i}")
            piece.write_bytes(b"".join(lines[i * len(lines) // n : (i + 1) * len(lines) // n]))
            name = "predictions.jsonl" if i == n - 1 else f"incremental_predictions_{i:05d}.jsonl"
            pieces.append((name, piece))
        return pieces

    def clear(self, job: JobRecord) -> None:
        """Remove the parts and the kept input of a job that ended."""
        super().clear(job)
        self.input_of(job).unlink(missing_ok=True)

    def find(self, batch_id: str, project: str, now_s: float) -> JobRecord | None:
        """Return a job that exists by now and was not deleted, None otherwise."""
        job = super().find(batch_id, project, now_s)
        return None if job is None or job.is_deleted else job


def _code_of(word: str) -> int:
    return int(word) if word.isdigit() else _CODES.get(word, 3)


def _error(job: JobRecord, code: int) -> dict[str, Any]:
    agent = f"service-{job.number}@gcp-sa-aiplatform.iam.gserviceaccount.com"
    bucket = job.output_prefix.removeprefix("gs://").partition("/")[0]
    texts = {
        3: FAILED_TEXT,
        7: f'Service account {agent} doesn\'t have sufficient permission "storage.objects.create" to write'
        f" gs://{bucket}.",
        9: f"Failed to get GCS bucket location for {bucket}. The bucket may not exist.",
        13: "System error. Please try this operation again.",
    }
    return {"error_code": code, "error_text": texts.get(code, "The job failed.")}
