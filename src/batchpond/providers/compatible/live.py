"""Any OpenAI-compatible chat endpoint: the hosts of `hosts.toml`, and servers of one's own as `compatible-NAME`.

The address of `compatible-NAME` is `NAME_BASE_URL`, its key `NAME_API_KEY` if it wants one, both from the
environment alone: no file of a repository says where prompts or a key go.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from batchpond.errors import UsageError
from batchpond.model import FileRole, Mode, Prompt, Response
from batchpond.providers.base import BuiltBody, Descriptor, ModelSettings
from batchpond.providers.openai.body import payload_line
from batchpond.providers.shared import lines
from batchpond.providers.shared.lines import chat_body, check_endpoint
from batchpond.providers.shared.live import ANY_RATES, NO_RATES, LiveApi, Per, RateNames, rate_limit

CHAT: Final = "/v1/chat/completions"
PREFIX: Final = "compatible-"
_OWN_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_OWN_NAME_CHARS: Final = 40

Words = Mapping[str, Mapping[str, Any]]
"""Thinking words, and what each puts into a body."""


_DATA: Final = tomllib.loads((resources.files(__package__) / "hosts.toml").read_text("utf-8"))
_RATES: Final = {
    "any": ANY_RATES,
    "none": NO_RATES,
    "groq": RateNames((rate_limit("requests", Per.UNKNOWN),), (rate_limit("tokens"),)),
    "mistral": RateNames(
        (rate_limit("req-minute"), rate_limit("requests")), (rate_limit("tokens-minute"), rate_limit("tokens"))
    ),
}


@dataclass(frozen=True)
class Family:
    """Models that take the same thinking words: those whose name, without its maker, begins with `prefix`.

    `words` says all of what a word puts into a body; `efforts` are sent as `reasoning_effort`, `template_efforts` are
    told the chat template under that name, and `switch` is what it is told of being on or off.
    """

    prefix: str
    source: str
    words: dict[str, dict[str, Any]] = field(default_factory=dict)
    efforts: tuple[str, ...] = ()
    template_efforts: tuple[str, ...] = ()
    switch: str | None = None

    @cached_property
    def accepted(self) -> Words:
        """The thinking words that these models take."""
        switched = ("none", "enabled") if self.switch else ()
        return (
            self.words
            | {word: {"reasoning_effort": word} for word in self.efforts}
            | {word: {"chat_template_kwargs": {"reasoning_effort": word}} for word in self.template_efforts}
            | {word: {"chat_template_kwargs": {self.switch: word == "enabled"}} for word in switched}
        )


@dataclass(frozen=True)
class Compatible:
    """One host, or one kind of server, as a provider module: building bodies before, reading answers after.

    `base_path` is what its SDK adds to a base URL without a path. `schema_prefixes` begin the names of the models
    whose answers can be held to a JSON schema; () is none. `reasoning_is_apart` where `completion_tokens` leave the
    reasoning out. `is_free` for servers of one's own. `price_name` is what the price data call the host.
    """

    name: str
    base_url: str
    base_url_env: str
    key_env: tuple[str, ...]
    families: tuple[Family, ...]
    source: str
    limit_name: str = "max_tokens"
    base_path: str = ""
    rates: str = "any"
    is_free: bool = False
    reasoning_is_apart: bool = False
    schema_prefixes: tuple[str, ...] = ("",)
    caveats_of_host: tuple[str, ...] = ()
    price_name: str | None = None

    @cached_property
    def DESCRIPTOR(self) -> Descriptor:
        """What holds for the host, as for every provider."""
        return Descriptor(
            name=self.name,
            default_base_url=self.base_url,
            base_url_env=self.base_url_env,
            key_env=self.key_env,
            endpoints=(CHAT,),
            modes=(Mode.LIVE, Mode.FILES),
            is_free=self.is_free,
            needs_key=not self.is_free and not self.name.startswith(PREFIX),
            caveats=self.caveats_of_host,
            price_name=self.price_name,
            takes_schema=bool(self.schema_prefixes),
            notes=(self.source, *(f"thinking of {family.prefix}*: {family.source}" for family in self.families)),
        )

    @property
    def LIVE(self) -> LiveApi:  # named as in the modules of the other providers
        """What tells this host's live calls from another's."""
        return LiveApi(self.DESCRIPTOR, _RATES[self.rates], base_of=self._base_of)

    def endpoint_for(self, model: str, include_thoughts: bool, temperature: float | None = None) -> str:  # noqa: ARG002
        """Return the only endpoint that is asked."""
        return CHAT

    def caveats(self, model: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: what is to be known is of the host."""
        return ()

    def words(self, model: str) -> Words:
        """Return the thinking words that a model takes here; none where nothing is known."""
        name = _bare(model)
        return next((family.accepted for family in self.families if name.startswith(family.prefix)), {})

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the chat body for a prompt: the host's word for the limit, and for thinking.

        Raises UsageError for another endpoint, and for a thinking word that is not known to mean anything to
        this model at this host. Thoughts come back where the server tells them apart, asked for or not.
        """
        check_endpoint(settings, CHAT, f", the only one of {self.name}")
        return chat_body(
            prompt,
            settings,
            self._thinking(settings),
            _DATA["reserved"],
            limit_name=self.limit_name,
            takes_schema=_bare(settings.request_model).startswith(self.schema_prefixes),
        )

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one line of a file in OpenAI's form, as `vllm run-batch` reads it."""
        return payload_line(custom_id, endpoint, body)

    def read_line(self, line: bytes, role: FileRole) -> Response:  # noqa: ARG002
        """Return one line of a result file in OpenAI's form made uniform."""
        return lines.read_line(line, self._read_body)

    def read_answer(self, status_code: int, body: bytes) -> Response:
        """Return a live call's whole answer made uniform."""
        return lines.read_answer(status_code, body, self._read_body)

    def _base_of(self, base_url: str, environ: Mapping[str, str]) -> str:  # noqa: ARG002
        return base_url if urlsplit(base_url).path else base_url + self.base_path

    def _thinking(self, settings: ModelSettings) -> Mapping[str, Any]:
        word = settings.thinking
        if word is None:
            return {}
        words = self.words(settings.request_model)
        if word in words:
            return words[word]
        accepted = f"it accepts {', '.join(words)}" if words else "no thinking word is known for it"
        raise UsageError(
            f"model {settings.request_model} does not accept thinking {word!r} at {self.name}; {accepted}",
            hint="leave its thinking at the default, and write what the server understands as parameters of the model",
        )

    def _read_body(self, row: lines.Row, body: dict[str, Any]) -> Response:
        found = lines.read_chat(row, body)
        if self.reasoning_is_apart:
            found = lines.with_reasoning_counted(found, body.get("usage"))
        return lines.without_thoughts(found)


