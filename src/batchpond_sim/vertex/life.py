"""The jobs of simulated Vertex AI projects.

pending -> running -> succeeded | failed | expired        any open state -> cancelling -> cancelled (or succeeded)

What is wrong with the input or the bucket is found out after creation. What was finished is written out, however
a job ends, unless it failed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from batchpond_sim.faults.faults import number
from batchpond_sim.gemini.models import Family, family_of
from batchpond_sim.gemini.views import timestamp
from batchpond_sim.shared.life import Account, Batch, End
from batchpond_sim.shared.rows import Outputs, RowCount, RowPlan, write_rows
from batchpond_sim.storage.store import NO_AGENT, NoBucketError, ObjectStore, Target
from batchpond_sim.vertex.job_import import FAILED_TEXT, ImportFailure
from batchpond_sim.vertex.rows import SHAPE, Lines, VertexSpeaker
from batchpond_sim.world.world import World

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
                self._fail(job, code or 3)
            else:
                super().begin(job)
        except ImportFailure:
            self._fail(job, 3)
        except NoBucketError:
            self._fail(job, 9)

    def _fail(self, job: JobRecord, code: int) -> None:
        failed = replace(job, is_ended=True, end=End.FAILED, done_s=job.valid_s, **_error(job, code))
        self.put(failed)
        self.clear(failed)

    def write(self, job: JobRecord, plan: RowPlan) -> RowCount:
        """Write the rows of a job."""
        speaker = VertexSpeaker(job.model or "", self.family(job), self.world.panel, timestamp(job.valid_s))
        return write_rows(Lines(self.input_of(job)), Outputs(self.part(job, "output"), None, SHAPE), plan, speaker)

    def family(self, job: JobRecord) -> Family:
        """Return the family of a job's model; create has made sure that there is one."""
        family = family_of(job.model or "")
        if family is None:
            raise LookupError(f"job {job.id} has the unknown model {job.model}")
        return family

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
