"""`files` mode: a folder in the place of a provider's batch API, for whoever answers requests by other means.

    outbox/TOKEN.jsonl            the requests in the provider's own format, whole as soon as it appears
    outbox/TOKEN.manifest.json    appears after it: what it is, where results belong, a command that makes them
    inbox/TOKEN*.jsonl[.gz]       the results, one file or many, rows in any order
    inbox/TOKEN.done              optional: "no more will come"
    claims/                       who works on which part, among workers alone: `batchpond_work`
    outbox/TOKEN.cancelled        `batchpond cancel` was here

What begins with a dot in `outbox` is batchpond's own, and ends as nothing does that a worker looks for:
`.TOKEN.batch` is the batch, and its `link` elects the one creator. So the visible files may be tidied away once
results stand in `inbox`.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson

from batchpond import fields, ids, model
from batchpond.clock import Clock
from batchpond.errors import AccessError, ProviderError
from batchpond.lake import disk
from batchpond.model import Download, FileRole, Mode
from batchpond.providers.base import BatchProvider, Descriptor
from batchpond.providers.shared import folder as folders
from batchpond.providers.shared.dialect import Dialect
from batchpond.providers.shared.folder import FOLDER_ENV, INBOX, OUTBOX, TOKEN, Folder, Part

PROTOCOL: Final = 2
PART_REQUESTS: Final = 1_000
"""How many lines of a request file a worker claims at once."""
RECENT: Final = "written to just now"
CAVEATS: Final = (
    "batchpond writes the request files and reads the results; whether, where and how often somebody runs them"
    " it cannot see, nor what that costs",
)
_VLLM_KEYS: Final = frozenset({"custom_id", "method", "url", "body"})
_VLLM_ENDPOINTS: Final = frozenset({"/v1/chat/completions", "/v1/embeddings"})
_RUNNING: Final = model.BatchState.RUNNING
_RECORD_BYTES_MAX: Final = 1 << 20
_HINT: Final = (
    f"make, mount or unlock it, then `batchpond sync`; {FOLDER_ENV}, or [files] in the lake's config.toml, names it"
)


def descriptor_of(descriptor: Descriptor) -> Descriptor:
    """Return what holds for a provider's files, other than for its batches."""
    return dataclasses.replace(
        descriptor,
        base_url_env=f"{FOLDER_ENV}, or [files] in the lake's config.toml",
        key_env=(),
        create_deadline_s=60.0,
        settle_s=60.0,
        has_token=True,
        caveats=CAVEATS,
        batch_caveats=(),
        requeue_codes=(),
        takes_files=True,
        input_retention_s=None,
        lists_state=False,
        modes=(Mode.FILES,),
    )


