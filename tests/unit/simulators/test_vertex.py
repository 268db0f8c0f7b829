"""The simulated Vertex AI and Cloud Storage, driven by Google's own clients and by plain requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from google import genai
from google.api_core.exceptions import Forbidden, NotFound, PreconditionFailed
from google.cloud import storage
from google.genai import types
from google.oauth2.credentials import Credentials

from batchpond_sim.host import server
from batchpond_sim.world.world import Settings, World
from tests.rigs.clock import ManualClock
from tests.rigs.sim_transport import SimulatorTransport, world_at
from tests.rigs.simulator import START, prompt

BUCKET = "study-bucket"
PARENT = "/v1/projects/my-project/locations/us-central1/batchPredictionJobs"
MODEL = "publishers/google/models/gemini-2.5-flash"


def line(custom_id: object, text: str = "", **members: Any) -> dict[str, Any]:
    said = text or prompt("[[quality=0.9]] one", "[[quality=0.1]] other")
    return {"custom_id": custom_id, "request": {"contents": [{"role": "user", "parts": [{"text": said}]}]} | members}


def payload(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


LINES = [line(f"k-{n}") for n in range(6)]


class Vertex:
    """The API of one in-process world, called with plain httpx."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world, self.clock = world, clock
        self.http = httpx.Client(
            transport=SimulatorTransport(world, clock), base_url="http://127.0.0.1:1/vertex",
            headers={"Authorization": "Bearer tok-canary"}, timeout=60,
        )  # fmt: skip

    def put(self, name: str, data: bytes, bucket: str = BUCKET) -> httpx.Response:
        where = f"/upload/storage/v1/b/{bucket}/o"
        return self.http.post(where, params={"uploadType": "media", "name": name}, content=data)

    def post_job(self, source: str = f"gs://{BUCKET}/in.jsonl", **more: Any) -> httpx.Response:
        body = {
            "displayName": "tok-1",
            "model": MODEL,
            "inputConfig": {"instancesFormat": "jsonl", "gcsSource": {"uris": [source]}},
            "outputConfig": {"predictionsFormat": "jsonl",
                             "gcsDestination": {"outputUriPrefix": f"gs://{BUCKET}/out"}},
            "labels": {"batchpond": "tok-1"},
        } | more  # fmt: skip
        return self.http.post(more.pop("parent", PARENT), json=body)

    def job(self, lines: list[dict[str, Any]], wait_s: float = 100.0, **more: Any) -> dict[str, Any]:
        assert self.put("in.jsonl", payload(*lines)).status_code == 200
        made = self.post_job(**more)
        assert made.status_code == 200, made.text
        self.clock.advance(wait_s)
        return self.get(made.json()["name"])

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/v1/{name}").json()
        return found

    def names(self, prefix: str = "out") -> list[str]:
        items = self.http.get(f"/storage/v1/b/{BUCKET}/o", params={"prefix": prefix}).json().get("items", [])
        return [item["name"] for item in items]

    def rows(self) -> list[dict[str, Any]]:
        texts = [
            self.http.get(f"/storage/v1/b/{BUCKET}/o/{name.replace('/', '%2F')}?alt=media").text
            for name in self.names()
        ]
        return [json.loads(row) for text in texts for row in text.splitlines()]


@contextmanager
def vertex(path: Path, *faults: str, **settings: Any) -> Iterator[Vertex]:
    """Open a world for the length of a with block; its jobs take 100 s: 10 pending, 90 running."""
    clock = ManualClock(START)
    settings.setdefault("latency_s", (100.0, 100.0))
    with world_at(path, Settings(faults=faults, **settings), clock) as world:
        found = Vertex(world, clock)
        with found.http:
            yield found


# --- Google's own clients ------------------------------------------------------------------------------


