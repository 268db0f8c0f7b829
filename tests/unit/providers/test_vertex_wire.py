"""The Vertex AI wire against scripted servers: one POST a create, no list that only looks complete, no role unnamed."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchpond.errors import AccessError, ProviderError
from batchpond.model import BatchState, Created, ErrorClass, FileRole, PricedModel, Rejected
from batchpond.providers.http import transfers
from batchpond.providers.vertex.batch import VertexClient
from batchpond.providers.vertex.dialect import DIALECT
from batchpond.study.prices import Prices
from tests.rigs.vertex_script import (
    BUCKET,
    HOST,
    INPUT,
    JOBS,
    NAME,
    SECRET,
    SPEC,
    STORAGE,
    TOKEN,
    Script,
    job,
    missing,
    missing_object,
    ok,
    refusal,
    stored,
)
from tests.rigs.wire_script import START

LINE = b'{"custom_id":"ka","request":{"contents":[{"parts":[{"text":"x"}]}]}}\n'
OBJECTS = f"{STORAGE}/storage/v1/b/my-bucket/o"


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def ended(state: str = "SUCCEEDED", **more: Any) -> dict[str, Any]:
    folder = f"{BUCKET}/{TOKEN}-output/prediction-model-2026-11-21T10:00:00.1Z"
    return job(state, outputInfo={"gcsOutputDirectory": folder}, endTime="2026-11-21T11:00:00Z", **more)


def test_a_model_costs_what_it_costs_at_the_gemini_api_under_either_name() -> None:
    """A path before the name would leave the price unknown, and the study unpriced."""
    prices = Prices(now=START)
    known = prices.unit(PricedModel("gemini", "gemini-2.5-flash"))
    assert known is not None
    for name in ("gemini-2.5-flash", "publishers/google/models/gemini-2.5-flash"):
        assert prices.unit(PricedModel("vertex", name)) == known


# --- create ------------------------------------------------------------------------------------------


def test_a_create_is_one_post_that_carries_the_token_three_times() -> None:
    """Display name, label and addresses: any of them finds the job again; no two attempts share an output."""
    script = Script(ok(job()))
    got = script.wire.create(SPEC)
    assert isinstance(got, Created)
    assert (got.batch.batch_id, got.batch.state, got.batch.token) == (NAME, BatchState.QUEUED, TOKEN)
    assert got.batch.input_file_id == INPUT
    (request,) = script.requests
    assert (request.method, str(request.url)) == ("POST", JOBS)
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    body = json.loads(request.content)
    assert body["displayName"] == TOKEN
    assert body["labels"] == {"batchpond": TOKEN, "batchpond_study": "my_study", "batchpond_shard": "abc234"}
    assert body["model"] == "publishers/google/models/gemini-2.5-flash"
    assert body["inputConfig"]["gcsSource"]["uris"] == [INPUT]
    assert body["outputConfig"]["gcsDestination"]["outputUriPrefix"] == f"{BUCKET}/{TOKEN}-output"


@pytest.mark.parametrize(
    ("answer", "error_class", "said"),
    [
        (missing("aiplatform.batchPredictionJobs.create"), ErrorClass.ACCESS,
         "grant roles/aiplatform.user (aiplatform.batchPredictionJobs.create) on the project to the caller"),
        (refusal(404, "NOT_FOUND", "The PublisherModel x does not exist."), ErrorClass.MODEL_GONE, "does not exist"),
        (refusal(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later."), ErrorClass.TRANSIENT, ""),
        (refusal(400, "INVALID_ARGUMENT", "bad label"), ErrorClass.PERMANENT, "bad label"),
        (refusal(401, "UNAUTHENTICATED", "token"), ErrorClass.ACCESS, ""),
    ],
)  # fmt: skip
def test_a_definite_no_says_what_is_missing(answer: httpx.Response, error_class: ErrorClass, said: str) -> None:
    """A 403 names the role and whose it is, although Google's text says that the thing may not exist."""
    got = Script(answer).wire.create(SPEC)
    assert isinstance(got, Rejected)
    assert got.error_class is error_class
    assert said in got.message
    assert SECRET not in got.message


