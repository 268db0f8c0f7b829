"""A scripted server in this process, for tests of the wires."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from tests.rigs.clock import ManualClock

START = datetime(2026, 11, 21, tzinfo=UTC)

Answer = httpx.Response | Exception


class Script:
    """One answer after the other, the last for ever, or a function of the request; remembers what was asked."""

    wire: Any

    def __init__(self, *answers: Answer | Callable[[httpx.Request], Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.clock = ManualClock(START)
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(answer.content))