class Files(BatchProvider):
    """A folder as the client of a provider's batches; `module` says how its lines are written and read.

    Requests in a folder are its owner's to delete: none is dropped. `host` is what attempts remember of the folder;
    whether a simulator answers, nobody here knows.
    """

    is_loopback = False

    def __init__(self, module: Dialect, folder: Folder, clock: Clock) -> None:
        self._module = module
        self._folder = folder
        self._clock = clock
        self.descriptor = descriptor_of(module.DESCRIPTOR)
        self.host = folder.host

    def close(self) -> None:
        """Do nothing: a folder is not held open."""

    def upload(self, path: Path, filename: str) -> model.RemoteFile:
        """Put a payload into the outbox, still hidden; raises ProviderError for other content of that name."""
        with self._errors():
            self._stage(path, filename)
            if far := self._folder.far:
                far.put(filename, path)
        return model.RemoteFile(filename, filename, path.stat().st_size)

    def find_uploads(self, filename: str, since: datetime) -> list[model.RemoteFile]:  # noqa: ARG002 - names are unique
        """Return the payload of that name, hidden or published; of a folder at an address, as it is there."""
        with self._errors():
            if far := self._folder.far:
                size_bytes, _ = far.listed(OUTBOX, filename.removesuffix(".jsonl")).get(filename, (None, 0))
            else:
                found = self._requests(filename)
                size_bytes = None if found is None else found.stat().st_size
            return [] if size_bytes is None else [model.RemoteFile(filename, filename, size_bytes)]

    def create(self, spec: model.CreateSpec) -> model.CreateAnswer:
        """Publish the requests and their manifest; the same token twice is one batch."""
        try:
            self._bring(spec.token)
            if self._hidden(spec.token, "batch").exists():
                return model.Created(self._batch(spec.token), self.host)
            try:
                self._stage(spec.payload_path, f"{spec.token}.jsonl")
                manifest = orjson.dumps(self._manifest(spec), option=orjson.OPT_INDENT_2) + b"\n"
                with folders.published(self._hidden(spec.token, "manifest")) as out:
                    out.write(manifest)
            except ProviderError as error:
                return model.Rejected(model.ErrorClass.PERMANENT, "name_taken", error.message, 0)
            except OSError as error:
                return model.Rejected(model.ErrorClass.TRANSIENT, "folder", self._problem(error), 0)
            if far := self._folder.far:
                manifest = far.send(spec.token, spec.payload_path, manifest)
            with folders.published(self._hidden(spec.token, "batch")) as out:
                out.write(manifest)  # from here on the batch exists, whoever dies
            self._bring(spec.token)
            return model.Created(self._batch(spec.token), self.host)
        except (OSError, ProviderError, AccessError) as error:
            return model.Unclear(str(error))

    def list_page(self, cursor: str | None) -> model.BatchPage:  # noqa: ARG002 - one page holds them all
        """Return all batches in the folder; whether they are answered only `get` says."""
        with self._errors():
            self._bring()
            names = (name[1:].rpartition(".") for name in sorted(os.listdir(self._folder.outbox)) if name[0] == ".")
            tokens = (token for token, _, kind in names if kind == "batch" and TOKEN.fullmatch(token))
            return model.BatchPage(tuple(map(self._listed, tokens)), None)

    def find_batches(self, token: str) -> tuple[model.RemoteBatch, ...]:
        """Return the batch of that token, if the folder has it."""
        found = self.get(token)
        return () if found is None else (found,)

    def get(self, batch_id: str) -> model.RemoteBatch | None:
        """Return a batch, None where the folder has none of that id; raises ProviderError without the folder."""
        with self._errors():
            os.stat(self._folder.outbox)
            if TOKEN.fullmatch(batch_id) is None:
                return None
            self._bring(batch_id)
            if not self._hidden(batch_id, "batch").exists():
                return None
            return self._batch(batch_id)

    def cancel(self, batch_id: str) -> model.RemoteBatch | None:
        """End a batch with what is there of its results; None when it has ended already or is not known."""
        batch = self.get(batch_id)
        if batch is None or batch.state.is_terminal:
            return None
        with self._errors():
            if far := self._folder.far:
                far.put(f"{batch_id}.cancelled", b"")
            with folders.published(self._folder.outbox / f"{batch_id}.cancelled"):
                pass  # that it is there says it all
        return self.get(batch_id)

    def result_files(self, batch: model.RemoteBatch) -> tuple[tuple[FileRole, str], ...]:
        """Return the result files that are there, by name."""
        return tuple((FileRole.OUTPUT, str(name)) for name in batch.seen.get("results", ()))

    def download(self, file_id: str, path: Path) -> Download | None:
        """Copy a result file's bytes; raises ProviderError when it is gone, or changes meanwhile."""
        with self._errors():
            return folders.copy(self._part(file_id), path)

    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a result file."""
        with self._errors(), folders.opened(self._part(file_id)) as file:
            return file.read(max_bytes)

    def check(self) -> str:
        """Return the folder as the scope; raises ProviderError unless both of its sides are there."""
        with self._errors():
            self._bring()
            os.stat(self._folder.outbox)
            os.stat(self._folder.inbox)
        return self.host

    def _bring(self, token: str = "") -> None:
        """Have what is at an address of a batch, or of all batches their records, in the copy of this machine."""
        if far := self._folder.far:
            far.bring(token)

    def _hidden(self, token: str, kind: str) -> Path:
        return self._folder.outbox / f".{token}.{kind}"

    def _requests(self, filename: str) -> Path | None:
        """Return the requests of that name, hidden before their batch exists, visible after."""
        paths = (self._hidden(filename.removesuffix(".jsonl"), "requests"), self._folder.outbox / filename)
        return next((path for path in paths if path.exists()), None)

    def _stage(self, payload: Path, filename: str) -> None:
        """Put requests into the outbox, hidden; raises ProviderError for other content of that name.

        Both sides of the folder are made; FileNotFoundError for a folder outside the lake that is not there.
        """
        if not self._folder.is_in_lake:
            os.stat(self._folder.path)
        for side in (self._folder.outbox, self._folder.inbox):
            disk.make_directory(side)
        known = self._requests(filename)
        if known is not None:
            folders.check_same(known, payload)
            return
        staged = self._hidden(filename.removesuffix(".jsonl"), "requests")
        with payload.open("rb") as source, folders.published(staged) as out:
            shutil.copyfileobj(source, out)

    def _show(self, token: str) -> None:
        """Show a batch's requests, and after them the manifest, unless that was done: they may be tidied away."""
        for kind, name in (("requests", f"{token}.jsonl"), ("manifest", f"{token}.manifest.json")):
            if (hidden := self._hidden(token, kind)).exists():
                folders.show(hidden, self._folder.outbox / name)

    def _manifest(self, spec: model.CreateSpec) -> dict[str, Any]:
        named = dict(spec.metadata)
        requests, results = f"{OUTBOX}/{spec.token}.jsonl", f"{INBOX}/{spec.token}.jsonl"
        manifest = {
            "batch": spec.token,
            "study": named.get("study"),
            "cells": named.get("cells"),
            "provider": self.descriptor.name,
            "endpoint": spec.endpoint,
            "model": spec.request_model,
            "n_requests": spec.n_requests,
            "protocol": PROTOCOL,
            "part_requests": PART_REQUESTS,
            "size_bytes": spec.payload_path.stat().st_size,
            "sha256": disk.sha256(spec.payload_path),
            "created_at": self._clock.now(),
            "requests": requests,
            "results": results,
            "results_in_parts": f"{INBOX}/{spec.token}-*.jsonl (also .jsonl.gz), rows in any order",
            "done": f"{INBOX}/{spec.token}.done, needed only if some requests will never have a row",
        }
        line = fields.json_object(self._module.payload_line("probe", spec.endpoint, b"{}"))
        if spec.endpoint in _VLLM_ENDPOINTS and set(line) == _VLLM_KEYS:
            work = ("batchpond", "work", ".", "--engine", "vllm", "--model", spec.request_model)
            alone = ("vllm", "run-batch", "-i", requests, "-o", results, "--model", spec.request_model)
            manifest |= {"command": shlex.join(work), "command_without_batchpond": shlex.join(alone)}
        return manifest

    def _batch(self, token: str) -> model.RemoteBatch:
        listed = self._listed(token)
        try:
            self._show(token)
            return self._seen(listed)
        except ProviderError as error:
            # One batch's trouble must not hide the others: it travels with the batch.
            return dataclasses.replace(
                listed, provider_status="problem", errors=(model.BatchError("files", error.message),)
            )

    def _listed(self, token: str) -> model.RemoteBatch:
        record = _record(self._hidden(token, "batch"))
        return model.RemoteBatch(
            batch_id=token,
            state=model.BatchState.QUEUED,
            provider_status="waiting",
            seen={},
            created_at=fields.moment(record.get("created_at")),
            n_total=fields.count(record.get("n_requests")),
            input_file_id=f"{token}.jsonl",
            endpoint=fields.text(record.get("endpoint")),
            token=token,
        )

    def _seen(self, listed: model.RemoteBatch) -> model.RemoteBatch:
        """Return a batch with the state that its results and markers give it."""
        token, n_total = listed.batch_id, listed.n_total or 0
        found = folders.parts(self._folder.inbox, token)
        done = disk.stands(f"{self._folder.inbox}/{token}.done")
        is_closing = done is not None or (self._folder.outbox / f"{token}.cancelled").exists()
        n_lines = folders.count_lines(found)
        batch = dataclasses.replace(listed, seen={"results": [part.path.name for part in found]})
        if not is_closing and n_lines < n_total:
            if not found:
                return batch
            n_so_far = min(n_lines, n_total)
            return dataclasses.replace(batch, state=_RUNNING, provider_status="partial", n_completed=n_so_far)
        named = ids.lake_and_attempt(token)
        prefix = ids.custom_id_prefix(named[1] if named else token)
        n_succeeded, n_failed = folders.read_answers(found, self._module.read_line, prefix)
        n_answered = n_succeeded + n_failed
        is_all = n_answered >= n_total
        batch = dataclasses.replace(batch, n_completed=n_succeeded, n_failed=n_failed)
        is_at_rest = folders.is_at_rest(found, self._clock.now().timestamp(), done and done[1] / 1e9)
        if is_at_rest and not (is_all or is_closing):
            text = f"its results have {n_lines:,} lines, but for {n_answered:,} of its {n_total:,} requests only"
            errors = (model.BatchError("files", text),)
            return dataclasses.replace(batch, state=_RUNNING, provider_status="unmatched", errors=errors)
        if not is_at_rest:
            return dataclasses.replace(batch, state=_RUNNING, provider_status=RECENT)
        state = model.BatchState.COMPLETED if is_all else model.BatchState.CANCELLED
        return dataclasses.replace(batch, state=state, provider_status="complete" if is_all else "ended")

    def _part(self, name: str) -> Part:
        path = self._folder.inbox / name
        if Path(name).name != name:
            raise ProviderError(f"{name!r} is no file name")
        if not path.exists() and (token := TOKEN.match(name)):
            self._bring(token.group())
        return folders.part_of(path)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ProviderError(self._problem(error), hint=_HINT) from error

    def _problem(self, error: OSError) -> str:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return f"the folder of request and result files cannot be used: {error.filename or self._folder.path}: {reason}"


def _record(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(_RECORD_BYTES_MAX)
    record = fields.json_object(data)
    if not record:
        raise ProviderError(f"{path} is damaged", hint="restore it: it is the manifest of the same name")
    return record
