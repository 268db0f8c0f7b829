"""Creating a batch: everything that is wrong with it is said here, or nothing is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from batchpond_sim.faults.faults import Stage
from batchpond_sim.gemini.life import MAX_OPEN, BatchRecord, GeminiAccount
from batchpond_sim.gemini.models import family_of
from batchpond_sim.gemini.requests import named
from batchpond_sim.gemini.rows import LineError, counted_lines, write_inlined
from batchpond_sim.gemini.store import UPLOADED
from batchpond_sim.gemini.views import error_reply, no_file, no_model, quota_reply
from batchpond_sim.host.wire import Break, BreakKind, Reply, Request
from batchpond_sim.world.ledger import fingerprint
from batchpond_sim.world.world import Call, World

INLINE_MAX_BYTES = 20 << 20
RETRY_S = 34
_FIELDS = frozenset({"displayName", "inputConfig", "priority", "model", "name", "webhookConfig"})


class Creation:
    """Creates the batches of one world."""

    def __init__(self, world: World, account: GeminiAccount) -> None:
        self._world = world
        self._account = account

    def create(self, request: Request, call: Call, project: str, model: str, key: str) -> BatchRecord | Reply | Break:
        """Return the new batch, or the answer that says why there is none (or hides that there is)."""
        size = request.headers.get("content-length", "0")
        if size.isdigit() and int(size) > INLINE_MAX_BYTES:
            return error_reply(400, f"Request payload size exceeds the limit: {INLINE_MAX_BYTES} bytes.")
        batch = named(named(request.read_json()).get("batch"))
        config = named(batch.get("inputConfig"))
        family = family_of(model)
        if family is None:
            return no_model(model, "batchGenerateContent")
        refused = _refused(batch, config)
        if refused is not None:
            return refused
        part = self._account.blob(f"upload-{call.n}.part")
        try:
            missing = self._copied(config, project, part)
            if missing is not None:
                return missing
            n_total, tokens = counted_lines(part, family)
            draft = BatchRecord(
                id=(self._world.name("batch", call.n) + self._world.name("batch-tail", call.n))[:36],
                project=project,
                endpoint=f"models/{model}:batchGenerateContent",
                model=model,
                input_file_id=str(config.get("fileName") or ""),
                metadata={"displayName": str(batch.get("displayName") or "")},
                display_name=str(batch.get("displayName") or ""),
                priority=int(batch.get("priority") or 0),
                is_inline="fileName" not in config or call.has(Stage.EFFECT, "inline_results"),
                n_total=n_total,
                queued_tokens=tokens,
            )
            return self._stored(draft, call, key, part)
        except LineError as error:
            return error_reply(400, str(error))
        finally:
            part.unlink(missing_ok=True)

    def _copied(self, config: dict[str, Any], project: str, part: Path) -> Reply | None:
        """Put the requests into `part`; return the refusal where there are none."""
        if "fileName" not in config:
            write_inlined(config["requests"], part)
            return None
        name = str(config["fileName"]).removeprefix("files/")
        with self._world.lock:
            self._account.tick()
            file = self._account.files.find(name, project)
            if file is None or file.source != UPLOADED:
                return no_file(name)
            part.unlink(missing_ok=True)
            os.link(self._account.blob(file.id), part)
        return None

    def _stored(self, draft: BatchRecord, call: Call, key: str, part: Path) -> BatchRecord | Reply | Break:
        with self._world.lock:
            self._account.tick()
            model = draft.model or ""
            is_full = self._account.full_queue(model, draft.project, draft.queued_tokens) is not None
            is_crowded = self._account.open_count(draft.project) >= MAX_OPEN
            if is_full or is_crowded or call.has(Stage.EFFECT, "enqueued"):
                return quota_reply(model, RETRY_S)
            made = self._account.create_over(draft, call, fingerprint(key), part)
        return Break(BreakKind.RESET) if "delay_exec" in made.effects else made


def _refused(batch: dict[str, Any], config: dict[str, Any]) -> Reply | None:
    unknown = min(batch.keys() - _FIELDS, default=None)
    if unknown is not None:
        text = f"Invalid JSON payload received. Unknown name \"{unknown}\" at 'batch': Cannot find field."
        return error_reply(400, text)
    if len(config.keys() & {"fileName", "requests"}) != 1:
        return error_reply(400, "* BatchGenerateContentRequest.batch.input_config: input_config is not specified\n")
    if not str(batch.get("priority") or 0).lstrip("-").isdigit():
        return error_reply(400, "Invalid value at 'batch.priority' (TYPE_INT64)")
    return None
