"""A local Vertex AI with its Cloud Storage and its token endpoint, below `/vertex`.

`/vertex/v1/projects/...` are batch prediction jobs, `/vertex/storage/v1/...` and `/vertex/upload/storage/v1/...` the
JSON API of Cloud Storage, `/vertex/token` gives tokens of an hour. Any project and location are there; in
projects with `forbidden` in their names the caller may do nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs

import orjson

from batchpond_sim.gemini.answers import family_of
from batchpond_sim.host.messages import CHUNK_BYTES, Answer, Break, BreakKind, Reply, Request, json_reply
from batchpond_sim.shared.api import Api, PageError, Route, routes
from batchpond_sim.shared.batches import Records, view_faults
from batchpond_sim.shared.google import (
    RPC,
    Paging,
    error_reply,
    fault_reply,
    listing_of,
    page_of,
    quota_reply,
    reply,
    timestamp,
)
from batchpond_sim.vertex.batches import ENDED, PROVIDER, JobRecord, VertexAccount, number_of
from batchpond_sim.vertex.storage import BASE_PATH, CALLER, FORBIDDEN, LocalStore, RemoteStore, StorageRoutes
from batchpond_sim.world.faults import Call, Op, Stage, Value, number
from batchpond_sim.world.world import World, fingerprint

__all__ = ["BASE_PATH", "VertexSimulator"]

_PAGING = Paging("pageSize", 100, 100)
_LABEL = re.compile(r"[a-z0-9_-]{0,64}")
_URI = re.compile(r"gs://[a-z0-9._-]+/.+")
_RETRY_S = 34
_FIELDS = frozenset({"displayName", "model", "inputConfig", "outputConfig", "labels", "modelParameters", "name"})


class VertexSimulator(Api):
    """The API of one world."""

    def __init__(self, world: World) -> None:
        store = LocalStore(world)
        url = world.settings.storage_url
        self.account = VertexAccount(world, RemoteStore(url) if url else store)
        self._storage = StorageRoutes(world, store)
        self._given: Records[TokenRecord] = Records(world.folder("vertex", "tokens"), TokenRecord)
        super().__init__(world, PROVIDER, BASE_PATH, "simulated-account", self.account.tick)

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        parent = r"/v1(?:beta1)?/projects/([^/]+/locations/[^/]+)/batchPredictionJobs"
        item = r"/v1(?:beta1)?/projects/([^/]+/locations/[^/]+/batchPredictionJobs/[^/:]+)"
        return (
            *routes(
                ("POST", parent, Op.BATCHES_CREATE, self._create),
                ("GET", parent, Op.BATCHES_LIST, self._list),
                ("POST", f"{item}:cancel", Op.BATCHES_CANCEL, self._cancel),
                ("GET", item, Op.BATCHES_GET, self._get),
                ("DELETE", item, Op.BATCHES_DELETE, self._delete),
                ("POST", r"/token", Op.ANY, self._give_token),
            ),
            *self._storage.routes(),
        )

    def _refusal(self, request: Request, key: str, project: str | None) -> Reply | None:
        if "upload_id" in request.query or request.path == f"{BASE_PATH}/token":
            return None
        is_good = bool(key) and project is not None and self._is_good(key)
        return None if is_good else no_login(is_expired=bool(key))

    def _fault_reply(self, status: int, kind: str) -> Reply:
        return fault_reply(status, kind)

    def _bad_json(self, detail: str) -> Reply:
        return error_reply(400, f"Invalid JSON payload received. {detail}")

    def _bad_page(self, error: PageError) -> Reply:
        return error_reply(400, str(error))

    def _no_route(self, request: Request) -> Reply:
        return error_reply(404, f"Method not found: {request.method} {request.path.removeprefix(BASE_PATH)}")

    def _headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        return (("server", "ESF"), ("vary", "Origin, X-Origin, Referer"))

    def _route(self, request: Request) -> tuple[Route | None, str]:
        route, argument = super()._route(request)
        if route is None:
            return None, ""
        return replace(route, op=self._storage.operation(request, route.op)), argument

    def _create(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        body = request.read_json()
        job = body if isinstance(body, dict) else {}
        wrong = _wrong(job)
        if FORBIDDEN in argument:
            return denied("aiplatform.batchPredictionJobs.create", f"projects/{argument}")
        if wrong is not None:
            return error_reply(400, wrong)
        model = job["model"].rpartition("/")[2]
        if family_of(model) is None:
            return no_model(job["model"])
        if call.has(Stage.EFFECT, "enqueued"):
            return quota_reply(model, _RETRY_S)
        number, location = _place(argument)
        draft = JobRecord(
            id=str(int(self._world.name("job", call.n)[:15], 16)),
            project=_scope(project, argument),
            owner=project,
            number=number,
            location=location,
            endpoint="generateContent",
            model=model,
            model_path=job["model"],
            input_file_id=job["inputConfig"]["gcsSource"]["uris"][0],
            output_prefix=job["outputConfig"]["gcsDestination"]["outputUriPrefix"],
            display_name=job["displayName"],
            labels=job.get("labels", {}),
            metadata={"displayName": job["displayName"], **job.get("labels", {})},
        )
        with self._world.lock:
            self.account.tick()
            made = self.account.create(draft, call, fingerprint(self._key(request)))
            if "delay_exec" in made.effects:
                return Break(BreakKind.RESET)
            return reply(200, job_view(made, self._world.now_s(), view_faults(made, call)))

    def _found(self, project: str, argument: str, call: Call) -> tuple[JobRecord | None, float]:
        now = self.account.tick()
        place, _, job_id = argument.partition("/batchPredictionJobs/")
        find = self.account.fetch if call.op is Op.BATCHES_GET else self.account.find
        return find(job_id, _scope(project, place), now), now

    def _get(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            job, now = self._found(project, argument, call)
            return error_reply(404) if job is None else reply(200, job_view(job, now, view_faults(job, call)))

    def _list(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        if FORBIDDEN in argument:
            return denied("aiplatform.batchPredictionJobs.list", f"projects/{argument}")
        with self._world.lock:
            now = self.account.tick()
            scope, wanted = _scope(project, argument), request.query.get("filter", "")
            listed = (job for job in self.account.listed(scope, now, call) if not job.is_deleted)
            views = {job.id: job_view(job, now, view_faults(job, call)) for job in listed}
            shown = [job_id for job_id, view in views.items() if is_shown(view, wanted)]
            page = page_of(shown, request, call, _PAGING)
            return reply(200, listing_of("batchPredictionJobs", page, [views[job_id] for job_id in page.ids]))

    def _cancel(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            job, now = self._found(project, argument, call)
            if job is None:
                return error_reply(404)
            if job.is_ended:
                return error_reply(400, "The job has ended and cannot be cancelled.", "FAILED_PRECONDITION")
            return error_reply(409) if self.account.cancel(job, call, now) is None else reply(200, {})

    def _delete(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            job, now = self._found(project, argument, call)
            if job is None:
                return error_reply(404)
            if job.state(now) not in ENDED:
                return error_reply(400, "The job has not ended and cannot be deleted.", "FAILED_PRECONDITION")
            self.account.put(replace(job, is_deleted=True))
            return reply(200, {"name": f"{job.name}/operations/1", "done": True, "response": {}})

    def _is_good(self, token: str) -> bool:
        """Return whether a token lets its bearer in: one that was given out here must not have run out."""
        if not token.startswith(PREFIX):
            return True
        record = self._given.get(token.removeprefix(PREFIX))
        return record is not None and self._world.now_s() < record.expires_s

    def _give_token(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        """Answer a request for a token."""
        form = {name: values[0] for name, values in parse_qs(_text(request)).items()}
        is_signed = form.get("grant_type") == _GRANT and _is_assertion(form.get("assertion", ""))
        if not is_signed and not (form.get("grant_type") == "refresh_token" and form.get("refresh_token")):
            return json_reply(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        with self._world.lock:
            record = TokenRecord(
                self._world.name("token", call.n), self._given.next_n(), self._world.now_s() + LIFETIME_S
            )
            self._given.put(record)
        body = {"access_token": PREFIX + record.id, "expires_in": LIFETIME_S, "token_type": "Bearer"}
        return json_reply(200, body)


def _place(argument: str) -> tuple[str, str]:
    project, _, location = argument.partition("/locations/")
    return number_of(project), location


def _scope(project: str, argument: str) -> str:
    return "|".join((project, *_place(argument)))


def _wrong(job: dict[str, Any]) -> str | None:
    """Return what is wrong with a job, None when it can be made."""
    unknown = min(job.keys() - _FIELDS, default=None)
    if unknown is not None:
        return (
            f"Invalid JSON payload received. Unknown name \"{unknown}\" at 'batch_prediction_job': Cannot find field."
        )
    for name in ("displayName", "model"):
        if not isinstance(job.get(name), str) or not job[name]:
            return f"{name} is required."
    source, destination = _within(job, "inputConfig", "gcsSource"), _within(job, "outputConfig", "gcsDestination")
    uris = source.get("uris")
    if not isinstance(uris, list) or len(uris) != 1 or not _URI.fullmatch(str(uris[0])):
        return "input_config.gcs_source.uris must name an object."
    if not _URI.fullmatch(str(destination.get("outputUriPrefix"))):
        return "output_config.gcs_destination.output_uri_prefix must name a folder."
    labels = job.get("labels", {})
    if not isinstance(labels, dict) or not all(_LABEL.fullmatch(text) for pair in labels.items() for text in pair):
        return "Invalid label: letters must be lower case, at most 64 of them."
    return None


def _within(job: dict[str, Any], *names: str) -> dict[str, Any]:
    found: Any = job
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


_TERM = re.compile(r'(labels\.[\w-]+|display_name|state|create_time)(:\*|!=|<=|>=|=|<|>|:)("[^"]*"|[^\s"]*)')
_FILTERED = {"display_name": "displayName", "state": "state", "create_time": "createTime"}


def is_shown(view: Mapping[str, Any], text: str) -> bool:
    """Return whether a filter lets a job through; raises PageError for one that cannot be read."""
    return all(_holds(view, term.strip()) for term in re.split(r"\s+AND\s+", text.strip()) if term)


def _holds(view: Mapping[str, Any], term: str) -> bool:
    match = _TERM.fullmatch(term)
    if match is None:
        raise PageError(400, f"Invalid filter: {term}", "filter")
    name, operator, value = match[1], match[2], match[3].strip('"')
    if name.startswith("labels."):
        found = view.get("labels", {}).get(name.removeprefix("labels."))
    else:
        found = view.get(_FILTERED[name])
    match operator:
        case ":*":
            return found is not None
        case ":":
            return fnmatchcase(found or "", value)
        case "=":
            return bool(found == value)
        case "!=":
            return bool(found != value)
        case _:
            return _compares(str(found), operator, value)


def _compares(found: str, operator: str, value: str) -> bool:
    # RFC 3339 in UTC: without their zone, the texts sort as the times do.
    one, two = found.rstrip("Z"), value.rstrip("Z")
    return {"<": one < two, "<=": one <= two, ">": one > two, ">=": one >= two}[operator]


PREFIX = "ya29.simulated-"
LIFETIME_S = 3_599
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token that was given out."""

    id: str
    n: int
    expires_s: float


