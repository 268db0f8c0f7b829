"""A local Vertex AI with its Cloud Storage and its token endpoint, below `/vertex`.

`/vertex/v1/projects/...` are batch prediction jobs, `/vertex/storage/v1/...` and `/vertex/upload/storage/v1/...` the
JSON API of Cloud Storage, `/vertex/token` gives tokens of an hour. Any project and location are there; in
projects with `forbidden` in their names the caller may do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from batchpond_sim.faults.faults import Op, Stage
from batchpond_sim.gemini.models import family_of
from batchpond_sim.gemini.views import error_reply, fault_reply, quota_reply, reply
from batchpond_sim.host.wire import Answer, Break, BreakKind, Reply, Request
from batchpond_sim.shared.api import Api, Route, routes
from batchpond_sim.shared.life import view_faults
from batchpond_sim.shared.pages import PageError
from batchpond_sim.shared.token_pages import Paging, listing_of, page_of
from batchpond_sim.storage.api import StorageDesk
from batchpond_sim.storage.remote import RemoteStore
from batchpond_sim.storage.store import FORBIDDEN, LocalStore
from batchpond_sim.storage.views import BASE_PATH
from batchpond_sim.vertex.filter import is_shown
from batchpond_sim.vertex.life import ENDED, PROVIDER, JobRecord, VertexAccount, number_of
from batchpond_sim.vertex.tokens import TokenDesk
from batchpond_sim.vertex.views import denied, job_view, no_login, no_model
from batchpond_sim.world.ledger import fingerprint
from batchpond_sim.world.world import Call, World

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
        self._storage = StorageDesk(world, store)
        self._tokens = TokenDesk(world)
        super().__init__(world, PROVIDER, BASE_PATH, "simulated-account")

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
                ("POST", r"/token", Op.ANY, self._tokens.give),
            ),
            *self._storage.routes(),
        )

    def tick(self) -> None:
        """Make every change that is due by now."""
        with self._world.lock:
            self.account.tick()

    # -- the door -----------------------------------------------------------------------------

    def key_of(self, request: Request) -> str:
        """Return the token that a request carries."""
        return request.bearer

    def refused(self, request: Request, key: str, project: str | None) -> Reply | None:
        """Return the refusal of a missing or wrong token; an upload's own address and a login need none."""
        if "upload_id" in request.query or request.path == f"{BASE_PATH}/token":
            return None
        is_good = bool(key) and project is not None and self._tokens.is_good(key)
        return None if is_good else no_login(is_expired=bool(key))

    def fault_reply(self, status: int, kind: str) -> Reply:
        """Return the error body of a status."""
        return fault_reply(status, kind)

    def bad_json(self, detail: str) -> Reply:
        """Return the error of a body that is not JSON."""
        return error_reply(400, f"Invalid JSON payload received. {detail}")

    def bad_page(self, error: PageError) -> Reply:
        """Return the error of a wrong page size, token or filter."""
        return error_reply(400, str(error))

    def no_route(self, request: Request) -> Reply:
        """Return the answer where there is nothing."""
        return error_reply(404, f"Method not found: {request.method} {request.path.removeprefix(BASE_PATH)}")

    def headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer: Google gives requests no id."""
        return (("server", "ESF"), ("vary", "Origin, X-Origin, Referer"))

    def _route(self, request: Request) -> tuple[Route | None, str]:
        route, argument = super()._route(request)
        if route is None:
            return None, ""
        return replace(route, op=self._storage.operation(request, route.op)), argument

    # -- jobs ---------------------------------------------------------------------------------

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
            made = self.account.create(draft, call, fingerprint(self.key_of(request)))
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
