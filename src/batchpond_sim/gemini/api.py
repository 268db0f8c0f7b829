"""A local Gemini API: files with resumable uploads, batches, models and live calls, below `/gemini`.

`/gemini/v1beta/...` and `/gemini/v1/...` are the same; uploads and downloads have `/upload` and
`/download` before the version. Paths, codes, bodies and states are those of the public API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from batchpond_sim.faults.delivery import delivered
from batchpond_sim.faults.faults import Op, Stage, number
from batchpond_sim.gemini.answers import answer
from batchpond_sim.gemini.create import Creation
from batchpond_sim.gemini.life import PROVIDER, BatchRecord, GeminiAccount
from batchpond_sim.gemini.models import MODELS, family_of
from batchpond_sim.gemini.rows import SHAPE, inlined
from batchpond_sim.gemini.store import GENERATED
from batchpond_sim.gemini.uploads import UploadDesk
from batchpond_sim.gemini.views import (
    bad_key,
    error_reply,
    fault_reply,
    file_view,
    limited_reply,
    no_file,
    no_key,
    no_model,
    operation_view,
    reply,
)
from batchpond_sim.host.wire import Answer, Reply, Request
from batchpond_sim.shared.api import Api, Route, routes
from batchpond_sim.shared.life import view_faults
from batchpond_sim.shared.live import forced
from batchpond_sim.shared.pages import PageError
from batchpond_sim.shared.token_pages import Paging, listing_of, page_of
from batchpond_sim.world.limits import Quota
from batchpond_sim.world.world import Call, World

BASE_PATH = "/gemini"
_PAGING = Paging("pageSize", 10, 100)
NAME_MAX_CHARS = 40
_V = r"/(?:v1beta|v1)"


class GeminiSimulator(Api):
    """The API of one world."""

    def __init__(self, world: World) -> None:
        self.account = GeminiAccount(world)
        self._uploads = UploadDesk(world, self.account)
        self._creation = Creation(world, self.account)
        super().__init__(world, PROVIDER, BASE_PATH, "gen-lang-client-simulated")

    def routes(self) -> tuple[Route, ...]:
        """Return what there is below the base path."""
        model = r"/models/([^/:]+)"
        return routes(
            ("POST", rf"/upload{_V}/files", Op.FILES_CREATE, self._upload),
            ("GET", rf"{_V}/files", Op.FILES_LIST, self._list_files),
            ("GET", rf"(?:/download)?{_V}/files/([^/:]+):download", Op.FILES_CONTENT, self._content),
            ("GET", rf"{_V}/files/([^/:]+)", Op.FILES_GET, self._get_file),
            ("DELETE", rf"{_V}/files/([^/:]+)", Op.FILES_DELETE, self._delete_file),
            ("POST", rf"{_V}{model}:batchGenerateContent", Op.BATCHES_CREATE, self._create_batch),
            ("GET", rf"{_V}/batches", Op.BATCHES_LIST, self._list_batches),
            ("POST", rf"{_V}/batches/([^/:]+):cancel", Op.BATCHES_CANCEL, self._cancel_batch),
            ("GET", rf"{_V}/batches/([^/:]+)", Op.BATCHES_GET, self._get_batch),
            ("DELETE", rf"{_V}/batches/([^/:]+)", Op.BATCHES_DELETE, self._delete_batch),
            ("GET", rf"{_V}/models(?:/([^/:]+))?", Op.MODELS_LIST, self._models),
            ("POST", rf"{_V}{model}:generateContent", Op.LIVE, self._live),
        )

    def tick(self) -> None:
        """Make every change that is due by now."""
        with self._world.lock:
            self.account.tick()

    # -- the door -----------------------------------------------------------------------------

    def key_of(self, request: Request) -> str:
        """Return the key of the header or, failing that, of the query."""
        return request.headers.get("x-goog-api-key") or request.query.get("key", "")

    def refused(self, request: Request, key: str, project: str | None) -> Reply | None:
        """Return the refusal of a missing or wrong key; an upload's own URL needs none."""
        if "upload_id" in request.query:
            return None
        if not key:
            return no_key()
        return bad_key() if project is None else None

    def fault_reply(self, status: int, kind: str) -> Reply:
        """Return the error body of a status."""
        return fault_reply(status, kind)

    def bad_json(self, detail: str) -> Reply:
        """Return the error of a body that is not JSON."""
        return error_reply(400, f"Invalid JSON payload received. {detail}")

    def bad_page(self, error: PageError) -> Reply:
        """Return the error of a wrong page size or token."""
        return error_reply(400, str(error))

    def no_route(self, request: Request) -> Reply:
        """Return the answer where there is nothing."""
        return error_reply(404, f"Method not found: {request.method} {request.path.removeprefix(BASE_PATH)}")

    def headers(self, _request_id: str, _project: str | None) -> Iterable[tuple[str, str]]:
        """Return the headers of every answer: Google gives requests no id."""
        return (("server", "scaffolding on HTTPServer2"), ("vary", "Origin, X-Origin, Referer"))

    def limited(self, quota: Quota) -> Reply:
        """Return the refusal of a live call that is beyond a limit; when to come again stands in the body."""
        return limited_reply(quota)

    def _route(self, request: Request) -> tuple[Route | None, str]:
        route, argument = super()._route(request)
        if route is not None and "upload_id" in request.query:
            return replace(route, op=Op.FILES_UPLOAD), argument  # the same path, told apart by its query
        return route, argument

    # -- files --------------------------------------------------------------------------------

    def _upload(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        return self._uploads.handle(request, call, project, _origin(request))

    def _list_files(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            stale = number(call.value(Stage.VIEW, "stale_list")[1])
            files = [
                file
                for file in self.account.files.shelf
                if file.project == project
                and file.source != GENERATED
                and max(file.listed_s, file.created_s + stale) <= now
            ]
            files.sort(key=lambda file: (file.created_s, file.n), reverse=True)
            page = page_of([file.id for file in files], request, call, _PAGING)
            base = _base_url(request)
            return reply(
                200, listing_of("files", page, [file_view(self.account.files.shelf[name], base) for name in page.ids])
            )

    def _get_file(self, request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            file = self.account.files.find(argument, project)
            if file is None:
                return _missing(argument)
            return reply(200, file_view(file, _base_url(request)))

    def _delete_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        if len(argument) > NAME_MAX_CHARS:
            return error_reply(400, f"* DeleteFileRequest.name: the id has more than {NAME_MAX_CHARS} characters.\n")
        with self._world.lock:
            self.account.tick()
            if self.account.files.find(argument, project) is None:
                return no_file(argument)
            self.account.files.drop(argument)
            return reply(200, {})

    def _content(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            files = self.account.files
            file = files.find(argument, project)
            if file is not None and file.n_404 > 0:
                files.shelf.put(replace(file, n_404=file.n_404 - 1))
                return error_reply(404)
            if file is None:
                return _missing(argument)
            if file.source != GENERATED:
                return error_reply(400, "Only generated files can be downloaded.", "FAILED_PRECONDITION")
            return delivered(files.blob(file.id), call, SHAPE.row_id)

    # -- batches ------------------------------------------------------------------------------

    def _create_batch(self, request: Request, call: Call, project: str, argument: str) -> Answer:
        made = self._creation.create(request, call, project, argument, self.key_of(request))
        if not isinstance(made, BatchRecord):
            return made
        with self._world.lock:
            return reply(200, operation_view(made, self._world.now_s(), view_faults(made, call)))

    def _get_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.fetch(argument, project, now)
            if batch is None:
                return error_reply(404)
            faults = view_faults(batch, call)
            rows = None
            if batch.is_inline and batch.output_file_id is not None:
                words = frozenset(str(faults.get("inline_results") or "").split("+"))
                rows = inlined(self.account.blob(batch.output_file_id), words)
            return reply(200, operation_view(batch, now, faults, rows))

    def _list_batches(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            page = page_of([batch.id for batch in self.account.listed(project, now, call)], request, call, _PAGING)
            batches = (self.account.batches[name] for name in page.ids)
            views = [operation_view(batch, now, view_faults(batch, call)) for batch in batches]
            return reply(200, listing_of("operations", page, views))

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return error_reply(404)
            if batch.is_ended:
                return error_reply(400, "The batch has ended and cannot be cancelled.", "FAILED_PRECONDITION")
            return error_reply(409) if self.account.cancel(batch, call, now) is None else reply(200, {})

    def _delete_batch(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.find(argument, project, now)
            if batch is None:
                return error_reply(404)
            self.account.delete(batch)
            return reply(200, {})

    # -- models and live calls ----------------------------------------------------------------

    def _models(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        if argument:
            return reply(200, _model_view(argument)) if argument in MODELS else no_model(argument, "getModel")
        page = page_of(list(MODELS), request, call, _PAGING)
        return reply(200, listing_of("models", page, [_model_view(name) for name in page.ids]))

    def _live(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        body = request.read_json()
        family = family_of(argument)
        if family is None:
            return no_model(argument, "generateContent")
        said = answer(argument, family, body, self.live_key(body), self._world.panel, forced(call))
        if not said.is_success:
            return reply(said.status, {"error": said.body})
        self.bill_live(call, argument, said.input_tokens, said.output_tokens)
        return reply(200, said.body)


def _origin(request: Request) -> str:
    return f"http://{request.headers.get('host', 'localhost')}{BASE_PATH}"


def _base_url(request: Request) -> str:
    return f"{_origin(request)}/{'v1beta' if '/v1beta/' in f'{request.path}/' else 'v1'}"


def _missing(file_id: str) -> Reply:
    # Ids that no client can have chosen are those of generated files.
    return error_reply(404) if len(file_id) > NAME_MAX_CHARS else no_file(file_id)


def _model_view(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "batchGenerateContent"],
        "thinking": True,
    }
