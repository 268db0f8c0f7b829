"""What all live calls have in common: their place in the ledger, rate limits, and how long an answer takes."""

from __future__ import annotations

from dataclasses import replace

import orjson

from batchpond_sim.faults.faults import Stage, number
from batchpond_sim.faults.spoil import spoiled
from batchpond_sim.host.wire import Answer, IterBody, Reply, Request
from batchpond_sim.world.ledger import LiveCall, body_id, fingerprint
from batchpond_sim.world.limits import BYTES_PER_TOKEN, Quota
from batchpond_sim.world.world import Call, World

FORCED = {"empty_text", "truncated_text", "refusal"}
FORCED_WORDS = {"finish", "blocked"}


def forced(call: Call) -> str:
    """Return what the faults of a call make its model say, in the words of the providers' `answer`; empty for none."""
    for fault in call.at(Stage.LINES):
        if fault.kind in FORCED:
            return fault.kind
        if fault.kind in FORCED_WORDS:
            return f"{fault.kind}:{fault.value}"
    return ""


class LiveDesk:
    """Live calls of one provider in a world."""

    def __init__(self, world: World, provider: str) -> None:
        self._world = world
        self._provider = provider

    def heard(self, request: Request, call: Call, argument: str) -> Request:
        """Read a call's body, note what it asks, and return the request with the body unread again.

        The model is the body's, or the path's `argument`. Raises UsageError for over 64 MiB.
        """
        data = request.read_all()
        live = self._of(call)
        live.body = body_id(request.path, data)
        live.model = _model(data) or argument
        live.tokens_guessed = len(data) // BYTES_PER_TOKEN
        return replace(request, body=IterBody(iter((data,))))

    def admit(self, call: Call, key: str) -> Quota | None:
        """Return how the call stands with its limits, None where there are none."""
        world = self._world
        live = self._of(call)
        with world.lock:
            return world.limiter.admit(self._provider, fingerprint(key), live.model, live.tokens_guessed, world.now_s())

    def answered(self, call: Call, key: str, answer: Answer, quota: Quota | None) -> Answer:
        """Return an executed call's answer as its faults have it and when it is due, and charge its `quota`."""
        if isinstance(answer, Reply):
            answer = spoiled(call, answer)
            delay_s = self._delay_s(call)
            answer = replace(answer, delay_s=delay_s) if delay_s else answer
        if quota is not None:
            world = self._world
            live = self._of(call)
            used = sum(live.billed or (0, 0))
            end_s = world.now_s() + (answer.delay_s * world.speed if isinstance(answer, Reply) else 0.0)
            with world.lock:
                more = used - live.tokens_guessed
                world.limiter.settle(self._provider, fingerprint(key), quota.model, more, end_s)
        return answer

    def _delay_s(self, call: Call) -> float:
        is_late, seconds = call.value(Stage.DELIVERY, "delay")
        low, high = self._world.settings.live_latency_s
        usual = low + (high - low) * self._world.draw("latency", call.n) if high else 0.0
        return usual + (number(seconds) if is_late else 0.0)

    def _of(self, call: Call) -> LiveCall:
        return self._world.ledger.live_call(call.n)


def _model(data: bytes) -> str:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ""
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else ""
