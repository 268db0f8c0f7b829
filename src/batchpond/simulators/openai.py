"""A local OpenAI: files, batches, models, and the two live endpoints, below `/openai/v1`.

Paths, codes, bodies, paging and states are those of the public API; `handle` is pure but for the
world it is given, so that both hosts and any clock give the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import orjson

from batchpond.errors import UsageError
from batchpond.simulators import gate
from batchpond.simulators.delivery import delivered
from batchpond.simulators.faults import Op, Stage, Value
from batchpond.simulators.ledger import Bill, fingerprint
from batchpond.simulators.multipart import Form, MultipartError, read_form
from batchpond.simulators.openai_answers import answer
from batchpond.simulators.openai_life import PROVIDER, RETENTION_S, Account, BatchRecord, FileRecord
from batchpond.simulators.openai_pages import PageError, page_of
from batchpond.simulators.openai_views import (
    batch_view,
    error_reply,
    fault_reply,
    number,
    refused_batch,
    refused_form,
)
from batchpond.simulators.wire import Answer, Break, BreakKind, Reply, Request, json_reply
from batchpond.simulators.world import Call, World

BASE_PATH = "/openai/v1"
FILE_MAX_BYTES = 512 << 20
MODELS = ("gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "gpt-5.5", "gpt-6-luna", "gpt-4.1", "gpt-4.1-mini")
_ROUTES: tuple[tuple[str, re.Pattern[str], Op], ...] = tuple(
    (method, re.compile(pattern), op)
    for method, pattern, op in (
        ("POST", r"/files", Op.FILES_CREATE),
        ("GET", r"/files", Op.FILES_LIST),
        ("GET", r"/files/([^/]+)/content", Op.FILES_CONTENT),
        ("GET", r"/files/([^/]+)", Op.FILES_GET),
        ("DELETE", r"/files/([^/]+)", Op.FILES_DELETE),
        ("POST", r"/batches", Op.BATCHES_CREATE),
        ("GET", r"/batches", Op.BATCHES_LIST),
        ("POST", r"/batches/([^/]+)/cancel", Op.BATCHES_CANCEL),
        ("GET", r"/batches/([^/]+)", Op.BATCHES_GET),
        ("GET", r"/models(?:/([^/]+))?", Op.MODELS_LIST),
        ("POST", r"/(chat/completions|responses)", Op.LIVE),
    )
)


class OpenAISimulator:
    """The API of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.account = Account(world)
        self._run: dict[Op, Callable[[Request, Call, str, str], Answer]] = {
            Op.FILES_CREATE: self._create_file,
            Op.FILES_LIST: self._list_files,
            Op.FILES_GET: self._get_file,
            Op.FILES_DELETE: self._delete_file,
            Op.FILES_CONTENT: self._content,
            Op.BATCHES_CREATE: self._create_batch,
            Op.BATCHES_LIST: self._list_batches,
            Op.BATCHES_GET: self._get_batch,
            Op.BATCHES_CANCEL: self._cancel_batch,
            Op.MODELS_LIST: self._models,
            Op.LIVE: self._live,
        }

    def handle(self, request: Request) -> Answer:
        """Return the answer to a request whose path is below `/openai/v1`."""
        op, argument = _route(request)
        call = self._world.arrive(request, PROVIDER, op)
        project = self._world.project(_key(request))
        answer = gate.before(call, fault_reply)
        if answer is None:
            answer = gate.after(call, self._executed(request, call, project, argument), fault_reply)
        request.drain()
        return self._sent(call, answer, project)

    def tick(self) -> None:
        """Make every change that is due by now."""
        with self._world.lock:
            self._now()

    def _executed(self, request: Request, call: Call, project: str | None, argument: str) -> Answer:
        if not _key(request):
            text = "You didn't provide an API key. Provide it in an Authorization header using Bearer auth."
            return error_reply(401, text)
        if project is None:
            return fault_reply(401, "status")
        run = self._run.get(call.op)
        if run is None:
            return error_reply(404, f"Invalid URL ({request.method} {request.path.removeprefix('/openai')})")
        try:
            return run(request, call, project, argument)
        except PageError as error:
            return fault_reply(500, "status") if error.status == 500 else error_reply(400, str(error), error.param)
        except (orjson.JSONDecodeError, UsageError):
            return error_reply(400, "We could not parse the JSON body of your request.")

    def _sent(self, call: Call, answer: Answer, project: str | None) -> Answer:
        faults = tuple(fault.spec for fault in call.faults)
        if isinstance(answer, Break):
            self._world.ledger.answered(call.n, None, faults)
            return answer
        self._world.ledger.answered(call.n, answer.status, faults)
        headers = (
            ("date", formatdate(self._world.now_s(), usegmt=True)),
            ("x-request-id", f"req_{self._world.name('request', call.n)}"),
            ("openai-version", "2020-10-01"),
            ("openai-organization", "org-simulated"),
            *((("openai-project", project),) if project else ()),
            ("openai-processing-ms", "7"),
        )
        return replace(answer, headers=(*answer.headers, *headers))

    # -- files --------------------------------------------------------------------------------

    def _create_file(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        part = self.account.blob(f"upload-{call.n}.part")
        try:
            form = read_form(request.headers.get("content-type", ""), request.body, part, FILE_MAX_BYTES)
            refused = refused_form(form)
            if refused is not None:
                return refused
            with self._world.lock:
                return self._store_file(form, call, project)
        except MultipartError as error:
            return error_reply(400, f"The form could not be read: {error}.", "file")
        finally:
            part.unlink(missing_ok=True)

    def _store_file(self, form: Form, call: Call, project: str) -> Reply:
        now = self._world.now_s()
        part = self.account.blob(f"upload-{call.n}.part")
        size = form.size_bytes
        is_cut, share = call.value(Stage.EFFECT, "store")
        if is_cut:
            size = int(size * number(share))
            with part.open("r+b") as file:
                file.truncate(size)
        kept_s = float(form.fields.get("expires_after[seconds]", RETENTION_S))
        record = FileRecord(
            id=f"file-{self._world.name('upload', call.n)}",
            n=self.account.next_file_n(),
            project=project,
            filename=form.filename or "",
            purpose=form.fields["purpose"],
            size_bytes=size,
            created_s=now,
            expires_s=now + kept_s if form.fields["purpose"] == "batch" else None,
            listed_s=now + number(call.value(Stage.EFFECT, "stale_list")[1]),
        )
        part.replace(self.account.blob(record.id))
        self.account.put_file(record)
        return json_reply(200, record.view())

    def _file(self, file_id: str, project: str) -> FileRecord | None:
        record = self.account.files.get(file_id)
        if record is None or record.project != project:
            return None
        if record.expires_s is not None and record.expires_s <= self._world.now_s():
            return None
        return record

    def _list_files(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self._now()
            stale = number(call.value(Stage.VIEW, "stale_list")[1])
            purpose = request.query.get("purpose")
            records = [
                record
                for record in self.account.files.values()
                if self._file(record.id, project) is not None
                and (purpose is None or record.purpose == purpose)
                and max(record.listed_s, record.created_s + stale) <= now
            ]
            is_newest_first = request.query.get("order", "desc") == "desc"
            records.sort(key=lambda record: (record.created_s, record.n), reverse=is_newest_first)
            page = page_of([record.id for record in records], request.query, call, default=10_000, most=10_000)
            return json_reply(200, page.body([self.account.files[name].view() for name in page.ids]))

    def _get_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self._now()
            record = self._file(argument, project)
            return _no_file(argument) if record is None else json_reply(200, record.view())

    def _delete_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self._now()
            if self._file(argument, project) is None:
                return _no_file(argument)
            self.account.drop_file(argument)
            return json_reply(200, {"id": argument, "object": "file", "deleted": True})

    def _content(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self._now()
            record = self._file(argument, project)
            if record is not None and record.n_404 > 0:
                self.account.put_file(replace(record, n_404=record.n_404 - 1))
                record = None
            if record is None:
                return _no_file(argument)
            return delivered(self.account.blob(record.id), call)

    # -- batches ------------------------------------------------------------------------------

    def _create_batch(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        body = request.read_json()
        refused = refused_batch(body)
        if refused is not None:
            return refused
        key = fingerprint(_key(request))
        effects: dict[str, Value] = {fault.kind: fault.value for fault in call.at(Stage.EFFECT)}
        with self._world.lock:
            now = self._now()
            n = len(self._world.ledger.batches) + 1
            created = now + number(effects.get("delay_exec"))
            expires = body.get("output_expires_after")
            record = BatchRecord(
                id=f"batch_{self._world.name('batch', call.n)}",
                n=n,
                project=project,
                created_s=created,
                valid_s=created,
                ran_s=created,
                done_s=created,
                endpoint=body["endpoint"],
                input_file_id=body["input_file_id"],
                completion_window=body["completion_window"],
                metadata=body.get("metadata"),
                output_expires_s=None if expires is None else int(expires["seconds"]),
                effects=effects,
                mutations=self._world.line_faults(n),
                n_404=int(number(effects.get("notfound_after_create"))),
                listed_s=created + number(effects.get("stale_list")),
            )
            record = self.account.create(record, key, call.op_n)
            if "delay_exec" in effects:
                return Break(BreakKind.RESET)
            return json_reply(200, self._view(record, call, now))

    def _now(self) -> float:
        now = self._world.now_s()
        self.account.tick(now)
        return now

    def _batch(self, batch_id: str, project: str, now: float) -> BatchRecord | None:
        record = self.account.batches.get(batch_id)
        if record is None or record.project != project or record.created_s > now:
            return None
        return record

    def _get_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self._now()
            record = self._batch(argument, project, now)
            if record is not None and record.n_404 > 0:
                self.account.put_batch(replace(record, n_404=record.n_404 - 1))
                record = None
            return _no_batch(argument) if record is None else json_reply(200, self._view(record, call, now))

    def _list_batches(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        with self._world.lock:
            now = self._now()
            stale = number(call.value(Stage.VIEW, "stale_list")[1])
            records = [
                record
                for record in self.account.batches.values()
                if record.project == project and max(record.created_s + stale, record.listed_s) <= now
            ]
            records.sort(key=lambda record: (record.created_s, record.n), reverse=True)
            page = page_of([record.id for record in records], request.query, call, default=20, most=100)
            return json_reply(200, page.body([self._view(self.account.batches[name], call, now) for name in page.ids]))

    def _cancel_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self._now()
            record = self._batch(argument, project, now)
            if record is None:
                return _no_batch(argument)
            if record.is_ended:
                return error_reply(400, f"Cannot cancel a batch with status '{record.end}'.")
            race = call.value(Stage.EFFECT, "cancel_race")[1]
            if (race or record.effects.get("cancel_race")) == "conflict":
                return error_reply(409, "The batch is being completed and cannot be cancelled.")
            return json_reply(200, self._view(self.account.cancel(record, now, race), call, now))

    def _view(self, batch: BatchRecord, call: Call, now: float) -> dict[str, Any]:
        faults = {**batch.effects, **{fault.kind: fault.value for fault in call.at(Stage.VIEW)}}
        return batch_view(batch, now, faults)

    # -- models and live calls ----------------------------------------------------------------

    def _models(self, _request: Request, _call: Call, _project: str, argument: str) -> Answer:
        data = [{"id": name, "object": "model", "created": 1_770_000_000, "owned_by": "openai"} for name in MODELS]
        if not argument:
            return json_reply(200, {"object": "list", "data": data})
        found = next((model for model in data if model["id"] == argument), None)
        if found is None:
            return error_reply(404, f"The model '{argument}' does not exist", "model", "model_not_found")
        return json_reply(200, found)

    def _live(self, request: Request, call: Call, _project: str, argument: str) -> Answer:
        body = request.read_json()
        if not isinstance(body, dict) or body.get("stream"):
            return error_reply(400, "This simulator takes JSON objects without streaming.")
        # Live calls carry no id of their own: the same body gets the same answer.
        key = self._world.name("live", orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode("utf-8"))
        said = answer(f"/v1/{argument}", body, key, self._world.panel, int(self._world.now_s()))
        if said.is_success:
            with self._world.lock:
                bill = Bill(
                    f"live-{call.n}", PROVIDER, str(body.get("model")), 1, said.input_tokens, said.output_tokens
                )
                self._world.ledger.billed(bill)
        return json_reply(said.status, said.body)


def _key(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _route(request: Request) -> tuple[Op, str]:
    path = request.path.removeprefix(BASE_PATH)
    for method, pattern, op in _ROUTES:
        if method == request.method and (match := pattern.fullmatch(path)):
            return op, next(iter(match.groups()), None) or ""
    return Op.ANY, ""


def _no_file(file_id: str) -> Reply:
    return error_reply(404, f"No such File object: {file_id}", "id")


def _no_batch(batch_id: str) -> Reply:
    return error_reply(404, f"No batch found with id '{batch_id}'.")
