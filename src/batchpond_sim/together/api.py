"""A local Together: files both ways, batches, models and chat completions, below `/together/v1`.

Paths, bodies and states are those of the public API (OpenAPI file of 2026-04-28, together 3.1, recorded traffic of
2026-09); `handle` is pure but for the world it is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchpond_sim.faults.delivery import delivered
from batchpond_sim.faults.faults import Op, Stage
from batchpond_sim.host.wire import Answer, Break, BreakKind, Reply, Request, json_reply
from batchpond_sim.shared.api import Api, Route, routes
from batchpond_sim.shared.life import view_faults
from batchpond_sim.shared.live import forced
from batchpond_sim.shared.pages import PageError, page_at
from batchpond_sim.together.answers import answer, error_body
from batchpond_sim.together.life import PROVIDER, BatchRecord, TogetherAccount
from batchpond_sim.together.rows import SHAPE
from batchpond_sim.together.uploads import Uploads
from batchpond_sim.together.views import (
    batch_view,
    fault_reply,
    file_view,
    no_file,
    no_key,
    refused_batch,
    stamped,
    text_error,
)
from batchpond_sim.world.ledger import fingerprint
from batchpond_sim.world.limits import Quota, per_second_headers
from batchpond_sim.world.world import Call, World

BASE_PATH = "/together"
MODELS = (
    "meta-llama/Llama-3.3-70B-Instruct-Turbo", "openai/gpt-oss-120b", "openai/gpt-oss-20b", "Qwen/Qwen3.5-9B",
    "moonshotai/Kimi-K3",
)  # fmt: skip


class TogetherSimulator(Api):
    """The API of one world."""

    def __init__(self, world: World) -> None:
        self.account = TogetherAccount(world)
        self._uploads = Uploads(world, self.account)
        super().__init__(world, PROVIDER, BASE_PATH, "proj_simulated")

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        uploads = self._uploads
        return routes(
            ("POST", r"/v1/files/upload", Op.FILES_CREATE, uploads.direct),
            ("POST", r"/v1/files", Op.FILES_CREATE, uploads.announce),
            ("PUT", r"/storage/([^/]+)", Op.FILES_UPLOAD, uploads.put),
            ("POST", r"/v1/files/([^/]+)/preprocess", Op.FILES_GET, uploads.finish),
            ("GET", r"/v1/files", Op.FILES_LIST, self._list_files),
            ("GET", r"/v1/files/([^/]+)/content", Op.FILES_CONTENT, self._content),
            ("GET", r"/v1/files/([^/]+)", Op.FILES_GET, self._get_file),
            ("DELETE", r"/v1/files/([^/]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", r"/v1/batches", Op.BATCHES_CREATE, self._create_batch),
            ("GET", r"/v1/batches", Op.BATCHES_LIST, self._list_batches),
            ("POST", r"/v1/batches/([^/]+)/cancel", Op.BATCHES_CANCEL, self._cancel_batch),
            ("GET", r"/v1/batches/([^/]+)", Op.BATCHES_GET, self._get_batch),
            ("GET", r"/v1/models", Op.MODELS_LIST, self._models),
            ("POST", r"/v1/chat/completions", Op.LIVE, self._live),
        )

    def tick(self) -> None:
        """Make every change that is due by now."""
        with self._world.lock:
            self.account.tick()

    # -- the door -----------------------------------------------------------------------------

    def key_of(self, request: Request) -> str:
        """Return the bearer key."""
        return request.bearer

    def refused(self, request: Request, key: str, project: str | None) -> Reply | None:
        """Return the refusal of a missing or wrong key; the storage takes none but the address itself."""
        if request.method == "PUT":
            return text_error(400, "the storage takes no key beside a signed address") if key else None
        return no_key() if not key or project is None else None

    def fault_reply(self, status: int, kind: str) -> Reply:
        """Return the error body of a status."""
        return fault_reply(status, kind)

    def bad_json(self, _detail: str) -> Reply:
        """Return the error of a body that is not JSON."""
        return text_error(400, "Invalid request body")

    def bad_page(self, error: PageError) -> Reply:
        """Return the error of a listing; there is nothing to ask for wrongly."""
        return text_error(error.status, str(error))

    def no_route(self, request: Request) -> Reply:
        """Return the answer where there is nothing."""
        return json_reply(404, error_body(f"no route for {request.method} {request.path.removeprefix(BASE_PATH)}"))

    def headers(self, request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer: the request id is that of the proxy in front of the API."""
        return (("cf-ray", f"{request_id[:16]}-SIM"),)

    def stamp(self, reply: Reply, request_id: str) -> Reply:
        """Return an answer whose error, where it is bare text, names the request."""
        return stamped(reply, request_id)

    def limit_headers(self, quota: Quota) -> Iterable[tuple[str, str]]:
        """Return the limits, which are told by the second."""
        return per_second_headers(quota)

    def limited(self, _quota: Quota) -> Reply:
        """Return the refusal of a live call that is beyond a limit."""
        body = error_body("You have reached the rate limit of this model.", "rate_limit")
        return json_reply(429, body | {"error_type": "dynamic_request_limited"})

    # -- files --------------------------------------------------------------------------------

    def _list_files(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            records = list(self.account.listed_files(project, now, call))
            _fail_if_asked(call)
            return json_reply(200, {"data": [file_view(record) for record in records]})

    def _get_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            record = self.account.file(argument, project)
            return no_file(argument) if record is None else json_reply(200, file_view(record))

    def _delete_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            if self.account.file(argument, project) is None:
                return no_file(argument)
            self.account.drop_file(argument)
            return json_reply(200, {"id": argument, "deleted": True})

    def _content(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            path = self.account.content(argument, project)
            return no_file(argument) if path is None else delivered(path, call, SHAPE.row_id)

    # -- batches ------------------------------------------------------------------------------

    def _create_batch(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body = request.read_json()
        refused = refused_batch(body)
        if refused is not None:
            return refused
        if call.has(Stage.EFFECT, "enqueued"):
            return text_error(429, "Too many tokens are waiting for this model. Please try again later.")
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.create(self._draft(body, call, project), call, fingerprint(request.bearer))
            if "delay_exec" in batch.effects:
                return Break(BreakKind.RESET)
            return json_reply(201, {"job": batch_view(batch, now, view_faults(batch, call))})

    def _draft(self, body: dict[str, Any], call: Call, project: str) -> BatchRecord:
        digits = self._world.name("batch", call.n) + self._world.name("batch-tail", call.n)[:8]
        source = self.account.file(body["input_file_id"], project)
        return BatchRecord(
            id="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            project=project,
            endpoint=body["endpoint"],
            input_file_id=body["input_file_id"],
            first_custom_id=self.account.first_custom_id(body["input_file_id"]),
            file_size_bytes=0 if source is None else source.size_bytes,
        )

    def _get_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.fetch(argument, project, now)
            if batch is None:
                return text_error(404, "Job not found")
            return json_reply(200, batch_view(batch, now, view_faults(batch, call)))

    def _list_batches(self, _request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Return all batches as a bare array, in no order that anybody could rely on."""
        with self._world.lock:
            now = self.account.tick()
            batches = sorted(self.account.listed(project, now, call), key=lambda batch: batch.id)
            _fail_if_asked(call)
            return json_reply(200, [batch_view(batch, now, view_faults(batch, call)) for batch in batches])

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return text_error(404, "Job not found")
            if batch.is_ended:
                return text_error(409, f"Cannot cancel job - already in terminal state: {batch.status(now)}")
            changed = self.account.cancel(batch, call, now)
            if changed is None:
                return text_error(409, "Cannot cancel job - it is being completed")
            return json_reply(200, batch_view(changed, now, view_faults(changed, call)))

    # -- models and live calls ----------------------------------------------------------------

    def _models(self, _request: Request, _call: Call, _project: str, _argument: str) -> Answer:
        return json_reply(200, [{"id": name, "object": "model", "created": 0, "type": "chat"} for name in MODELS])

    def _live(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or body.get("stream"):
            return json_reply(400, error_body("This simulator takes JSON objects without streaming."))
        said = answer(body, self.live_key(body), self._world.panel, int(self._world.now_s()), forced(call))
        if said.is_success:
            self.bill_live(call, str(body["model"]), said.input_tokens, said.output_tokens)
        return json_reply(said.status, said.body)


def _fail_if_asked(call: Call) -> None:
    """Raise PageError where a fault makes the only page of a listing fail; other faults of paging mean nothing here."""
    page_at((), 0, 1, call)
