"""Google's Vertex AI: batch prediction jobs whose input and output are objects of Cloud Storage.

Shapes: the discovery document of the aiplatform API, v1, revision 20261106, google-genai 3.4 `batches.py`, and
recorded traffic of 2026; of Cloud Storage's JSON API, v1, revision 20261009, and its guide of resumable uploads. An
attempt has an input object of its own, and a folder beside it for its output.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

from batchpond import fields, model
from batchpond.clock import Clock
from batchpond.errors import AccessError, ProviderError
from batchpond.model import BatchState, FileRole, RemoteBatch, RemoteFile
from batchpond.providers import base
from batchpond.providers.gemini.batch import GoogleClient, later, word_of
from batchpond.providers.http.client import HttpClient, HttpError, segment
from batchpond.providers.http.errors import Answer
from batchpond.providers.http.transfers import Ranges, Start
from batchpond.providers.shared.batches import PAGES_MAX, Order, every_page, own_token, page_by_token
from batchpond.providers.vertex.auth import BUCKET, Place, Token, advice_for_job, find
from batchpond.providers.vertex.dialect import DIALECT, check_payload, model_path

_JOB: Final = re.compile(r"projects/[^/]+/locations/[^/]+/batchPredictionJobs/([^/]+)")
_TOKEN: Final = re.compile(r"[a-z0-9-]{1,63}")
LABEL: Final = "batchpond"
_COUNTS: Final = ("successfulCount", "failedCount", "incompleteCount")  # zeros are left out, "-1" is unknown
_RUNS_AT_MOST: Final = timedelta(hours=24)
_ENDS_AT_MOST: Final = timedelta(hours=72) + _RUNS_AT_MOST  # with the time in the queue
_FILTERED_PAGES_MAX: Final = 10
_OUTPUT: Final = re.compile(r"(?:incremental_predictions.*|.*\.jsonl)")
_UNNAMED_MODEL: Final = re.compile(r"(?i)\bPublisher ?Model\b|\bmodel\b.*\bnot (?:found|exist)")
OBJECTS_MAX: Final = 10_000
_PAGE_ROWS: Final = 1_000
_DOWNLOADS_MAX: Final = 3
_MIME_TYPE: Final = "application/jsonl"
_MISSING: Final = frozenset({404})
_DROPPED: Final = frozenset({204, 404, 412})
_EXISTS: Final = 412


def _parts(uri: str) -> tuple[str, str]:
    """Return the bucket and the name of an object or a folder; raises ProviderError for what is no `gs://` URI."""
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    if scheme != "gs" or not BUCKET.fullmatch(bucket) or any(character < " " for character in name):
        raise ProviderError(f"{uri[:200]!r} is no address in Cloud Storage")
    return bucket, name


def _path(uri: str) -> str:
    bucket, name = _parts(uri)
    return f"/storage/v1/b/{bucket}/o/{segment(name)}"


class Storage:
    """The objects that one credential sees.

    Each call raises AccessError that names the missing role where one is missing.
    """

    def __init__(self, http: HttpClient) -> None:
        self.http = http

    def stat(self, uri: str) -> RemoteFile | None:
        """Return an object's size and time, None when there is none."""
        found = self._metadata(uri)
        return None if found is None else _file(uri, found)

    def upload(self, path: Path, uri: str) -> RemoteFile:
        """Put a file at an address where nothing is; the same bytes being there already is a success.

        Other bytes there are what an earlier, broken upload left, and are replaced. Raises ProviderError when
        what is stored is not the file.
        """
        found = self._put(path, uri, 0)
        if found is None:
            found = self._metadata(uri) or {}
            if not _holds(found, path):
                found = self._put(path, uri, fields.count(found.get("generation")) or 0)
        if found is None:
            raise ProviderError(f"{uri} was written by somebody else meanwhile", hint="run the same command again")
        if not _holds(found, path):
            self._drop(uri, found)
            raise ProviderError(
                f"{self.http.host} stored other bytes than those of {path.name}; no batch exists",
                hint="run the same command again: it is uploaded anew",
            )
        return _file(uri, found)

    def list(self, folder: str) -> list[RemoteFile]:
        """Return the objects below a folder, by name.

        Raises ProviderError when the bucket is not there, when there are too many, and when the listing does not
        go on as it says: an incomplete one must never look like a complete one.
        """
        bucket, prefix = _parts(folder)
        path = f"/storage/v1/b/{bucket}/o"
        params: dict[str, str | int] = {"prefix": prefix, "maxResults": _PAGE_ROWS}
        found: dict[str, RemoteFile] = {}
        for rows in every_page(
            lambda cursor: page_by_token(self.http, path, params, cursor, "items"),
            f"{self.http.host} lists more than {PAGES_MAX} pages below {folder}",
        ):
            for row in map(fields.mapping, rows):
                name = fields.identifier(row.get("name"))
                if name is None or not name.startswith(prefix):
                    raise ProviderError(f"{self.http.host} lists an object outside {folder}")
                found[name] = _file(f"gs://{bucket}/{name}", row)
            if len(found) > OBJECTS_MAX:
                raise ProviderError(f"there are more than {OBJECTS_MAX} objects below {folder}")
        return [found[name] for name in sorted(found)]

    def download(self, uri: str, path: Path) -> model.Download | None:
        """Stream an object's bytes to `path`, checked against its digest; None when there is none.

        Raises ProviderError, with nothing left at `path`, when other bytes come again and again.
        """
        for _ in range(_DOWNLOADS_MAX):
            got = self.http.download(f"{_path(uri)}?alt=media", path)
            # Google's 403 for bytes reads like a 404: what is known of the object tells them apart. The digest of one
            # that is kept packed is not that of the bytes that come.
            found = self._metadata(uri)
            if got is None or found is None or found.get("contentEncoding") or _holds(found, path):
                return got
        path.unlink(missing_ok=True)
        raise ProviderError(
            f"{self.http.host} does not give the bytes of {uri} whole", hint="run the same command again"
        )

    def drop(self, uri: str) -> bool:
        """Delete an object; False where there was none."""
        found = self._metadata(uri)
        if found is not None:
            self._drop(uri, found)
        return found is not None

    def peek(self, uri: str, max_bytes: int) -> bytes | None:
        """Return an object's first bytes; None when there is none."""
        found = self.http.peek(f"{_path(uri)}?alt=media", max_bytes)
        if found is None:
            self._metadata(uri)
        return found

    def _metadata(self, uri: str) -> dict[str, Any] | None:
        answer = self.http.request_json("GET", _path(uri), allow=_MISSING)
        return fields.mapping(answer.json) if answer.is_success else None

    def _put(self, path: Path, uri: str, generation: int) -> dict[str, Any] | None:
        """Upload over that generation, 0 for none; None when there is another one."""
        bucket, name = _parts(uri)
        query = f"uploadType=resumable&name={segment(name)}&ifGenerationMatch={generation}"
        address = f"/upload/storage/v1/b/{bucket}/o?{query}"
        start = Start(address, {"contentType": _MIME_TYPE}, _MIME_TYPE, Ranges())
        try:
            return fields.mapping(self.http.upload_resumable(start, path).json)
        except HttpError as error:
            if error.status_code != _EXISTS:
                raise
        return None

    def _drop(self, uri: str, found: dict[str, Any]) -> None:
        generation = fields.count(found.get("generation"))
        query = "" if generation is None else f"?ifGenerationMatch={generation}"
        self.http.request_json("DELETE", _path(uri) + query, allow=_DROPPED)