def test_googles_clients_run_a_batch_from_upload_to_answers() -> None:
    """google-cloud-storage uploads, lists, downloads; google-genai in its Vertex mode makes, lists, gets, cancels."""
    with server.running(Settings(seed=1, latency_s=(5.0, 10.0))) as sim:
        url, credentials = sim.base_url_of("vertex"), Credentials("tok-of-the-test")  # type: ignore[no-untyped-call]
        objects = storage.Client(project="p", credentials=credentials, client_options={"api_endpoint": url})
        bucket = objects.bucket(BUCKET)
        bucket.blob("in/a.jsonl").upload_from_string(payload(*LINES), if_generation_match=0)
        with pytest.raises(PreconditionFailed):
            bucket.blob("in/a.jsonl").upload_from_string(b"else", if_generation_match=0)
        pieces = bucket.blob("big", chunk_size=256 << 10)
        data = bytes(range(256)) * 2_500
        pieces.upload_from_string(data)
        assert pieces.download_as_bytes() == data
        options = types.HttpOptions(base_url=url)
        client = genai.Client(
            vertexai=True, project="my-project", location="us-central1", credentials=credentials, http_options=options
        )
        wish = types.CreateBatchJobConfig(display_name="one", dest=f"gs://{BUCKET}/out")
        made = client.batches.create(model="gemini-2.5-flash", src=f"gs://{BUCKET}/in/a.jsonl", config=wish)
        assert made.state is types.JobState.JOB_STATE_PENDING
        other = client.batches.create(model="gemini-2.5-flash", src=f"gs://{BUCKET}/in/a.jsonl", config=wish)
        client.batches.cancel(name=other.name or "")
        assert client.batches.get(name=other.name or "").state is types.JobState.JOB_STATE_CANCELLING
        sim.world.advance(20.0)
        states = {job.name: job.state for job in client.batches.list(config={"page_size": 1})}
        assert states == {made.name: types.JobState.JOB_STATE_SUCCEEDED, other.name: types.JobState.JOB_STATE_CANCELLED}
        found = [blob.download_as_text() for blob in objects.list_blobs(BUCKET, prefix="out/")]
        ids = {json.loads(row)["custom_id"] for text in found for row in text.splitlines()}
        assert ids == {line["custom_id"] for line in LINES}
        with pytest.raises(NotFound):
            bucket.blob("nothing").download_as_bytes()
        with pytest.raises(Forbidden, match=r"storage\.objects\.create"):
            objects.bucket("forbidden-bucket").blob("x").upload_from_string(b"x")
        client.close()
        objects.close()


# --- jobs ----------------------------------------------------------------------------------------------


def test_a_job_goes_its_way_and_its_counts_come_when_it_runs(tmp_path: Path) -> None:
    """Pending without counts; running with an unknown rest; succeeded with what failed beside it."""
    with vertex(tmp_path, "lines@1:error_rows=2") as sim:
        job = sim.job(LINES, wait_s=5)
        assert (job["state"], "completionStats" in job) == ("JOB_STATE_PENDING", False)
        sim.clock.advance(50)
        running = sim.get(job["name"])
        assert (running["state"], running["completionStats"]["incompleteCount"]) == ("JOB_STATE_RUNNING", "-1")
        sim.clock.advance(50)
        done = sim.get(job["name"])
        assert (done["state"], done["completionStats"]) == (
            "JOB_STATE_SUCCEEDED", {"successfulCount": "4", "failedCount": "2"},
        )  # fmt: skip
        assert sim.names() == [
            f"{done['outputInfo']['gcsOutputDirectory'].removeprefix(f'gs://{BUCKET}/')}/predictions.jsonl"
        ]
        failed = [row for row in sim.rows() if row["status"]]
        assert len(failed) == 2
        assert all("response" not in row for row in failed)
        assert json.loads(failed[0]["status"].partition(": ")[2])["error"]["message"]


def test_ids_that_look_like_numbers_come_back_as_numbers(tmp_path: Path) -> None:
    """Vertex AI writes its rows anew; what is text without doubt stays."""
    with vertex(tmp_path) as sim:
        sim.job([line("000000"), line("12.5"), line("k000000")])
        assert sorted(str(row["custom_id"]) for row in sim.rows()) == ["0", "12.5", "k000000"]


