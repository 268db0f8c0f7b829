"""What the Messages API refuses in a request's parameters, in the words it uses."""

from __future__ import annotations

from typing import Any

from batchpond_sim.anthropic.models import Family, family_of
from batchpond_sim.judges import schemas

OLD_VERSION = "2023-06-01"
VERSION = "2026-10-21"
VERSIONS = (OLD_VERSION, VERSION)

_KNOWN = frozenset({
    "model", "max_tokens", "messages", "system", "stop_sequences", "thinking", "output_config", "metadata", "tools",
    "tool_choice", "service_tier", "inference_geo", "cache_control", "container", "diagnostics", "stream",
    "temperature", "top_p", "top_k", "speed", "user_profile_id", "workspace_id",
})  # fmt: skip
_SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": None}
_LIVE_ONLY = ("speed",)


class ParamsError(ValueError):
    """What is wrong with a request's parameters; `kind` is the API's error type."""

    def __init__(self, message: str, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.kind = kind


def check_params(params: dict[str, Any], version: str, *, is_batch: bool) -> Family:
    """Return the family of the model asked for; raises ParamsError for the first thing refused."""
    for name in ("model", "max_tokens", "messages"):
        if params.get(name) is None:
            raise ParamsError(f"{name}: Field required")
    unknown = params.keys() - _KNOWN
    if version == VERSION:
        unknown |= params.keys() & _SAMPLING.keys()
    if unknown:
        raise ParamsError(f"{min(unknown)}: Extra inputs are not permitted")
    if is_batch:
        _check_batch(params)
    family = family_of(str(params["model"]))
    if family is None:
        raise ParamsError(f"model: {params['model']}", "not_found_error")
    _check_max_tokens(params, family, is_batch)
    _check_messages(params["messages"], family, version)
    _check_format(params.get("output_config"))
    kind = _check_thinking(params, family)
    if version == OLD_VERSION:
        _check_sampling(params, family, is_thinking=kind in ("enabled", "adaptive"))
    return family


def thinking_of(params: dict[str, Any], family: Family) -> str:
    """Return the type of thinking that accepted parameters come down to."""
    thinking = params.get("thinking")
    return str(thinking["type"]) if isinstance(thinking, dict) else family.default


def effort_of(params: dict[str, Any]) -> str | None:
    """Return the effort that parameters ask for."""
    config = params.get("output_config")
    return config.get("effort") if isinstance(config, dict) else None


def _check_batch(params: dict[str, Any]) -> None:
    if params.get("stream"):
        raise ParamsError('"stream=True" is not supported in the Message Batches API')
    for name in _LIVE_ONLY:
        if params.get(name) is not None:
            raise ParamsError(f"{name}: Extra inputs are not permitted")


def _check_format(config: Any) -> None:
    form = config.get("format") if isinstance(config, dict) else None
    if form is None:
        return
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise ParamsError("output_config.format.type: Input should be 'json_schema'")
    problem = schemas.problem(form.get("schema"))
    if problem is not None:
        raise ParamsError(f"output_config.format.schema: {problem}")


def _check_max_tokens(params: dict[str, Any], family: Family, is_batch: bool) -> None:
    wanted = params["max_tokens"]
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise ParamsError("max_tokens: Input should be a valid integer")
    least = 1 if is_batch else 0
    if wanted < least:
        raise ParamsError(f"max_tokens: must be greater than or equal to {least}")
    most = family.max_output_tokens
    if wanted > most:
        text = f"max_tokens: {wanted} > {most}, which is the maximum allowed number of output tokens for "
        raise ParamsError(text + str(params["model"]))


def _check_messages(messages: Any, family: Family, version: str) -> None:
    if not isinstance(messages, list):
        raise ParamsError("messages: Input should be a valid list")
    if not messages:
        raise ParamsError("messages: at least one message is required")
    for i, message in enumerate(messages):
        _check_message(i, message, version)
    if messages[-1]["role"] == "assistant" and not family.takes_prefill:
        text = "This model does not support assistant message prefill. The conversation must end with a user message."
        raise ParamsError(text)


def _check_message(i: int, message: Any, version: str) -> None:
    if not isinstance(message, dict):
        raise ParamsError(f"messages.{i}: Input should be an object")
    if message.get("role") not in ("user", "assistant"):
        raise ParamsError(f"messages.{i}.role: Input should be 'user' or 'assistant'")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise ParamsError(f"messages.{i}.content: Field required")
    if not content and message["role"] == "user":
        raise ParamsError(f"messages.{i}: user messages must have non-empty content")
    for j, block in enumerate(content if isinstance(content, list) else ()):
        where = f"messages.{i}.content.{j}"
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ParamsError(f"{where}.type: Field required")
        if block["type"] == "text" and not block.get("text"):
            raise ParamsError("messages: text content blocks must be non-empty")
        if version == OLD_VERSION:
            continue
        if block["type"] == "document" and message["role"] == "assistant":
            raise ParamsError(f"{where}: document blocks are not permitted in assistant messages")
        if block["type"] == "text" and message["role"] == "user" and block.get("citations"):
            raise ParamsError(f"{where}.citations: Extra inputs are not permitted")


def _check_thinking(params: dict[str, Any], family: Family) -> str:
    effort = effort_of(params)
    if effort is not None:
        _check_effort(effort, family)
    thinking = params.get("thinking")
    if thinking is None:
        return family.default
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("enabled", "adaptive", "disabled", "between_tools"):
        raise ParamsError(
            "thinking: Input tag does not match any of the expected tags: 'enabled', 'adaptive', 'disabled'"
        )
    if kind not in family.thinking:
        raise ParamsError(_unsupported(kind, family))
    if kind == "enabled":
        _check_budget(thinking, params["max_tokens"])
    if kind == "disabled" and effort is not None and effort not in family.off_efforts:
        raise ParamsError(f'"thinking.type.disabled" is not supported with "output_config.effort" of {effort}.')
    if thinking.get("display") not in (None, "summarized", "omitted"):
        raise ParamsError("thinking.display: Input should be 'summarized' or 'omitted'")
    return str(kind)


def _unsupported(kind: str, family: Family) -> str:
    if kind == "enabled":
        return (
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    if kind == "adaptive":
        return "adaptive thinking is not supported on this model"
    listed = ", ".join(f'"{word}"' for word in family.thinking)
    return f'"thinking.type.{kind}" is not supported for this model. Supported: {listed}.'


def _check_effort(effort: Any, family: Family) -> None:
    if not family.efforts:
        raise ParamsError("This model does not support the effort parameter.")
    if effort not in family.efforts:
        listed = ", ".join(f"'{word}'" for word in family.efforts)
        raise ParamsError(f"output_config.effort: Input should be one of {listed}")


def _check_budget(thinking: dict[str, Any], max_tokens: int) -> None:
    budget = thinking.get("budget_tokens")
    if budget is None:
        raise ParamsError("thinking.enabled.budget_tokens: Field required")
    if not isinstance(budget, int) or budget < 1024:
        raise ParamsError("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= max_tokens:
        raise ParamsError("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_sampling(params: dict[str, Any], family: Family, *, is_thinking: bool) -> None:
    for name, neutral in _SAMPLING.items():
        value = params.get(name)
        if value is None:
            continue
        if not family.samples:
            raise ParamsError(f"`{name}` is deprecated for this model.")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ParamsError(f"{name}: Input should be a valid number")
        if neutral is not None and not 0 <= value <= 1:
            raise ParamsError(f"{name}: range: 0..1")
        if is_thinking and value != neutral and name == "temperature":
            raise ParamsError("`temperature` may only be set to 1 when thinking is enabled.")
