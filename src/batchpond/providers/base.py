"""What a batch provider is to the rest of batchpond: a descriptor (data), a client (calls), and what is known of it.

A provider module knows its wire format and nothing of the lake, SQL or the command line. What is known of requests and
models is data, `known.toml` in its folder, with its sources: `fields` are what a body may hold, by endpoint and kind of
value; `ended` are models that are no longer served, and since when; `ends` are announced days, which providers move:
they are told, and nothing is refused for them.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from batchpond import model
from batchpond.errors import ProviderError
from batchpond.model import ErrorClass, FileRole, Mode, RemoteBatch, RemoteFile


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A provider's limits, names and caveats; `notes` says where each is known from.

    `caveats` are shown to the user before money is spent, with `batch_caveats` where it is in batches. `settle_s` is
    how long an unclear create must stay invisible before it may be called absent. A batch that failed whole with one of
    `requeue_codes` ran nothing and is sent again later by itself. `takes_files` is false where the requests travel
    inside the create call. Without a token (`has_token`) a batch is known as ours only by the custom_ids of its
    results. An uploaded input file is gone after `input_retention_s`; None is longer than any attempt. Where
    `has_known_retention` is not set, the provider does not say how long it keeps results. `modes` are the ways to ask;
    `is_free` says that nobody bills for it: a server of one's own. Where `batch_discounts` is given, only its models
    are cheaper in batches, by that share; without it every model is, as its bundled prices say. `content_hosts` are the
    hosts that downloads may be redirected to, without the key; a dot at the beginning means all below. `settings` are
    what a lake's config.toml may say under `[providers.<name>]`, with the variables that it then stands for;
    `credentials_env` name files that stand in place of a key. Without `needs_key` calls are made without a key where
    none is set. With a `default_port` an address may lack scheme, host or port. Without `lists_state` the listing names
    the batches, but not how they stand. What a cancelled batch says may be taken back for `cancel_settle_s`.
    `takes_schema` says that answers can be held to a JSON schema, by some of its models at least. `logprobs` is what a
    body says so that answers come with the log probabilities of their tokens, empty where they never do. What prompts
    begin with is read from a cache by itself from `cache_min_tokens` on, by the least of its models; 0 where nothing is
    known of it. `cache_marks` has how long what a request marks may be kept, and what writing it costs for each token
    of plain input. `key_header` carries the key, as a bearer token where it is `Authorization`; `headers` go with every
    call, and those of `header_env` with the value of their variable where it is set. The answers' headers
    `scope_headers`, in lower case, say which account a key belongs to; an empty name stands for a part that none says.
    `price_name` is what the price data call the provider. The ids of its batches begin with `batch_id_prefix`, where
    that tells them from those of other providers. `rates` are the headers in which answers tell the account's limits,
    as `RateNames` has them; None for any that are usual. `nearest` gives, for a model that its table of models does not
    have, the names in it that are most like it, and None for one that it has. `base_of` returns what endpoints are
    below, by the base URL that the user gave and the environment.
    """

    name: str
    default_base_url: str
    base_url_env: str
    key_env: tuple[str, ...]
    endpoints: tuple[str, ...]
    max_requests: int = 0
    max_bytes: int = 0
    list_page_size: int = 0
    create_deadline_s: float = 0.0
    settle_s: float = 0.0
    results_retention_days: int = 0
    has_token: bool = True
    caveats: tuple[str, ...] = ()
    batch_caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    requeue_codes: tuple[str, ...] = ()
    takes_files: bool = True
    input_retention_s: float | None = None
    has_known_retention: bool = False
    modes: tuple[Mode, ...] = (Mode.BATCH, Mode.LIVE, Mode.FILES)
    is_free: bool = False
    live_concurrency: int = 16
    is_one_model_at_a_time: bool = False
    lists_state: bool = True
    cancel_settle_s: float = 0.0
    batch_discounts: Mapping[str, float] | None = None
    content_hosts: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    credentials_env: tuple[str, ...] = ()
    needs_key: bool = True
    default_port: int | None = None
    takes_schema: bool = False
    logprobs: Mapping[str, Any] = field(default_factory=dict)
    cache_min_tokens: int = 0
    cache_marks: Mapping[str, float] = field(default_factory=dict)
    key_header: str = "Authorization"
    headers: tuple[tuple[str, str], ...] = ()
    header_env: tuple[tuple[str, str], ...] = ()
    scope_headers: tuple[str, ...] = ()
    price_name: str | None = None
    batch_id_prefix: str | None = None
    rates: Mapping[str, Any] | None = None
    nearest: Callable[[str], tuple[str, ...] | None] = lambda _: None
    base_of: Callable[[str, Mapping[str, str]], str] = lambda base_url, _: base_url

    @property
    def is_opaque(self) -> bool:
        """Whether nothing at the provider names an attempt before its results do: no token, no input file."""
        return not (self.has_token or self.takes_files)


@dataclass(frozen=True, slots=True)
class RateHints:
    """What an answer's headers say of the account's limits per window; None where they are silent.

    `*_reset_s` counts from the answer on until the whole limit is there again.
    """

    request_limit: int | None = None
    requests_left: int | None = None
    requests_reset_s: float | None = None
    token_limit: int | None = None
    tokens_left: int | None = None
    tokens_reset_s: float | None = None