def _file(uri: str, found: dict[str, Any]) -> RemoteFile:
    name = uri.rpartition("/")[2]
    return RemoteFile(uri, name, fields.count(found.get("size")), fields.moment(found.get("timeCreated")))


def _holds(found: dict[str, Any], path: Path) -> bool:
    """Whether an object has a file's size and, where Google says one, its digest."""
    size_bytes = fields.count(found.get("size"))
    if size_bytes is not None and size_bytes != path.stat().st_size:
        return False
    said = fields.identifier(found.get("md5Hash"))
    if size_bytes is not None and said is None:
        return True
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return said == base64.b64encode(digest.digest()).decode("ascii")


class VertexClient(GoogleClient):
    """The client of Vertex AI's batch prediction, bound to one project, location and bucket."""

    descriptor = DIALECT.DESCRIPTOR
    rows = "batchPredictionJobs"
    members = base.table("vertex", "batch")
    advice_for = staticmethod(advice_for_job)

    def __init__(self, http: HttpClient, storage: Storage, clock: Clock, place: Place, auth: Token) -> None:
        super().__init__(http, clock)
        self._storage = storage
        self._place = place
        self._auth = auth
        self.batches_path = f"/v1/{place.parent}/batchPredictionJobs"
        # The same credential makes batches in many projects and locations.
        self.host = f"{http.host}/{place.project}/{place.location}"

    @classmethod
    def connect(cls, clock: Clock, environ: Mapping[str, str], transport: Any) -> Self:
        """Return the client for the environment's token, or for the credentials that google-auth finds.

        Raises AccessError when there are none, UsageError when project, location or bucket is not set.
        """
        place, auth = find(DIALECT.DESCRIPTOR, environ, clock)
        http, storage = (
            HttpClient(url, auth, clock, transport, key_name=auth.key_name)
            for url in (place.base_url, place.storage_url)
        )
        return cls(http, Storage(storage), clock, place, auth)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        self._storage.http.close()

    def upload(self, path: Path, filename: str) -> RemoteFile:
        """Put a payload into the bucket, checked; safe to repeat, since an object that is there is not made again."""
        check_payload(path)
        return self._storage.upload(path, self._input_uri(filename))

    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:  # noqa: ARG002  # names are unique
        """Return the payload's object if it is there."""
        found = self._storage.stat(self._input_uri(filename))
        return [] if found is None else [found]

    def drop_upload(self, file_id: str) -> bool:
        """Delete a payload's object; False where there was none."""
        return self._storage.drop(file_id)

    def create(self, spec: model.CreateSpec) -> model.CreateAnswer:
        """Send exactly one POST and classify its answer; without a token nothing is sent, which is a definite no."""
        try:
            self._auth.headers()
        except (AccessError, ProviderError) as error:
            error_class = model.ErrorClass.ACCESS if isinstance(error, AccessError) else model.ErrorClass.TRANSIENT
            return model.Rejected(error_class, "no_token", error.message, 401)
        return super().create(spec)

    def order(self, spec: model.CreateSpec) -> Order:
        """Return a job: its output goes into a folder named after its input, which is the attempt's own."""
        input_uri = spec.input_file_id or ""
        named = {
            f"{LABEL}_{name}": re.sub(r"[^a-z0-9_-]", "_", value.lower())[:63]
            for name, value in spec.metadata
            if name in ("study", "shard") and value
        }
        job = {
            "displayName": spec.token,
            "model": model_path(spec.request_model),
            "inputConfig": {"instancesFormat": "jsonl", "gcsSource": {"uris": [input_uri]}},
            "outputConfig": {
                "predictionsFormat": "jsonl",
                "gcsDestination": {"outputUriPrefix": input_uri.removesuffix(".jsonl") + "-output"},
            },
            "labels": {LABEL: spec.token, **named},
        }
        return Order(self.batches_path, job)

    @classmethod
    def more_of(cls, found: dict[str, Any], batch: RemoteBatch) -> RemoteBatch:
        """Return a job with its counts, its folder and its token.

        `output_file_id` is where the rows of a job that ended are: its own folder of Cloud Storage or, where it names
        none, that of all jobs with its output prefix; with a slash at its end.
        `expires_at` is the documented end of the queue or, once it runs, of the run: jobs have no such time.
        `n_total` is known only of a job that succeeded: before that its counts need not be all.
        """
        started_at = fields.moment(found.get("startTime"))
        stats = found.get("completionStats")
        counts = [fields.count(stats.get(name, 0)) if isinstance(stats, dict) else None for name in _COUNTS]
        n_completed, n_failed, _ = counts
        is_counted = word_of(batch.provider_status) == "SUCCEEDED" and None not in counts
        uris = fields.sequence(fields.inside(found, "inputConfig.gcsSource.uris"), 2)
        folder = batch.output_file_id if batch.state.is_terminal else None
        return replace(
            super().more_of(found, batch),
            expires_at=later(started_at or batch.created_at, _RUNS_AT_MOST if started_at else _ENDS_AT_MOST),
            n_total=sum(count or 0 for count in counts) if is_counted else None,
            n_completed=n_completed,
            n_failed=n_failed,
            input_file_id=fields.identifier(uris[0]) if len(uris) == 1 else None,
            output_file_id=None if folder is None else folder.rstrip("/") + "/",
            token=own_token(fields.inside(found, f"labels.{LABEL}"), found.get("displayName")),
        )

    def find_batches(self, token: str) -> tuple[RemoteBatch, ...]:
        """Return the jobs with a token, which the server looks up by their label; none prove nothing.

        A filter that the server does not take, or does not heed, finds what a few pages hold. Raises ProviderError
        for a token that is no label, so that nothing is asked that means something else.
        """
        if not _TOKEN.fullmatch(token):
            raise ProviderError(f"{token!r} is no label of a job")
        found: list[RemoteBatch] = []
        cursor: str | None = None
        for _ in range(_FILTERED_PAGES_MAX):
            try:
                page = self.page(cursor, {"filter": f"labels.{LABEL}={token}"})
            except HttpError as error:
                if error.status_code != 400:
                    raise
                break
            found += [batch for batch in page.batches if batch.token == token]
            if (cursor := page.next_cursor) is None:
                break
        return tuple(found)

    def path_of(self, batch_id: str) -> str:
        """Return the path of a job, by its full name or its number."""
        name = batch_id if "/" in batch_id else f"{self._place.parent}/batchPredictionJobs/{batch_id}"
        if not _JOB.fullmatch(name):
            raise ProviderError(f"{batch_id!r} is not the name of a Vertex AI job")
        return "/v1/" + "/".join(segment(part) for part in name.split("/"))

    def is_of(self, batch: RemoteBatch, batch_id: str) -> bool:
        """Return whether a full name or a number means a job."""
        return batch.batch_id.rpartition("/")[2] == batch_id.rpartition("/")[2]

    def result_files(self, batch: RemoteBatch) -> tuple[tuple[FileRole, str], ...]:
        """Return every result object in the folder of a job that ended, by name.

        Raises ProviderError where a job does not say which of several folders is its own.
        """
        if (folder := batch.output_file_id) is None:
            return ()
        try:
            found = self._storage.list(folder)
        except HttpError as error:
            if error.status_code == 404 and batch.state is BatchState.FAILED:
                return ()  # it failed because there is no such bucket
            raise
        kept = [file.file_id for file in found if file.size_bytes != 0 and _OUTPUT.fullmatch(file.filename)]
        folders = {uri.rpartition("/")[0] for uri in kept}
        if len(folders) > 1:
            raise ProviderError(
                f"{batch.batch_id} does not say which of {len(folders)} folders below {folder} is its own",
                hint=f"look at {', '.join(sorted(folders)[:3])}; nothing was taken from any",
            )
        return tuple((FileRole.OUTPUT, uri) for uri in kept)

    def download(self, file_id: str, path: Path) -> model.Download | None:
        """Stream a result object to `path`; None on 404."""
        return self._storage.download(file_id, path)

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a result object; None on 404."""
        return self._storage.peek(file_id, max_bytes)

    def check(self) -> str:
        """List one job and the bucket, which is free, and return the scope that the token belongs to."""
        scope = super().check()
        self._storage.stat(self._input_uri("check"))
        return scope

    def _input_uri(self, filename: str) -> str:
        return f"gs://{self._place.bucket}/{self._place.folder}/{filename}"

    def refusal(self, answer: Answer, spec: model.CreateSpec) -> model.Rejected:
        """Return a definite no, with the role that is missing; a token that only ran out is no lack of access."""
        refusal = super().refusal(answer, spec)
        message = answer.error.message if answer.error else ""
        advice = self._auth.advice(message)
        if answer.status_code == 404 and _UNNAMED_MODEL.search(message):
            refusal = replace(refusal, error_class=model.ErrorClass.MODEL_GONE)
        if answer.status_code == 403 and advice is not None:
            refusal = replace(refusal, error_class=model.ErrorClass.ACCESS)  # Google's text says: it may not exist
        if answer.status_code == 401 and self._is_renewed():
            refusal = replace(refusal, error_class=model.ErrorClass.TRANSIENT)
        return replace(refusal, message=f"{refusal.message} [{advice}]") if advice else refusal

    def _is_renewed(self) -> bool:
        try:
            return self._auth.renew()
        except (AccessError, ProviderError):
            return False


BATCH: Final = VertexClient
