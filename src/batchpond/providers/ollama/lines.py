"""Reading Ollama's answers: total, so that any bytes give a Response and none an exception.

Shape: `{model, message: {content, thinking?}, done, done_reason, prompt_eval_count?, eval_count}` (ollama 0.6.3
`_types.py` ChatResponse); the prompt's count is left out where all of it was cached.
"""

from __future__ import annotations

from typing import Any, Final

from batchpond import fields
from batchpond.model import ErrorClass, FileRole, Finish, Response, ResponseStatus
from batchpond.providers.http.errors import ApiError
from batchpond.providers.shared.chat import without_thoughts
from batchpond.providers.shared.lines import failed, success_of, unreadable

_FINISH: Final = {"stop": Finish.STOP, "length": Finish.LENGTH}
_NO_ANSWER: Final = {
    "load": "the model was loaded, and said nothing",
    "unload": "the model was unloaded, and said nothing",
    "": "the answer gives no reason for its end",
}


def read_line(line: bytes, role: FileRole) -> Response:  # noqa: ARG001
    """Return an unreadable line: Ollama writes no result files."""
    return unreadable(None, f"Ollama has no result files, but this is a line of {len(line)} bytes")


def read_answer(status_code: int, body: bytes) -> Response:
    """Return a call's whole answer made uniform; one that Ollama did not end itself is none."""
    found = success_of(status_code, body)
    if isinstance(found, Response):
        return found
    message = found.get("message")
    if not isinstance(message, dict):
        return unreadable(None, "the answer has no message", status_code)
    reason = fields.word(found.get("done_reason")) or ""
    broken = "the answer was broken off: it is not done" if found.get("done") is not True else _NO_ANSWER.get(reason)
    if broken is not None:
        return failed(None, status_code, ApiError(broken, reason or None), error_class=ErrorClass.TRANSIENT)
    return without_thoughts(_answered(status_code, found, message, reason))


def _answered(status_code: int, found: dict[str, Any], message: dict[str, Any], reason: str) -> Response:
    return Response(
        custom_id=None,
        status=ResponseStatus.SUCCEEDED,
        status_code=status_code,
        response_model=fields.text(found.get("model")),
        finish_reason=reason,
        finish=_FINISH.get(reason, Finish.OTHER),
        text=fields.text(message.get("content")),
        thoughts=fields.identifier(message.get("thinking")),
        input_tokens=fields.count(found.get("prompt_eval_count")),
        output_tokens=fields.count(found.get("eval_count")),
    )
