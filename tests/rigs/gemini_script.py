"""Scripted servers and shapes for tests of the Gemini wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from batchpond import ids
from batchpond.model import (
    CreateSpec,
)
from batchpond.providers import registry
from batchpond.providers.gemini.batch import GeminiClient
from tests.rigs import wire_script
from tests.rigs.wire_script import Answer

KEY = "AIza-canary-wire-0123456789"
HOST = "https://generativelanguage.googleapis.com"
TOKEN = ids.token("lake", "attempt", b"secret", "0" * 64)
SPEC = CreateSpec(TOKEN, "generateContent", "gemini-2.5-flash", "files/in1", Path("unused"), 2, (("batchpond", TOKEN),))


class Script(wire_script.Script):
    """A scripted Google."""

    def __init__(self, *answers: Answer | Callable[[httpx.Request], Answer], **environ: str) -> None:
        super().__init__(*answers)
        self.wire: GeminiClient = registry.connect(
            "gemini", self.clock, transport=self.transport, environ={"GEMINI_API_KEY": KEY} | environ
        )


def ok(body: Any = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(200, content=b"" if body is None else json.dumps(body).encode(), headers=named)


def refusal(code: int, status: str, message: str = "no", *details: Any, http: int | None = None) -> httpx.Response:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return httpx.Response(http or code, json={"error": error})


def reason(word: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": word, "domain": "googleapis.com"}


BAD_KEY = refusal(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", reason("API_KEY_INVALID"))
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
QUOTA = "You exceeded your current quota, please check your plan and billing details."
PREPAID = "Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing."
LOCATION = "User location is not supported for the API use."
FREE_TIER = "Free tier is not available in your country. Please enable billing on your project."
NOT_READY = "The File in1 is not in an ACTIVE state and usage is not allowed."
NOT_THERE = "You do not have permission to access the File in1 or it may not exist."
NO_MODEL = "models/gemini-0 is not found for API version v1beta, or is not supported for batchGenerateContent."


def operation(state: str | None = "BATCH_STATE_PENDING", meta: Any = None, **more: Any) -> dict[str, Any]:
    metadata = {
        "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
        "model": "models/gemini-2.5-flash",
        "displayName": TOKEN,
        "createTime": "2026-11-21T10:00:00.1Z",
        "updateTime": "2026-11-21T10:20:00Z",
        "inputConfig": {"fileName": "files/in1"},
        "batchStats": {"requestCount": "2", "pendingRequestCount": "2"},
        "name": "batches/b1",
    } | (meta or {})
    if state is not None:
        metadata["state"] = state
    return {"name": "batches/b1", "metadata": metadata} | more