# --- looking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("QUEUED", BatchState.QUEUED), ("PENDING", BatchState.QUEUED), ("RUNNING", BatchState.RUNNING),
        ("PAUSED", BatchState.RUNNING), ("UPDATING", BatchState.RUNNING), ("CANCELLING", BatchState.CANCELLING),
        ("SUCCEEDED", BatchState.COMPLETED), ("PARTIALLY_SUCCEEDED", BatchState.COMPLETED),
        ("FAILED", BatchState.FAILED), ("CANCELLED", BatchState.CANCELLED), ("EXPIRED", BatchState.EXPIRED),
        ("ARCHIVING", BatchState.RUNNING), ("UNSPECIFIED", BatchState.RUNNING),
    ],
)  # fmt: skip
def test_every_state_has_one_meaning_and_an_unknown_one_is_not_an_end(word: str, state: BatchState) -> None:
    """The twelve words of the discovery document, and one that is not there yet."""
    got = Script(ok(job(word))).wire.get(NAME)
    assert got is not None
    assert (got.state, got.provider_status) == (state, f"JOB_STATE_{word}")
    assert (got.output_file_id is not None) == state.is_terminal


@pytest.mark.parametrize(
    ("stats", "word", "counts"),
    [
        (None, "PENDING", (None, None, None)),
        ({"successfulCount": "10", "failedCount": "2"}, "SUCCEEDED", (12, 10, 2)),
        ({"successfulCount": "10", "incompleteCount": "-1"}, "SUCCEEDED", (None, 10, 0)),
        ({"successfulCount": "10", "incompleteCount": "5"}, "CANCELLED", (None, 10, 0)),
        ({"successfulCount": "10"}, "PARTIALLY_SUCCEEDED", (None, 10, 0)),
        ({"failedCount": "3"}, "SUCCEEDED", (3, 0, 3)),
        ({"successfulCount": 4.0, "failedCount": "many"}, "SUCCEEDED", (None, 4, None)),
        ("none", "RUNNING", (None, None, None)),
    ],
)
def test_counts_are_text_zeros_are_left_out_and_minus_one_is_unknown(
    stats: object, word: str, counts: tuple[int | None, ...]
) -> None:
    """A number that is not known is never guessed."""
    got = VertexClient.read_batch(job(word, completionStats=stats))
    assert got is not None
    assert (got.n_total, got.n_completed, got.n_failed) == counts


@pytest.mark.parametrize(
    ("code", "message", "role"),
    [
        (7, 'Service account s@x doesn\'t have sufficient permission "storage.objects.create" to write gs://my-bucket.',
         "grant roles/storage.objectUser on gs://my-bucket to the Vertex AI service agent,"
         " service-123456@gcp-sa-aiplatform.iam.gserviceaccount.com"),
        (9, "Failed to get GCS bucket location for my-bucket. It may be missing.",
         "does gs://my-bucket exist? grant roles/storage.legacyBucketReader"),
        (3, "Failed to import data. Please check", "a key of the input lines holds two types"),
        (13, "System error. Please try this operation again.", "System error"),
        (1, "CANCELED", "CANCELED"),
    ],
)  # fmt: skip
def test_a_failed_job_says_which_role_the_service_agent_lacks(code: int, message: str, role: str) -> None:
    """The job is not the caller: granting the caller more would change nothing."""
    got = VertexClient.read_batch(job("FAILED", error={"code": code, "message": message}))
    assert got is not None
    assert role in got.errors[0].message


def test_the_listing_is_paged_to_its_end_and_a_token_is_looked_up_by_its_label() -> None:
    """The label is the server's filter; what it lets through is compared all the same."""
    other = job(name=NAME.replace("7890", "1"), labels={}, displayName="else")
    script = Script(ok({"batchPredictionJobs": [job()], "nextPageToken": "p2"}), ok({"batchPredictionJobs": [other]}))
    first = script.wire.list_page(None)
    second = script.wire.list_page(first.next_cursor)
    assert [batch.batch_id for batch in (*first.batches, *second.batches)] == [NAME, other["name"]]
    assert second.next_cursor is None
    assert "filter" not in script.requests[0].url.params
    assert script.requests[1].url.params["pageToken"] == "p2"
    looked = Script(ok({"batchPredictionJobs": [job(), other]}))
    assert [batch.batch_id for batch in looked.wire.find_batches(TOKEN)] == [NAME]
    assert looked.requests[0].url.params["filter"] == f"labels.batchpond={TOKEN}"


