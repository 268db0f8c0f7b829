"""What is asked of OpenAI-compatible hosts: those of `hosts.toml`, and servers of one's own as `compatible-NAME`.

The address of `compatible-NAME` is `NAME_BASE_URL`, its key `NAME_API_KEY` if it wants one, both from the
environment alone: no file of a repository says where prompts or a key go.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

import msgspec

from batchpond.errors import UsageError
from batchpond.model import Mode, Response
from batchpond.providers.base import Descriptor
from batchpond.providers.shared import lines
from batchpond.providers.shared.dialect import (
    CHAT,
    UNASKED,
    UNSEEN,
    ChatDialect,
    ModelSettings,
    Sight,
    refused_thinking,
)

PREFIX: Final = "compatible-"
_OWN_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_OWN_NAME_CHARS: Final = 40

Words = Mapping[str, Mapping[str, Any]]
"""Thinking words, and what each puts into a body."""


_DATA: Final = tomllib.loads((resources.files(__package__) / "hosts.toml").read_text("utf-8"))


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
class Compatible(ChatDialect):
    """One host, or one kind of server.

    `schema_prefixes` begin the names of the models whose answers can be held to a JSON schema; () is none.
    `reasoning_is_apart` where `completion_tokens` leave the reasoning out.
    """

    reserved: ClassVar[Mapping[str, str]] = _DATA["reserved"]

    DESCRIPTOR: Descriptor
    families: tuple[Family, ...]
    limit_name: str = "max_tokens"
    line_form: bytes = ChatDialect.line_form
    reasoning_is_apart: bool = False
    schema_prefixes: tuple[str, ...] = ("",)
    sight: Sight = UNSEEN

    @classmethod
    def of(cls, descriptor: Descriptor, families: list[Any], base_path: str = "", **row: Any) -> Self:
        """Return what a table says of a host: families by their name in `hosts.toml`, or of its own.

        `base_path` is what the host's SDK adds to a base URL without a path.
        """
        known = [_DATA["families"][one] if isinstance(one, str) else one for one in families]
        notes = [f"thinking of {family['prefix']}*: {family['source']}" for family in known]
        described = replace(
            descriptor,
            notes=(*descriptor.notes, *notes),
            base_of=lambda url, _: url if urlsplit(url).path else url + base_path,
        )
        return msgspec.convert(row | {"families": known, "DESCRIPTOR": described}, cls)

    def words(self, model: str) -> Words:
        """Return the thinking words that a model takes here; none where nothing is known."""
        name = _bare(model)
        return next((family.accepted for family in self.families if name.startswith(family.prefix)), {})

    def effort(self, model: str, thinking: str) -> str:
        """Return how hard a model thinks by a study's word: unasked not at all where no word is known for it."""
        return thinking if thinking != UNASKED or self.words(model) else "none"

    def takes_schema(self, model: str) -> bool:
        """Return whether a model's answers can be held to a JSON schema here."""
        return _bare(model).startswith(self.schema_prefixes)

    def refusal(self, settings: ModelSettings) -> UsageError:
        """Return the refusal of a thinking word that is not known to mean anything to this model at this host."""
        words = self.words(settings.request_model)
        accepted = f"it accepts {', '.join(words)}" if words else "no thinking word is known for it"
        hint = "leave its thinking at the default, and write what the server understands as parameters of the model"
        return refused_thinking(settings, accepted, f" at {self.DESCRIPTOR.name}", hint)

    def settle(self, response: Response, total_tokens: int | None) -> Response:
        """Return a success with thoughts inside the text taken out of it."""
        if self.reasoning_is_apart:
            response = lines.with_reasoning_counted(response, total_tokens)
        return lines.without_thoughts(response)


def _host(source: str, families: list[Any], base_path: str = "", **row: Any) -> Compatible:
    row = {"sight": _DATA["pictures"]} | row
    about = {
        "needs_key": not row.get("is_free", False),
        "takes_schema": row.get("schema_prefixes") != [],
        "endpoints": [CHAT],
        "modes": [Mode.LIVE, Mode.FILES],
        "notes": [source],
    }
    return Compatible.of(msgspec.convert(about | row, Descriptor), families, base_path, **row)


HOSTS: Final = tuple(_host(**row) for row in _DATA["hosts"])
NAMES: Final = tuple(host.DESCRIPTOR.name for host in HOSTS)


@lru_cache(maxsize=256)
def module_of(name: str) -> Compatible | None:
    """Return the provider of a name, None for one that is neither in the table nor `compatible-NAME`.

    Raises UsageError for a `compatible-NAME` whose NAME makes no variable.
    """
    host = next((host for host in HOSTS if host.DESCRIPTOR.name == name), None)
    return _own(name) if host is None and name.startswith(PREFIX) else host


def _own(name: str) -> Compatible:
    own = name.removeprefix(PREFIX)
    if not _OWN_NAME.fullmatch(own) or len(own) > _OWN_NAME_CHARS:
        raise UsageError(
            f"{name!r} names no server of one's own", hint=f"write {PREFIX}NAME, with a-z, 0-9 and single hyphens"
        )
    variable = own.replace("-", "_").upper()
    told = f"{name} is whatever {variable}_BASE_URL leads to: its price is unknown unless config.toml says it"
    about = {
        "name": name,
        "default_base_url": "",
        "base_url_env": f"{variable}_BASE_URL",
        "key_env": [f"{variable}_API_KEY"],
        "caveats": [told],
        "needs_key": False,
    }
    return _host(**_DATA["own"] | about)


def _bare(model: str) -> str:
    return model.lower().rsplit("/", 1)[-1]