def _host(**row: Any) -> Compatible:
    families = [_DATA["families"][one] if isinstance(one, str) else one for one in row["families"]]
    return msgspec.convert(row | {"families": families}, Compatible)


HOSTS: Final = tuple(_host(**row) for row in _DATA["hosts"])
NAMES: Final = tuple(host.name for host in HOSTS)


@lru_cache(maxsize=256)
def module_of(name: str) -> Compatible | None:
    """Return the provider of a name, None for one that is neither in the table nor `compatible-NAME`.

    Raises UsageError for a `compatible-NAME` whose NAME makes no variable.
    """
    host = next((host for host in HOSTS if host.name == name), None)
    return _own(name) if host is None and name.startswith(PREFIX) else host


def _own(name: str) -> Compatible:
    own = name.removeprefix(PREFIX)
    if not _OWN_NAME.fullmatch(own) or len(own) > _OWN_NAME_CHARS:
        raise UsageError(
            f"{name!r} names no server of one's own", hint=f"write {PREFIX}NAME, with a-z, 0-9 and single hyphens"
        )
    variable = own.replace("-", "_").upper()
    told = f"{name} is whatever {variable}_BASE_URL leads to: its price is unknown unless config.toml says it"
    return _host(
        name=name,
        base_url="",
        base_url_env=f"{variable}_BASE_URL",
        key_env=(f"{variable}_API_KEY",),
        families=_DATA["own"]["families"],
        source="the environment",
        caveats_of_host=(told,),
    )


def _bare(model: str) -> str:
    """Return a model's name without its maker."""
    return model.lower().rsplit("/", 1)[-1]