@pytest.mark.parametrize(
    "pages",
    [
        [ok({"batchPredictionJobs": {}})],
        [ok({"error": {"message": "no"}})],
        [ok({"batchPredictionJobs": [{"displayName": "x"}]})],
        [ok({"nextPageToken": "same"})],
        [ok({"batchPredictionJobs": [job()], "nextPageToken": 3})],
    ],
)
def test_a_listing_that_does_not_go_on_is_an_error(pages: list[httpx.Response]) -> None:
    """An incomplete list must never look like a complete one: absence is read from it."""
    with pytest.raises(ProviderError):
        Script(*pages).wire.find_batches(TOKEN)


def test_a_filter_that_the_server_does_not_take_or_heed_finds_nothing_and_stops_nothing() -> None:
    """What is not found that way is looked for in the whole listing."""
    assert Script(refusal(400, "INVALID_ARGUMENT", "bad filter")).wire.find_batches(TOKEN) == ()
    pages = iter(range(1_000))
    other = job(labels={}, displayName="else")
    endless = Script(lambda _: ok({"batchPredictionJobs": [other], "nextPageToken": f"p{next(pages)}"}))
    assert endless.wire.find_batches(TOKEN) == ()
    assert len(endless.requests) == 10


def test_a_token_that_is_no_label_is_never_a_filter() -> None:
    """A filter that means something else would prove nothing."""
    script = Script(ok({}))
    with pytest.raises(ProviderError, match="no label"):
        script.wire.find_batches('x" OR state="*')
    assert script.requests == []


def test_a_job_is_asked_for_by_name_or_number_and_never_by_anything_else() -> None:
    """A path that a foreign id makes addresses nothing else."""
    for batch_id in (NAME, "7890"):
        got = Script(ok(job())).wire.get(batch_id)
        assert got is not None
        assert got.batch_id == NAME
    assert Script(refusal(404, "NOT_FOUND")).wire.get(NAME) is None
    for odd in ("batches/b1", "projects/../x", "a/b/c", ".."):
        with pytest.raises(ProviderError):
            Script(ok(job())).wire.get(odd)
    with pytest.raises(ProviderError, match="another object"):
        Script(ok(job())).wire.get(NAME.replace("7890", "7891"))


def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    """CANCELLING may still end well, so the state is asked for."""
    script = Script(ok({}), ok(job("CANCELLING")))
    got = script.wire.cancel(NAME)
    assert got is not None
    assert got.state is BatchState.CANCELLING
    assert script.calls == [f"POST {HOST}/v1/{NAME}:cancel", f"GET {HOST}/v1/{NAME}"]
    assert Script(refusal(400, "FAILED_PRECONDITION")).wire.cancel(NAME) is None
    with pytest.raises(AccessError) as caught:
        Script(missing("aiplatform.batchPredictionJobs.cancel")).wire.cancel(NAME)
    assert "roles/aiplatform.user" in (caught.value.hint or "")


# --- the bucket --------------------------------------------------------------------------------------