@pytest.mark.parametrize(
    "second",
    [
        line(7), {**line("k"), "extra": None}, {**line("k"), "extra": {}}, {**line("k"), "a b": 1}, {"custom_id": "k"},
        line("k", generationConfig={"temperature": 1}),
    ],
)  # fmt: skip
def test_one_line_that_is_of_another_kind_fails_the_whole_job(tmp_path: Path, second: dict[str, Any]) -> None:
    """With code 3 and without a word about where."""
    with vertex(tmp_path) as sim:
        job = sim.job([line("a", generationConfig={"temperature": 0.5}), second])
        assert (job["state"], job["error"]["code"]) == ("JOB_STATE_FAILED", 3)
        assert job["error"]["message"].startswith("Failed to import data.")
        assert sim.names() == []


@pytest.mark.parametrize(
    ("more", "code", "when_s"),
    [
        ({"source": "gs://no-such-bucket/in.jsonl"}, 9, 20),
        ({"source": f"gs://{BUCKET}/missing.jsonl"}, 3, 20),
        ({"outputConfig": {"gcsDestination": {"outputUriPrefix": "gs://no-agent-bucket/out"}}}, 7, 100),
    ],
)
def test_a_bucket_that_does_not_work_shows_after_creation(
    tmp_path: Path, more: dict[str, Any], code: int, when_s: float
) -> None:
    """The service agent's missing role even after the job has run; none of it is billed."""
    with vertex(tmp_path) as sim:
        job = sim.job(LINES, wait_s=5, **more)
        assert job["state"] == "JOB_STATE_PENDING"
        sim.clock.advance(when_s)
        done = sim.get(job["name"])
        assert (done["state"], done["error"]["code"]) == ("JOB_STATE_FAILED", code)
        assert not sim.world.ledger.bills


def test_a_cancelled_job_writes_out_what_it_had(tmp_path: Path) -> None:
    """Finished rows come, and are billed; there is no row for the others. Too late is a 400."""
    with vertex(tmp_path) as sim:
        job = sim.job([line(f"k{n}") for n in range(40)], wait_s=50)
        assert sim.http.post(f"/v1/{job['name']}:cancel", json={}).json() == {}
        assert sim.get(job["name"])["state"] == "JOB_STATE_CANCELLING"
        sim.clock.advance(5)
        done = sim.get(job["name"])
        n = len(sim.rows())
        assert (done["state"], done["completionStats"]["successfulCount"]) == ("JOB_STATE_CANCELLED", str(n))
        assert 0 < n < 40
        assert [bill.n_requests for bill in sim.world.ledger.bills.values()] == [n]
        late = sim.http.post(f"/v1/{job['name']}:cancel", json={})
        assert (late.status_code, late.json()["error"]["status"]) == (400, "FAILED_PRECONDITION")


