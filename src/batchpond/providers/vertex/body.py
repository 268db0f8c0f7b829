"""Building Vertex AI requests and input lines: Gemini's, held to what can be loaded as a table."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

import orjson

from batchpond.errors import UsageError
from batchpond.model import Prompt
from batchpond.providers.base import BuiltBody, ModelSettings
from batchpond.providers.gemini import body as gemini_body
from batchpond.providers.shared.body import on_one_line
from batchpond.providers.vertex.schema import HINT, ImportRuleError, Table

PUBLISHER: Final = "publishers/google/models/"
_MODEL_PATH: Final = re.compile(r"(?:projects/[^/]+/locations/[^/]+/)?(?:publishers/[^/]+/)?models/[^/]+(?:@[^/]+)?")
_FRACTIONS: Final = ("temperature", "topP", "topK", "presencePenalty", "frequencyPenalty")
_ID_HEAD: Final = "k"
_OUR_ID: Final = re.compile(rf"{_ID_HEAD}([a-z2-7]{{10}}-[a-z2-7]{{20}})")


def model_path(model: str) -> str:
    """Return the name that a job takes for a model; raises UsageError for one that names something else."""
    path = model if "/" in model else PUBLISHER + model
    if not _MODEL_PATH.fullmatch(path) or "/anthropic/" in path:
        raise UsageError(
            f"model {model!r} is not a Gemini model of Vertex AI",
            hint=f"write gemini-2.5-flash, or {PUBLISHER}gemini-2.5-flash",
        )
    return path


def bare_model(model: str) -> str:
    """Return a model's own name, without the path before it."""
    return model.rpartition("/")[2]


def build_body(prompt: Prompt, settings: ModelSettings) -> BuiltBody:
    """Return the `request` of an input line, as `gemini_body.build_body` does for the same model.

    Numbers that may be fractions always are, so that 0 and 0.5 make one column. Raises UsageError for
    what the model refuses, and for parameters that Vertex AI could not load.
    """
    model_path(settings.request_model)
    known = dataclasses.replace(settings, request_model=bare_model(settings.request_model))
    built = gemini_body.build_body(prompt, known)
    generation: dict[str, Any] = built.body.get("generationConfig", {})
    for name in _FRACTIONS:
        value = generation.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            generation[name] = float(value)
    try:
        Table().add({"request": built.body}, 1)
    except ImportRuleError as error:
        raise UsageError(f"model {settings.request_model}: {error}", hint=HINT) from None
    return built


def payload_line(custom_id: str, endpoint: str, body: bytes) -> bytes:  # noqa: ARG001  # the job names the model
    """Return one line of a batch input file, without its line feed; `body` is used as it is.

    Vertex AI documents no key, but gives unknown keys beside `request` back (recorded traffic of 2026). It
    turns text that looks like a number into one, so that the id begins with a letter.
    """
    return b'{"custom_id":%b,"request":%b}' % (orjson.dumps(_ID_HEAD + custom_id), on_one_line(custom_id, body))


def own_id(written: str | None) -> str | None:
    """Return the custom_id that `payload_line` wrote, or a foreign one as it is."""
    ours = _OUR_ID.fullmatch(written or "")
    return ours[1] if ours else written
