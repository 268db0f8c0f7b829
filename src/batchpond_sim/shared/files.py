"""An API of the shape that OpenAI gave it: files are uploaded as forms, and found, read and deleted by their ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic

from batchpond_sim.host.messages import Answer, Form, MultipartError, Reply, Request, json_reply, read_form
from batchpond_sim.shared.api import Api
from batchpond_sim.shared.batches import F, FileRecord, FilesAccount
from batchpond_sim.shared.delivery import delivered
from batchpond_sim.world.faults import Call


class FilesApi(Api, Generic[F]):
    """The handlers that are alike; a provider says what its files, its batches and its errors look like."""

    account: FilesAccount[F]
    row_id = b""
    """How the id of a result line begins."""
    file_max_bytes = 512 << 20
    deleted: ClassVar[Mapping[str, Any]] = {}
    """What the answer to a deletion says beside the id."""

    @abstractmethod
    def _view(self, batch: F, now: float, call: Call) -> dict[str, Any]:
        """Return a batch as the API shows it, or as the faults of a call make it look."""

    @abstractmethod
    def _no_file(self, file_id: str) -> Reply:
        """Return the answer about a file that is not there."""

    @abstractmethod
    def _no_batch(self, batch_id: str) -> Reply:
        """Return the answer about a batch that is not there."""

    @abstractmethod
    def _bad_form(self, detail: str) -> Reply:
        """Return the error of an upload that cannot be read."""

    @abstractmethod
    def _refused_form(self, form: Form, part: Path) -> Reply | None:
        """Return the refusal of an upload whose bytes are at `part`, None when it is fine."""

    @abstractmethod
    def _file_draft(self, form: Form, call: Call, project: str) -> FileRecord:
        """Return the file object of an upload, without its ordinal and time."""

    def _file_view(self, record: FileRecord) -> dict[str, Any]:
        """Return a file as the API shows it: what all say of one, to which a provider adds its own."""
        return {
            "id": record.id,
            "object": "file",
            "bytes": record.size_bytes,
            "created_at": int(record.created_s),
            "filename": record.filename,
            "purpose": record.purpose,
        }

    def _create_file(self, request: Request, call: Call, project: str, _argument: str) -> Answer:
        """Take a file in one form."""
        part = self._part(call)
        try:
            form = self._form(request, part)
            refused = self._refused_form(form, part)
            return refused or self._kept(part, self._file_draft(form, call, project), call)
        except MultipartError as error:
            return self._bad_form(f"the form could not be read: {error}")
        finally:
            part.unlink(missing_ok=True)

    def _form(self, request: Request, part: Path) -> Form:
        return read_form(request.headers.get("content-type", ""), request.body, part, self.file_max_bytes)

    def _part(self, call: Call) -> Path:
        return self.account.blob(f"upload-{call.n}.part")

    def _kept(self, part: Path, draft: FileRecord, call: Call) -> Reply:
        """Store an upload and return its file object."""
        with self._world.lock:
            return json_reply(200, self._file_view(self.account.keep(part, draft, call)))

    def _get_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            record = self.account.file(argument, project)
            return self._no_file(argument) if record is None else json_reply(200, self._file_view(record))

    def _delete_file(self, _request: Request, _call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            if self.account.file(argument, project) is None:
                return self._no_file(argument)
            self.account.drop_file(argument)
            return json_reply(200, {"id": argument, **self.deleted, "deleted": True})

    def _content(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            self.account.tick()
            path = self.account.content(argument, project)
            return self._no_file(argument) if path is None else delivered(path, call, self.row_id)

    def _get_batch(self, _request: Request, call: Call, project: str, argument: str) -> Answer:
        with self._world.lock:
            now = self.account.tick()
            batch = self.account.fetch(argument, project, now)
            return self._no_batch(argument) if batch is None else json_reply(200, self._view(batch, now, call))
