"""Faults on the wire, the same for every provider: in place of an operation, or of its answer."""

from __future__ import annotations

from collections.abc import Callable

from batchpond_sim.faults.faults import Fault, Stage, number
from batchpond_sim.host.wire import Answer, Break, BreakKind, Reply, html_reply
from batchpond_sim.world.world import Call

ErrorReply = Callable[[int, str], Reply]
"""Makes a provider's own error answer from a status and a fault kind's name."""


def before(call: Call, error: ErrorReply) -> Answer | None:
    """Return what takes the place of executing a call, None when it is to be executed."""
    for fault in call.at(Stage.BEFORE):
        return _early(fault, error)
    return None


def after(call: Call, answer: Answer, error: ErrorReply) -> Answer:
    """Return what the client gets once a call has been executed."""
    for fault in call.at(Stage.AFTER):
        return _late(fault, answer, error)
    return answer


def _early(fault: Fault, error: ErrorReply) -> Answer:
    match fault.kind:
        case "reset_before" | "refuse" | "hang_before":
            return Break(_BREAKS[fault.kind], number(fault.value))
        case "html":
            return html_reply(int(number(fault.value)))
        case "redirect":
            return Reply(307, (("location", str(fault.value)),), b"")
        case "retry_after":
            reply = error(429, fault.kind)
            return Reply(reply.status, (*reply.headers, ("retry-after", str(fault.value))), reply.body)
        case _:
            return error(_STATUS.get(fault.kind) or int(number(fault.value)), fault.kind)


_BREAKS = {"reset_before": BreakKind.RESET, "refuse": BreakKind.REFUSE, "hang_before": BreakKind.HANG}
_STATUS = {"file_not_ready": 400}


def _late(fault: Fault, answer: Answer, error: ErrorReply) -> Answer:
    match fault.kind:
        case "reset_after":
            return Break(BreakKind.RESET)
        case "hang_after":
            return Break(BreakKind.HANG, number(fault.value))
        case "html_after":
            return html_reply(int(number(fault.value)))
        case "status_after":
            return error(int(number(fault.value)), fault.kind)
        case _:
            return answer
