"""Any OpenAI-compatible chat endpoint: the hosts of a table, and servers of one's own as `compatible-NAME`.

The address of `compatible-NAME` is `NAME_BASE_URL`, its key `NAME_API_KEY` if it wants one, both from the
environment alone: no file of a repository says where prompts or a key go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from batchpond.errors import UsageError
from batchpond.model import FileRole, Mode, Prompt, Response
from batchpond.providers.base import BuiltBody, Descriptor, ModelSettings, live_descriptor
from batchpond.providers.compatible.hosts import HOSTS, OWN_FAMILIES, Host, Words
from batchpond.providers.openai.body import payload_line
from batchpond.providers.shared import lines
from batchpond.providers.shared.lines import SCHEMA, add_parameters, messages, response_format
from batchpond.providers.shared.live import LiveApi

CHAT: Final = "/v1/chat/completions"
_RESERVED: Final = {
    "model": "the study's `model`",
    "messages": "the template",
    "stream": "nothing: a streamed answer that breaks off looks like one that ended",
    "n": "the study's `repeats`, which keeps every answer apart",
}

PREFIX: Final = "compatible-"
NAMES: Final = tuple(host.name for host in HOSTS)
_OWN_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_OWN_NAME_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class Compatible:
    """One host as a provider module: building bodies before, reading answers after."""

    host: Host
    DESCRIPTOR: Descriptor

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG002
        """Return the only endpoint that is asked."""
        return CHAT

    def accepted_thinking(self, model: str) -> tuple[str, ...]:
        """Return the thinking words that a model takes at a host; none where nothing is known."""
        return tuple(_words(self.host, model))

    def caveats(self, model: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: what is to be known is of the host."""
        return ()

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the chat body for a prompt: the host's word for the limit, and for thinking.

        Raises UsageError for another endpoint, and for a thinking word that is not known to mean anything to
        this model at this host. Thoughts come back where the server tells them apart, asked for or not.
        """
        model, host = settings.request_model, self.host
        if settings.endpoint != CHAT:
            message = f"model {model}: endpoint {settings.endpoint!r} is not {CHAT}, the only one of {host.name}"
            raise UsageError(message)
        body: dict[str, Any] = {"model": model, "messages": messages(prompt)}
        if settings.max_output_tokens is not None:
            body[host.limit_name] = settings.max_output_tokens
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        body |= _thinking(host, settings)
        dropped: tuple[str, ...] = ()
        if settings.output_schema is not None and _bare(model).startswith(host.schema_prefixes):
            body["response_format"] = response_format(settings.output_schema)
        elif settings.output_schema is not None:
            dropped = (SCHEMA,)
        add_parameters(body, settings, _RESERVED)
        return BuiltBody(body, dropped)

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one line of a file in OpenAI's form, as `vllm run-batch` reads it."""
        return payload_line(custom_id, endpoint, body)

    def read_line(self, line: bytes, role: FileRole) -> Response:  # noqa: ARG002
        """Return one line of a result file in OpenAI's form made uniform."""
        return lines.read_line(line, self._read_body)

    def read_answer(self, status_code: int, body: bytes) -> Response:
        """Return a live call's whole answer made uniform."""
        return lines.read_answer(status_code, body, self._read_body)

    @property
    def LIVE(self) -> LiveApi:  # named as in the modules of the other providers
        """What tells this host's live calls from another's."""
        return LiveApi(self.DESCRIPTOR, self.host.rates, base_of=self._base_of)

    def _base_of(self, base_url: str, environ: Mapping[str, str]) -> str:  # noqa: ARG002
        return base_url if urlsplit(base_url).path else base_url + self.host.base_path

    def _read_body(
        self, custom_id: str | None, status_code: int | None, body: dict[str, Any], request_id: str | None
    ) -> Response:
        found = lines.read_chat(custom_id, status_code, body, request_id)
        if self.host.reasoning_is_apart:
            found = lines.with_reasoning_counted(found, body.get("usage"))
        return lines.without_thoughts(found)


@lru_cache(maxsize=256)
def module_of(name: str) -> Compatible | None:
    """Return the provider of a name, None for one that is neither in the table nor `compatible-NAME`.

    Raises UsageError for a `compatible-NAME` whose NAME makes no variable.
    """
    host = next((host for host in HOSTS if host.name == name), None)
    if host is None and name.startswith(PREFIX):
        host = _own(name)
    return Compatible(host, _descriptor(host)) if host else None


def _own(name: str) -> Host:
    own = name.removeprefix(PREFIX)
    if not _OWN_NAME.fullmatch(own) or len(own) > _OWN_NAME_CHARS:
        raise UsageError(
            f"{name!r} names no server of one's own", hint=f"write {PREFIX}NAME, with a-z, 0-9 and single hyphens"
        )
    variable = own.replace("-", "_").upper()
    return Host(
        name,
        "",
        f"{variable}_BASE_URL",
        (f"{variable}_API_KEY",),
        OWN_FAMILIES,
        "the environment",
        caveats=(f"{name} is whatever {variable}_BASE_URL leads to: its price is unknown unless config.toml says it",),
    )


def _descriptor(host: Host) -> Descriptor:
    return live_descriptor(
        host.name,
        host.base_url,
        host.base_url_env,
        host.key_env,
        CHAT,
        modes=(Mode.LIVE, Mode.FILES),
        is_free=host.is_free,
        needs_key=not host.is_free and not host.name.startswith(PREFIX),
        caveats=host.caveats,
        price_name=host.price_name,
        takes_schema=bool(host.schema_prefixes),
        notes=(host.source, *(f"thinking of {family.prefix}*: {family.source}" for family in host.families)),
    )


def _thinking(host: Host, settings: ModelSettings) -> Mapping[str, Any]:
    word = settings.thinking
    if word is None:
        return {}
    words = _words(host, settings.request_model)
    if word in words:
        return words[word]
    accepted = f"it accepts {', '.join(words)}" if words else "no thinking word is known for it"
    raise UsageError(
        f"model {settings.request_model} does not accept thinking {word!r} at {host.name}; {accepted}",
        hint="leave its thinking at the default, and write what the server understands as parameters of the model",
    )


def _words(host: Host, model: str) -> Words:
    name = _bare(model)
    return next((family.words for family in host.families if name.startswith(family.prefix)), {})


def _bare(model: str) -> str:
    """Return a model's name without its maker."""
    return model.lower().rsplit("/", 1)[-1]