def test_rows_can_come_in_several_objects(tmp_path: Path) -> None:
    """Incremental ones beside the last: together they are all."""
    with vertex(tmp_path, "batches.create@1:shards=3") as sim:
        sim.job(LINES)
        assert [name.rpartition("/")[2] for name in sim.names()] == [
            "incremental_predictions_00000.jsonl", "incremental_predictions_00001.jsonl", "predictions.jsonl",
        ]  # fmt: skip
        assert sorted(row["custom_id"] for row in sim.rows()) == sorted(each["custom_id"] for each in LINES)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("labels.batchpond=tok-1", 1), ("labels.batchpond=tok-2", 0), ("labels.batchpond:*", 1),
        ('display_name="tok-1" AND state="JOB_STATE_PENDING"', 1), ('display_name:"tok-*"', 1),
        ('state!="JOB_STATE_PENDING"', 0), ('create_time>"2026-11-20T00:00:00Z"', 1),
        ('create_time>"2027-01-01T00:00:00Z"', 0), ("", 1),
    ],
)  # fmt: skip
def test_the_listing_takes_the_documented_filters(tmp_path: Path, text: str, n: int) -> None:
    """Anything else is a 400, not a listing of everything."""
    with vertex(tmp_path) as sim:
        sim.post_job()
        found = sim.http.get(PARENT, params={"filter": text}).json()
        assert len(found.get("batchPredictionJobs", [])) == n
        assert sim.http.get(PARENT, params={"filter": "batchpond is mine"}).status_code == 400


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"model": "publishers/google/models/gemini-0"}, 404, "PublisherModel"),
        ({"displayName": ""}, 400, "displayName"),
        ({"labels": {"batchpond": "Upper"}}, 400, "label"), ({"inputConfig": {}}, 400, "gcs_source"),
        ({"outputConfig": {"gcsDestination": {"outputUriPrefix": "s3://b"}}}, 400, "prefix"),
        ({"x": 1}, 400, "Unknown name"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_create_is_said_and_nothing_is_made(
    tmp_path: Path, more: dict[str, Any], status: int, text: str
) -> None:
    """As google.rpc.Status."""
    with vertex(tmp_path) as sim:
        answer = sim.post_job(**more)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)
        assert text in answer.json()["error"]["message"]
        assert not sim.world.ledger.batches


def test_projects_locations_and_keys_see_their_own_jobs_and_objects(tmp_path: Path) -> None:
    """A project's number is as good as its name; without a token nothing is seen."""
    with vertex(tmp_path, keys={"tok-canary": "one", "tok-other": "two"}) as sim:
        job = sim.job(LINES)
        by_number = f"/v1/{job['name'].rpartition('/')[0]}"
        assert len(sim.http.get(by_number).json()["batchPredictionJobs"]) == 1
        assert sim.http.get(PARENT.replace("us-central1", "europe-west4")).json() == {}
        other = {"Authorization": "Bearer tok-other"}
        assert sim.http.get(PARENT, headers=other).json() == {}
        assert sim.http.get(f"/v1/{job['name']}", headers=other).status_code == 404
        assert sim.http.get(f"/storage/v1/b/{BUCKET}/o/in.jsonl", headers=other).status_code == 403
        for bad in ("", "Bearer nobody"):
            assert sim.http.get(PARENT, headers={"Authorization": bad}).status_code == 401


def test_a_job_that_has_ended_can_be_deleted_and_its_output_stays(tmp_path: Path) -> None:
    """The bucket is the user's."""
    with vertex(tmp_path) as sim:
        job = sim.job(LINES, wait_s=5)
        assert sim.http.delete(f"/v1/{job['name']}").status_code == 400
        sim.clock.advance(100)
        assert sim.http.delete(f"/v1/{job['name']}").json()["done"] is True
        assert sim.http.get(f"/v1/{job['name']}").status_code == 404
        assert len(sim.rows()) == 6


def test_objects_and_jobs_outlive_the_simulator(tmp_path: Path) -> None:
    """What an answer said is in the folder before it leaves."""
    with vertex(tmp_path) as sim:
        job = sim.job(LINES, wait_s=50)
    with vertex(tmp_path) as sim:
        sim.clock.advance(100)
        assert sim.get(job["name"])["state"] == "JOB_STATE_SUCCEEDED"
        assert len(sim.rows()) == 6


# --- objects -------------------------------------------------------------------------------------------