class Shelf:
    """A scripted Cloud Storage with one object; each misfortune befalls one request for bytes."""

    def __init__(self, *misfortunes: str, there: bytes | None = None) -> None:
        self.misfortunes = list(misfortunes)
        self.there, self.generation = there, 17 if there is not None else 0
        self.arrived = bytearray()
        self.wanted = -1
        self.n_sessions = 0
        self.sent = 0
        self.script = Script(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response | Exception:
        if request.method == "GET":
            return (
                httpx.Response(404, json={"error": {"code": 404, "message": "No such object"}})
                if (self.there is None)
                else ok(self._view())
            )
        if request.method == "DELETE":
            self.there = None
            return httpx.Response(204)
        if request.method == "POST":
            return self._open(request)
        return self._piece(request)

    def _open(self, request: httpx.Request) -> httpx.Response:
        self.wanted = int(request.url.params["ifGenerationMatch"])
        if self.wanted != (self.generation if self.there is not None else 0):
            return httpx.Response(412, json={"error": {"code": 412, "message": "conditionNotMet"}})
        self.arrived.clear()
        self.n_sessions += 1
        where = f"{STORAGE}/upload/storage/v1/b/my-bucket/o?uploadType=resumable&upload_id={self.n_sessions}"
        return httpx.Response(200, headers={"location": where})

    def _piece(self, request: httpx.Request) -> httpx.Response | Exception:
        span, _, total = request.headers["content-range"].removeprefix("bytes ").partition("/")
        misfortune = self.misfortunes.pop(0) if self.misfortunes and span != "*" else ""
        if misfortune == "forgotten":
            return refusal(410, "GONE")
        if misfortune == "503":
            return refusal(503, "UNAVAILABLE")
        if span != "*":
            assert int(span.partition("-")[0]) == len(self.arrived), "a byte was sent twice or left out"
            kept = {"nothing arrives": 0, "half arrives": len(request.content) // 2}.get(misfortune)
            self.arrived += request.content[:kept]
            self.sent += len(request.content)
        if len(self.arrived) == int(total):
            data = bytes(self.arrived)
            self.there = data if misfortune != "spoiled" else data[:-1] + b"?"
            self.generation += 1
            return httpx.ReadError("reset") if misfortune == "answer lost" else ok(self._view())
        if misfortune in ("nothing arrives", "half arrives", "answer lost"):
            return httpx.ReadError("reset")
        held = {"range": f"bytes=0-{len(self.arrived) - 1}"} if self.arrived else {}
        return httpx.Response(308, headers=held)

    def _view(self) -> dict[str, Any]:
        data = self.there or b""
        return stored(f"studies/{TOKEN}.jsonl", data, md5Hash=md5(data), generation=str(self.generation))


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(transfers, "CHUNK_BYTES", 1_000)
    path = tmp_path / f"{TOKEN}.jsonl"
    path.write_bytes(LINE * 50)
    return path


MISFORTUNES = ["nothing arrives", "half arrives", "503", "answer lost", "forgotten"]


@settings(max_examples=80, deadline=None)
@given(misfortunes=st.lists(st.sampled_from(["", "", *MISFORTUNES]), max_size=8))
def test_whatever_breaks_an_upload_the_object_is_whole_or_an_error_says_so(
    tmp_path_factory: pytest.TempPathFactory, misfortunes: list[str]
) -> None:
    """After a break the session is asked where it stands, and not a byte is sent twice or left out."""
    path = tmp_path_factory.mktemp("up") / f"{TOKEN}.jsonl"
    path.write_bytes(LINE * 50)
    shelf = Shelf(*misfortunes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transfers, "CHUNK_BYTES", 1_000)
        try:
            got = shelf.script.wire.upload(path, path.name)
        except ProviderError:
            assert misfortunes.count("forgotten") > 2 or len([each for each in misfortunes if each]) >= 6
            return
    assert (got.file_id, got.size_bytes) == (INPUT, len(LINE * 50))
    assert shelf.there == path.read_bytes()


def test_an_object_that_is_there_already_is_taken_for_the_upload(payload: Path) -> None:
    """412 and the same bytes: the answer to an earlier upload was lost, nothing is sent again."""
    shelf = Shelf(there=payload.read_bytes())
    assert shelf.script.wire.upload(payload, payload.name).file_id == INPUT
    assert (shelf.n_sessions, shelf.sent) == (0, 0)


@pytest.mark.parametrize("there", [b"short", b"?" * len(LINE * 50)])
def test_other_bytes_of_a_broken_upload_are_replaced_at_their_generation(payload: Path, there: bytes) -> None:
    """Of another size, or of the same: nobody's newer version is overwritten."""
    shelf = Shelf(there=there)
    shelf.script.wire.upload(payload, payload.name)
    assert shelf.there == payload.read_bytes()
    assert shelf.wanted == 17


def test_an_object_that_was_spoiled_on_the_way_is_not_left_behind(payload: Path) -> None:
    """Same size, other digest: an error, and the next run finds nothing to take for the payload."""
    shelf = Shelf("", "", "", "spoiled")
    with pytest.raises(ProviderError, match="stored other bytes"):
        shelf.script.wire.upload(payload, payload.name)
    assert shelf.there is None


def test_a_payload_that_would_fail_whole_is_not_uploaded(payload: Path) -> None:
    """Nothing is asked of anybody."""
    payload.write_bytes(LINE + b'{"custom_id":7}\n')
    shelf = Shelf()
    with pytest.raises(ProviderError, match=r"line 2 .* custom_id is a whole number"):
        shelf.script.wire.upload(payload, payload.name)
    assert shelf.script.requests == []


def test_a_missing_role_on_the_bucket_is_named_with_its_owner(payload: Path) -> None:
    """Google's 403 says "or it may not exist": it is a refusal all the same, here and for bytes."""
    with pytest.raises(AccessError) as caught:
        Script(missing_object("storage.objects.create")).wire.upload(payload, payload.name)
    assert "roles/storage.objectUser (storage.objects.create)" in (caught.value.hint or "")
    assert "me@my-project.iam.gserviceaccount.com" in (caught.value.hint or "")
    with pytest.raises(AccessError) as caught:
        Script(missing_object("storage.objects.get")).wire.download(INPUT, payload)
    assert "storage.objects.get" in (caught.value.hint or "")


FOLDER = f"studies/{TOKEN}-output/prediction-model-2026-11-21T10:00:00.1Z"


def listed(*names: str, **more: Any) -> httpx.Response:
    return ok({"items": [stored(name) for name in names]} | more)


def test_every_result_object_of_a_job_is_named_in_one_order() -> None:
    """Shards, incremental ones, over several pages; what is empty or no result is left."""
    script = Script(
        listed(f"{FOLDER}/predictions.jsonl", f"{FOLDER}/manifest.json", nextPageToken="p2"),
        ok({"items": [stored(f"{FOLDER}/incremental_predictions_1"), stored(f"{FOLDER}/a.jsonl", b"")]}),
    )
    batch = VertexClient.read_batch(ended())
    assert batch is not None
    wanted = [f"gs://my-bucket/{FOLDER}/{name}" for name in ("incremental_predictions_1", "predictions.jsonl")]
    assert script.wire.result_files(batch) == tuple((FileRole.OUTPUT, uri) for uri in wanted)
    assert script.requests[0].url.params["prefix"] == f"{FOLDER}/"


def test_a_folder_that_may_be_another_jobs_is_never_read() -> None:
    """Without its own folder a job has all that lie below its prefix: one is its own, of two nobody can tell."""
    batch = VertexClient.read_batch(job("SUCCEEDED"))
    assert batch is not None
    one = f"{FOLDER}/predictions.jsonl"
    assert len(Script(listed(one)).wire.result_files(batch)) == 1
    other = one.replace("10:00", "11:00")
    with pytest.raises(ProviderError, match="which of 2 folders"):
        Script(listed(one, other)).wire.result_files(batch)


def test_a_job_that_failed_for_want_of_a_bucket_has_no_results() -> None:
    """Of a job that succeeded a missing bucket is an error: its rows are somewhere."""
    gone = httpx.Response(404, json={"error": {"code": 404, "message": "The specified bucket does not exist."}})
    failed, good = VertexClient.read_batch(ended("FAILED")), VertexClient.read_batch(ended())
    assert failed is not None
    assert good is not None
    assert Script(gone).wire.result_files(failed) == ()
    with pytest.raises(ProviderError, match="bucket does not exist"):
        Script(gone).wire.result_files(good)


def test_a_download_is_whole_by_its_digest(tmp_path: Path) -> None:
    """A body cut at the end of a line looks whole to HTTP: it is asked for again."""
    data, cut = LINE * 3, LINE * 2
    known = ok(stored("x", data, md5Hash=md5(data)))
    path = tmp_path / "got"
    script = Script(httpx.Response(200, content=cut), known, httpx.Response(200, content=data), known)
    got = script.wire.download(INPUT, path)
    assert got is not None
    assert path.read_bytes() == data
    with pytest.raises(ProviderError, match="whole"):
        Script(*[httpx.Response(200, content=cut), known] * 3).wire.download(INPUT, path)
    assert not path.exists()
    assert Script(refusal(404, "NOT_FOUND")).wire.download(INPUT, path) is None


def test_the_token_goes_to_google_alone_and_is_shown_nowhere(payload: Path) -> None:
    """Two origins get it; an upload address elsewhere does not, nor does any text."""
    script = Script(httpx.Response(200, headers={"location": "https://evil.example/upload?upload_id=1"}))
    with pytest.raises((ProviderError, AccessError)) as caught:
        script.wire.upload(payload, payload.name)
    assert {request.url.host for request in script.requests} == {"storage.googleapis.com"}
    shown = str(caught.value) + repr(script.wire) + repr(vars(script.wire)) + repr(vars(vars(script.wire)["_auth"]))
    assert SECRET not in shown


def test_batches_live_in_a_project_and_a_location_not_at_a_host() -> None:
    """Another project's listing proves nothing, although host and token are the same."""
    wire = Script(ok({})).wire
    assert wire.host == "us-central1-aiplatform.googleapis.com/my-project/us-central1"
    assert Script(ok({}), GOOGLE_CLOUD_PROJECT="other").wire.host != wire.host
    assert not wire.is_loopback
    assert DIALECT.DESCRIPTOR.has_token
