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
from batchpond.providers.compatible import body as compatible_body
from batchpond.providers.compatible.body import CHAT
from batchpond.providers.compatible.hosts import HOSTS, OWN_FAMILIES, Host
from batchpond.providers.openai.body import payload_line
from batchpond.providers.shared import chat as common_chat
from batchpond.providers.shared.lines import load_row, unreadable
from batchpond.providers.shared.live import LiveApi

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
        """Return the thinking words that a model takes here."""
        return compatible_body.accepted_thinking(self.host, model)

    def caveats(self, model: str) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: what is to be known is of the host."""
        return ()

    def build_body(self, prompt: Prompt, settings: ModelSettings) -> BuiltBody:
        """Return the chat body for a prompt; raises UsageError for what is not known to be understood."""
        return compatible_body.build_body(self.host, prompt, settings)

    def payload_line(self, custom_id: str, endpoint: str, body: bytes) -> bytes:
        """Return one line of a file in OpenAI's form, as `vllm run-batch` reads it."""
        return payload_line(custom_id, endpoint, body)

    def read_line(self, line: bytes, role: FileRole) -> Response:  # noqa: ARG002
        """Return one line of a result file in OpenAI's form made uniform."""
        row = load_row(line)
        return unreadable(None, row) if isinstance(row, str) else common_chat.read_row(row, self._read_body)

    def read_answer(self, status_code: int, body: bytes) -> Response:
        """Return a live call's whole answer made uniform."""
        return common_chat.read_answer(status_code, body, self._read_body)

    @property
    def LIVE(self) -> LiveApi:  # named as in the modules of the other providers
        """What tells this host's live calls from another's."""
        return LiveApi(self.DESCRIPTOR, self.host.rates, base_of=self._base_of)

    def _base_of(self, base_url: str, environ: Mapping[str, str]) -> str:  # noqa: ARG002
        return base_url if urlsplit(base_url).path else base_url + self.host.base_path

    def _read_body(
        self, custom_id: str | None, status_code: int | None, body: dict[str, Any], request_id: str | None
    ) -> Response:
        found = common_chat.read_chat(custom_id, status_code, body, request_id)
        if self.host.reasoning_is_apart:
            found = common_chat.with_reasoning_counted(found, body.get("usage"))
        return common_chat.without_thoughts(found)


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