def _text(request: Request) -> str:
    return request.body.read(CHUNK_BYTES).decode("latin-1")


def _is_assertion(text: str) -> bool:
    parts = text.split(".")
    if len(parts) != 3:
        return False
    head, claims = _decoded(parts[0]), _decoded(parts[1])
    return head.get("alg") == "RS256" and {"iss", "scope", "aud", "iat", "exp"} <= claims.keys()


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def no_login(*, is_expired: bool) -> Reply:
    """Return the answer to a call without a token, or with one that has run out or is none."""
    text = (
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid"
        " authentication credential."
    )
    reason = "ACCESS_TOKEN_EXPIRED" if is_expired else "CREDENTIALS_MISSING"
    details = [{"@type": f"{RPC}.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    return error_reply(401, text, details=details)


def denied(permission: str, resource: str) -> Reply:
    """Return the refusal of a permission."""
    place = f"'//aiplatform.googleapis.com/{resource}'"
    return error_reply(403, f"Permission '{permission}' denied on resource {place} (or it may not exist). [{CALLER}]")


def no_model(model: str) -> Reply:
    """Return the answer about a model that is not there."""
    return error_reply(404, f"The PublisherModel {model} does not exist.")


def job_view(job: JobRecord, now_s: float, faults: Mapping[str, Value]) -> dict[str, Any]:
    """Return a job as the API shows it, or as `faults` make it look."""
    state = job.state(now_s)
    if "regress" in faults and state in ENDED:
        state = "running"
    is_over = state in ENDED
    skew = number(faults.get("clock_skew"))
    word = str(faults.get("status_word") or state).upper()
    view: dict[str, Any] = {
        "name": job.name,
        "displayName": job.display_name,
        "model": job.model_path,
        "inputConfig": {"instancesFormat": "jsonl", "gcsSource": {"uris": [job.input_file_id]}},
        "outputConfig": {"predictionsFormat": "jsonl", "gcsDestination": {"outputUriPrefix": job.output_prefix}},
        "outputInfo": _output_info(job, faults, is_over=is_over),
        "state": f"JOB_STATE_{word}",
        "error": {"code": job.error_code, "message": job.error_text} if is_over and job.error_code else None,
        "completionStats": _stats(job, now_s, faults, is_over=is_over),
        "createTime": timestamp(job.created_s + skew),
        "startTime": timestamp(job.valid_s + skew) if job.is_validated else None,
        "endTime": timestamp(job.done_s + skew) if is_over else None,
        "updateTime": timestamp((job.done_s if is_over else job.created_s) + skew),
        "labels": job.labels or None,
        "modelVersionId": "1",
    }
    if state == "cancelled":
        view["error"] = {"code": 1, "message": "CANCELED"}
    if "no_input_config" in faults:
        del view["inputConfig"]
    return {name: value for name, value in view.items() if value is not None}


def _output_info(job: JobRecord, faults: Mapping[str, Value], *, is_over: bool) -> dict[str, str] | None:
    if not is_over:
        return {"gcsOutputDirectory": ""} if "error_file_empty_string" in faults else None
    return None if faults.get("output_at") == "metadata" else {"gcsOutputDirectory": job.folder}


def _stats(job: JobRecord, now_s: float, faults: Mapping[str, Value], *, is_over: bool) -> dict[str, Any] | None:
    if "counts_null" in faults or not job.is_counted:
        return None
    share = 1.0 if is_over else job.share_done(now_s)
    if "counts_late" in faults and not is_over:
        share = 0.0
    good, bad = int(job.n_completed * share), int(job.n_failed * share)
    if "counts_wrong" in faults:
        good, bad = (0 if good == 1 else 1), 0
    counts = {
        "successfulCount": good,
        "failedCount": bad,
        "incompleteCount": -1 if not is_over else job.n_total - good - bad,
    }
    return {name: n if "counts_text" in faults else str(n) for name, n in counts.items() if n}