def test_an_upload_in_pieces_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """308 says how far it came; a piece that does not fit is refused; the last answer can be asked for again."""
    data = b"x" * (256 << 10) * 2 + b"tail"
    with vertex(tmp_path, "files.upload@3:cut_upload=100") as sim:
        where = f"/upload/storage/v1/b/{BUCKET}/o"
        begun = sim.http.post(
            where, params={"uploadType": "resumable", "name": "a/b c", "ifGenerationMatch": 0}, json={}
        )
        own = begun.headers["location"]

        def piece(first: int, end: int) -> httpx.Response:
            span = f"bytes {first}-{end - 1}/{len(data)}"
            return sim.http.put(own, content=data[first:end], headers={"Content-Range": span})

        def asked() -> httpx.Response:
            return sim.http.put(own, headers={"Content-Range": f"bytes */{len(data)}"})

        assert (asked().status_code, asked().headers.get("range")) == (308, None)
        with pytest.raises(httpx.ReadError):
            piece(0, 256 << 10)
        assert asked().headers["range"] == "bytes=0-99"
        assert piece(0, 256 << 10).status_code == 400
        assert piece(100, 100 + (256 << 10)).status_code == 308
        done = piece(100 + (256 << 10), len(data))
        assert (done.status_code, done.json()["size"]) == (200, str(len(data)))
        assert asked().json()["generation"] == done.json()["generation"]
        assert sim.http.get(f"/storage/v1/b/{BUCKET}/o/a%2Fb%20c?alt=media").content == data
        assert sim.names("a/") == ["a/b c"]


def test_preconditions_hold_at_the_start_and_at_the_end(tmp_path: Path) -> None:
    """0 is "nothing is there"; a generation is that one and no other."""
    with vertex(tmp_path) as sim:
        where = f"/upload/storage/v1/b/{BUCKET}/o"

        def upload(generation: int) -> httpx.Response:
            params: dict[str, Any] = {"uploadType": "media", "name": "x", "ifGenerationMatch": generation}
            return sim.http.post(where, params=params, content=b"data")

        begun = sim.http.post(where, params={"uploadType": "resumable", "name": "x", "ifGenerationMatch": 0}, json={})
        first = upload(0).json()["generation"]
        assert upload(0).status_code == 412
        late = sim.http.put(begun.headers["location"], content=b"d", headers={"Content-Range": "bytes 0-0/1"})
        assert late.status_code == 412
        second = upload(int(first)).json()["generation"]
        assert upload(int(first)).status_code == 412
        item = f"/storage/v1/b/{BUCKET}/o/x"
        assert sim.http.delete(item, params={"ifGenerationMatch": first}).status_code == 412
        assert sim.http.delete(item, params={"ifGenerationMatch": second}).status_code == 204
        assert sim.http.get(item).status_code == 404


@pytest.mark.parametrize("page_rows", [1, 2, 1_000])
def test_a_listing_of_objects_is_by_name_and_in_pages(tmp_path: Path, page_rows: int) -> None:
    """The bytes of the names decide, and each comes once."""
    with vertex(tmp_path) as sim:
        for name in ("b", "a/2", "a/1", "a/10", "ä"):
            sim.put(name, b"x")
        found: list[str] = []
        params: dict[str, Any] = {"maxResults": page_rows}
        while True:
            page = sim.http.get(f"/storage/v1/b/{BUCKET}/o", params=params).json()
            found += [item["name"] for item in page.get("items", [])]
            if "nextPageToken" not in page:
                break
            params["pageToken"] = page["nextPageToken"]
        assert found == ["a/1", "a/10", "a/2", "b", "ä"]
        assert sim.http.get("/storage/v1/b/no-such-bucket/o").status_code == 404


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"grant_type": "refresh_token", "refresh_token": "r", "client_id": "c"}, 200),
        ({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "a.b.c"}, 400),
        ({"grant_type": "password"}, 400),
    ],
)
def test_the_token_endpoint_gives_an_hour(tmp_path: Path, form: dict[str, str], status: int) -> None:
    """And what it gave is refused when the hour is over."""
    with vertex(tmp_path) as sim:
        answer = sim.http.post("/token", data=form)
        assert answer.status_code == status
        if status == 200:
            bearer = {"Authorization": f"Bearer {answer.json()['access_token']}"}
            assert sim.http.get(PARENT, headers=bearer).status_code == 200
            sim.clock.advance(3_600)
            late = sim.http.get(PARENT, headers=bearer)
            assert late.json()["error"]["details"][0]["reason"] == "ACCESS_TOKEN_EXPIRED"
