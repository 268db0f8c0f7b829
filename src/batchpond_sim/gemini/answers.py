"""What simulated Gemini models answer to one request: a `GenerateContentResponse` or a `google.rpc.Status`.

Shapes follow the official SDK's types. A refusal is plain text, for the API has no member for it;
what a filter stops comes as `promptFeedback.blockReason` or as `finishReason` SAFETY, half and half.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchpond_sim.gemini.models import DYNAMIC_TOKENS, LEVEL_TOKENS, Family
from batchpond_sim.gemini.requests import Asked, asked, malformed, refused
from batchpond_sim.judges.judge import Judgement, Panel, Says

_REFUSAL = "I cannot help with that request."
_STATUS_WORDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_NO_CONTENT = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "OTHER"})

BILLING_TEXT = "Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing."


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """The HTTP status of one request, its response or error, and what it is billed for."""

    status: int
    body: dict[str, Any]
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def is_success(self) -> bool:
        """Whether there is a response, and so a bill."""
        return self.status == 200


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    finish: str
    block: str
    prompt_tokens: int
    answer_tokens: int
    thought_tokens: int
    thoughts: str
    key: str


def rpc_error(status: int, message: str, details: list[dict[str, Any]] | None = None, word: str = "") -> dict[str, Any]:
    """Return Google's error object: code, message, status word and details."""
    error: dict[str, Any] = {"code": status, "message": message, "status": word or _STATUS_WORDS.get(status, "UNKNOWN")}
    return {**error, "details": details} if details else error


def answer(
    model: str, family: Family, request: Mapping[str, Any], request_key: str, panel: Panel, force: str = ""
) -> RowAnswer:
    """Return the answer to one request.

    `request_key` makes repeats of one request differ; `force` is a row fault (`refusal`, `empty_text`,
    `truncated_text`, `finish:<word>`, `blocked:<word>`, `error_429`, ...) or empty.
    """
    forced = _forced_error(force)
    if forced is not None:
        return forced
    wrong = malformed(request) or refused(request, family)
    if wrong is not None:
        return RowAnswer(400, rpc_error(400, wrong))
    wanted = asked(request, family)
    judged = panel.answer(model, wanted.prompt, request_key)
    if judged.says is Says.ERROR:
        return _server_error()
    said = _said(wanted, family, judged, force)
    return RowAnswer(
        200,
        _response(model, family, wanted, said),
        said.prompt_tokens,
        said.answer_tokens + said.thought_tokens,
        said.thought_tokens,
    )


def _server_error() -> RowAnswer:
    return RowAnswer(500, rpc_error(500, "An internal error has occurred. Please retry or report the problem."))


def _forced_error(force: str) -> RowAnswer | None:
    match force:
        case "error_429":
            return RowAnswer(429, rpc_error(429, "Resource has been exhausted (e.g. check quota)."))
        case "error_500" | "output_500" | "status_0":
            return _server_error()
        case "error_400":
            return RowAnswer(400, rpc_error(400, "Request contains an invalid argument."))
        case "billing_rows":
            return RowAnswer(429, rpc_error(429, BILLING_TEXT))
        case _:
            return None


# -- what is said ------------------------------------------------------------------------------


def count_tokens(text: str) -> int:
    """Return the simulator's token count of a text: one per four characters, at least one."""
    return max(1, (len(text) + 3) // 4)


def prompt_tokens(request: Mapping[str, Any], family: Family) -> int:
    """Return what a well-formed request counts for in the queue of its model."""
    return count_tokens(asked(request, family).prompt) + 4


def _said(wanted: Asked, family: Family, judged: Judgement, force: str) -> _Said:
    text, finish, block = _outcome(judged, force)
    n_prompt = count_tokens(wanted.prompt) + 4
    thought = 0 if block else _thought_tokens(wanted, judged.u)
    if block or finish in _NO_CONTENT:
        return _Said("", finish, block, n_prompt, 0, thought, "", judged.key)
    spoken = count_tokens(text) if text else 0
    # An answer longer than one hop is cut there, below the limit of all hops together.
    limit, cut = wanted.max_tokens, "MAX_TOKENS"
    if limit is None or limit > family.answer_max_tokens:
        limit, cut = family.answer_max_tokens, "CONTINUATION" if family.is_continued else cut
    if force == "truncated_text" or finish == "CONTINUATION":
        limit, cut = thought + spoken // 2, cut if finish == "STOP" else finish
    if thought + spoken > limit:
        thought = min(thought, limit)
        spoken = limit - thought
        text, finish = text[: spoken * 4], cut
    return _Said(text, finish, "", n_prompt, spoken, thought, judged.thoughts, judged.key)


def _outcome(judged: Judgement, force: str) -> tuple[str, str, str]:
    """Return the text, the finish reason and the reason of a block, of which one of the last two is empty."""
    kind, _, word = force.partition(":")
    if kind == "finish":
        return judged.text, word, ""
    if kind == "blocked":
        return "", "", word
    if judged.says is Says.FILTERED:
        return ("", "SAFETY", "") if judged.u < 0.5 else ("", "", "SAFETY")
    if judged.says is Says.REFUSAL or kind == "refusal":
        return _REFUSAL, "STOP", ""
    if judged.says is Says.EMPTY or kind == "empty_text":
        return "", "STOP", ""
    return judged.text, "STOP", ""


def _thought_tokens(wanted: Asked, u: float) -> int:
    if isinstance(wanted.thinking, str):
        return int(LEVEL_TOKENS[wanted.thinking] * (0.5 + u))
    dynamic = int(DYNAMIC_TOKENS * (0.5 + u))
    return dynamic if wanted.thinking == -1 else min(dynamic, wanted.thinking)


# -- how it looks ------------------------------------------------------------------------------


def _response(model: str, family: Family, wanted: Asked, said: _Said) -> dict[str, Any]:
    body: dict[str, Any] = {"promptFeedback": {"blockReason": said.block}} if said.block else {}
    if not said.block:
        body["candidates"] = [_candidate(family, wanted, said)]
    return {**body, "usageMetadata": _usage(said), "modelVersion": model, "responseId": said.key[:22]}


def _candidate(family: Family, wanted: Asked, said: _Said) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if wanted.wants_thoughts and said.thought_tokens and said.thoughts:
        parts.append({"thought": True, "text": said.thoughts})
    if said.text or said.finish == "STOP":
        part: dict[str, Any] = {"text": said.text}
        if family.levels and said.thought_tokens:
            part["thoughtSignature"] = base64.b64encode(said.key.encode("ascii")).decode("ascii")
        parts.append(part)
    candidate: dict[str, Any] = {"finishReason": said.finish, "index": 0}
    if said.finish not in _NO_CONTENT:
        candidate = {"content": {"parts": parts, "role": "model"} if parts else {"role": "model"}, **candidate}
    if said.finish == "SAFETY":
        candidate["safetyRatings"] = [
            {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": True}
        ]
    if said.finish == "CONTINUATION":
        candidate["continuationToken"] = base64.b64encode(f"next-{said.key}".encode("ascii")).decode("ascii")
    return candidate


def _usage(said: _Said) -> dict[str, Any]:
    counts = {
        "promptTokenCount": said.prompt_tokens,
        "candidatesTokenCount": said.answer_tokens,
        "thoughtsTokenCount": said.thought_tokens,
        "totalTokenCount": said.prompt_tokens + said.answer_tokens + said.thought_tokens,
    }
    # proto3 JSON leaves zeros out.
    details = [{"modality": "TEXT", "tokenCount": said.prompt_tokens}]
    return {**{name: n for name, n in counts.items() if n}, "promptTokensDetails": details}