NO_HINTS = RateHints()
LIVE_CONNECTIONS = 64  # of one live client, where the caller does not say


@dataclass(frozen=True, slots=True)
class Answered:
    """A live call's final answer, whole, good or bad: asking again would not change it.

    `body` is exactly what arrived.
    """

    status_code: int
    body: bytes
    provider_request_id: str | None = None
    hints: RateHints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Deferred:
    """The provider did not take a live call for now, and charged nothing: the same call may be made again.

    `is_shared` says that the refusal is of the account or server (rate limit, overload), so that the
    other workers had better wait too.
    """

    reason: str
    status_code: int | None = None
    retry_after_s: float | None = None
    is_shared: bool = True
    hints: RateHints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Doubtful:
    """A live call whose answer did not arrive whole: it may have been computed and charged."""

    reason: str


LiveAnswer = Answered | Deferred | Doubtful


@dataclass(frozen=True, slots=True)
class LiveStart:
    """What one free call before the first live one came to: the account, and whether a simulator answers."""

    scope: str
    is_simulated: bool


class BatchProvider(ABC):
    """The client of one provider's batch API, bound to one key and base URL.

    No method retries `create`; the others may be called again safely. Each raises
    `AccessError` when the key is refused and `ProviderError` when permitted retries end. What is not abstract holds
    where requests travel inside the create call and nothing can be looked up by its token. `host` is what the key is
    bound to; `is_loopback` where the base URL is on this machine, that is, a simulator.
    """

    descriptor: Descriptor
    host: str
    is_loopback: bool

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def upload(self, path: Path, filename: str) -> RemoteFile:  # noqa: ARG002
        """Upload a payload; safe to repeat."""
        raise ProviderError(f"{self.descriptor.name} takes no batch files; {filename} was not uploaded")

    @abstractmethod
    def find_uploads(self, filename: str, since: datetime) -> list[RemoteFile]:
        """Return the uploaded files of that name."""

    def drop_upload(self, file_id: str) -> bool:  # noqa: ARG002
        """Delete an uploaded payload; False where there was none."""
        return False

    @abstractmethod
    def create(self, spec: model.CreateSpec) -> model.CreateAnswer:
        """Send exactly one POST and classify its answer; raises nothing for network faults."""

    @abstractmethod
    def list_page(self, cursor: str | None) -> model.BatchPage:
        """Return one page of the account's batches, newest first."""

    def find_batches(self, token: str) -> tuple[RemoteBatch, ...]:  # noqa: ARG002
        """Return the batches that the provider itself finds by a token; none prove nothing."""
        return ()

    @abstractmethod
    def get(self, batch_id: str) -> RemoteBatch | None:
        """Return a batch, or None on 404, which is not proof of loss."""

    @abstractmethod
    def cancel(self, batch_id: str) -> RemoteBatch | None:
        """Ask for cancellation; None when the provider says it is too late or unknown."""

    def result_files(self, batch: RemoteBatch) -> tuple[tuple[FileRole, str], ...]:
        """Return the result files that a batch names, output first."""
        named = ((FileRole.OUTPUT, batch.output_file_id), (FileRole.ERROR, batch.error_file_id))
        return tuple((role, file_id) for role, file_id in named if file_id)

    @abstractmethod
    def download(self, file_id: str, path: Path) -> model.Download | None:
        """Stream a file's bytes to `path`; None on 404."""

    def size_of(self, file_id: str) -> int | None:  # noqa: ARG002
        """Return how many bytes an uploaded file has, None where the provider does not say."""
        return None

    @abstractmethod
    def peek(self, file_id: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a result file; None on 404."""

    @abstractmethod
    def check(self) -> str:
        """Make one free call and return the scope (account) that the key belongs to."""


_FILE: Final = "known.toml"
_DATED: Final = re.compile(r"(?:-\d{8}|-\d{4}-\d{2}-\d{2}|-latest)?")
_NEAREST_MAX: Final = 3
_NEAR: Final = 0.5
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "text": (str,),
    "number": (int, float),
    "whole": (int,),
    "switch": (bool,),
    "list": (list, tuple),
    "table": (dict,),
}


E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Known:
    """The kinds of value of each field, by endpoint; the days on which models ended or are to end, by name."""

    fields: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    ended: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, str] = field(default_factory=dict)

    def kinds(self, name: str, endpoint: str) -> tuple[str, ...] | None:
        """Return which kinds of value a field takes, `top_p` for `topP`; () for none by that name, None if unknown.

        An endpoint may have a version after an `@`.
        """
        fields = self.fields.get(endpoint.partition("@")[0])
        camel = re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)
        return None if fields is None else fields.get(name) or fields.get(camel, ())

    def endpoints(self, name: str) -> list[str]:
        """Return the endpoints that take a field."""
        return [endpoint for endpoint in self.fields if self.kinds(name, endpoint)]


def descriptor(provider: str, **more: Any) -> Descriptor:
    """Return a provider's descriptor: its names, limits, caveats and notes by its file, and what its code says."""
    data = _data(provider)
    told = {name: data.get(name, []) for name in ("caveats", "batch_caveats", "notes")}
    said = {"name": provider, **data["limits"], **told}
    return Descriptor(**{name: _frozen(value) for name, value in said.items()} | more)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def table(provider: str, name: str, usual: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a table of what is known of a provider alone, what is `usual` where it may lack."""
    found: dict[str, Any] = _data(provider)[name] if usual is None else {**usual, **_data(provider).get(name, {})}
    return found


def by_word(provider: str, name: str, kind: type[E]) -> dict[str, E]:
    """Return what each of a provider's words means, from a table of the words of each meaning."""
    return {word: kind(meaning) for meaning, words in table(provider, name).items() for word in words}


Texts = tuple[tuple[ErrorClass, re.Pattern[str]], ...]
"""What texts of errors mean, the first that is found."""


def texts(provider: str, name: str) -> Texts:
    """Return what a provider's texts of errors mean, from a table of regular expressions by their meaning."""
    return tuple((ErrorClass(kind), re.compile(text, re.IGNORECASE)) for kind, text in table(provider, name).items())


def class_of(texts: Texts, message: str) -> ErrorClass | None:
    """Return what kind of failure a message tells, None when it tells nothing."""
    return next((error_class for error_class, pattern in texts if pattern.search(message)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models that take the same parameters: those whose name begins so, dated ones included.

    Where a family `is_open` anything may follow its prefix. `source` says where the row is known from. The family of
    the models that no row names is not `is_known`.
    """

    prefix: str
    source: str
    is_open: bool = False
    is_known: bool = True


F = TypeVar("F", bound=Family)


class Families(Generic[F]):
    """A provider's families of models, in the order of its file: the first that a name belongs to is a model's.

    `[models]` there says what may stand before a family's prefix, what may follow it, and what is taken to hold for a
    model that no row names.
    """

    def __init__(self, provider: str, kind: type[F]) -> None:
        about = table(provider, "models")
        self._provider, self._kind = provider, kind
        self._before: str = about["before"]
        self._after = re.compile(about["after"], re.DOTALL)
        self._caveat: str = about["unknown"]
        self.of = lru_cache(maxsize=1024)(self._of)

    @cached_property
    def rows(self) -> tuple[F, ...]:
        """The families, read when one is asked for: a pass that only looks at batches asks for none."""
        return self._read(_data(self._provider)["families"])

    @cached_property
    def _unknown(self) -> F:
        other = {"prefix": "", "source": "not in the table", "is_known": False}
        return self._read([other | table(self._provider, "models")["other"]])[0]

    def _read(self, rows: list[dict[str, Any]]) -> tuple[F, ...]:
        return tuple(msgspec.convert(row, self._kind) for row in rows)

    def _of(self, model: str) -> F:
        """Return the family of a model; one that no row names gets a family that takes what is written.

        A name that only begins like a family's is not of it: `gpt-5` is not the family of `gpt-5.9`.
        """
        name = model.lower().removeprefix(self._before)
        for family in self.rows:
            is_like = name.startswith(family.prefix)
            if is_like and (family.is_open or self._after.fullmatch(name, len(family.prefix))):
                return family
        return self._unknown

    def nearest(self, model: str) -> tuple[str, ...] | None:
        """Return the names of the table that are most like a model's, None where it is there itself."""
        if self.of(model).is_known:
            return None
        names = list(dict.fromkeys(family.prefix for family in self.rows))
        return tuple(difflib.get_close_matches(model.lower(), names, _NEAREST_MAX, _NEAR))

    def caveats(self, model: str) -> tuple[str, ...]:
        """Return what a person should know about a model that is in no family, before money is spent on it."""
        return () if self.of(model).is_known else (self._caveat.format(model=model),)


@cache
def known(provider: str) -> Known:
    """Return what is known of a provider; nothing of one without such data."""
    data = _data(provider)
    fields = {endpoint: _by_name(kinds) for endpoint, kinds in data.get("fields", {}).items()}
    days = ({name: day for day, names in data.get(part, {}).items() for name in names} for part in ("ended", "ends"))
    return Known(fields, *days)


@cache
def _data(provider: str) -> dict[str, Any]:
    file = resources.files("batchpond.providers") / provider / _FILE
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}


def fits(value: Any, kinds: Iterable[str]) -> bool:
    """Return whether a value is of one of these kinds."""
    if isinstance(value, bool):
        return "switch" in kinds
    return any(isinstance(value, _KINDS[kind]) for kind in kinds if kind != "switch")


def day_of(model: str, days: Mapping[str, str]) -> str | None:
    """Return the day of a model among days by name; dated names, `-latest` and fine-tuned models go with theirs."""
    name = model.lower().removeprefix("models/").removeprefix("ft:").partition(":")[0]
    found = (day for stem, day in days.items() if name.startswith(stem) and _DATED.fullmatch(name, len(stem)))
    return next(found, None)


def _by_name(kinds: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for listed in kinds.values() for name in listed)
    return {name: tuple(kind for kind, listed in kinds.items() if name in listed) for name in names}
