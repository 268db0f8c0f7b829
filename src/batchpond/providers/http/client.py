"""The only module that speaks HTTP: one key, one host, no redirects, every call bounded.

Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), never for this machine itself; CA
files from `SSL_CERT_FILE`. Nothing else of the environment is used: no netrc, no cookies. No
exception that leaves this module refers to a request, so none can show a header.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar
from urllib.parse import quote

import httpx
import orjson

from batchpond import fields
from batchpond.clock import BYTES, Clock, Work
from batchpond.errors import AccessError, ForbiddenError, LakeError, ProviderError, UnreachableError
from batchpond.model import Download, ErrorClass
from batchpond.providers.base import Descriptor
from batchpond.providers.http import errors, keys, transfers
from batchpond.providers.http.connections import Auth, Deadline, KeyGuard, LaneTransport, failure, within
from batchpond.providers.http.errors import Again, Answer, Fault, HttpError, RetryPolicy, Shape
from batchpond.providers.http.keys import checked_base, origin_of, redirect_target
from batchpond.text import Secret, guard_loggers, redact

__all__ = ["HttpClient", "HttpError", "HttpLimits", "JsonStream"]

_USER_AGENT: Final = "batchpond/0.1"
_URLS_MAX: Final = 256
_JSON: Final = {"Content-Type": "application/json"}
_ASKING: Final = {"User-Agent": _USER_AGENT, "Accept": "application/json", "Accept-Encoding": "identity", **_JSON}
_HOPS_MAX: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ACCESS_HINT: Final = "check it with `batchpond keys --check`"
_BILLING_HINT: Final = "add credit at the provider, then run the same command"
_LATER_HINT: Final = "run the same command again later; it goes on where this one stopped"
_PROXY_HINT: Final = "a proxy or login page may have answered; try the same address in a browser"
_SCOPE_CHARS: Final = 100

_log = logging.getLogger("batchpond.http")
T = TypeVar("T")
Content = TypeVar("Content", Download, bytes)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one try, and of how many are under way at a time; retries have their own bound in RetryPolicy.

    A download slower than `min_bytes_per_s` over a whole `slow_window_s` is given up.
    """

    connect_s: float = 10.0
    idle_s: float = 60.0
    call_s: float = 120.0
    upload_s: float = 1_800.0
    download_s: float = 7_200.0
    min_bytes_per_s: float = 512.0
    slow_window_s: float = 60.0
    json_bytes: int = 64 << 20
    download_bytes: int = 16 << 30
    max_connections: int = 8


@dataclass(frozen=True, slots=True)
class JsonStream:
    """A JSON body that is made while it is sent, so that it never stands in memory.

    `size_bytes` is exact: parts that come to another size end the call before its body is whole.
    """

    size_bytes: int
    parts: Callable[[], Iterable[bytes]]


class _Told(httpx.SyncByteStream):
    """A request's content that tells how much of it was sent."""

    def __init__(self, content: Iterable[bytes], work: Work) -> None:
        self._content, self._work = content, work

    def __iter__(self) -> Iterator[bytes]:
        for block in self._content:
            yield block
            self._work.add(len(block))


@contextmanager
def readable(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is to be sent; raises LakeError where it cannot be read."""
    try:
        with path.open("rb") as content:
            yield content
    except OSError as error:
        raise LakeError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def _told(request: httpx.Request) -> Iterator[None]:
    size_bytes = fields.count(request.headers.get("content-length"))
    with Work("uploading", BYTES, size_bytes) as work:
        if isinstance(request.stream, httpx.SyncByteStream):
            request.stream = _Told(request.stream, work)
        yield


def _whole(body: JsonStream) -> Iterator[bytes]:
    n_bytes = 0
    for part in body.parts():
        n_bytes += len(part)
        if n_bytes > body.size_bytes:
            break
        yield part
    if n_bytes != body.size_bytes:
        raise transfers.Refused("the body changed while it was sent")


class HttpClient:
    """Calls one base URL with one key.

    The headers of `auth` go to the base URL's origin only, checked again where requests leave the
    process; a call that may be repeated is made once more when they were refused and can be
    renewed. `key_name` is what messages call the key (`OPENAI_API_KEY`); `content_hosts` are the
    hosts to which a download may be redirected, without the key. `transport` replaces the network. Raises
    UsageError for a base URL that is not https (http is allowed on this machine, and where no key is sent).

    Paths are below `base_url`; `host`, with its port unless that is the scheme's own, is what the key is bound to.
    """

    def __init__(
        self,
        base_url: str,
        auth: Mapping[str, str | Secret] | Auth,
        clock: Clock,
        transport: httpx.BaseTransport | None = None,
        *,
        key_name: str = "the key",
        limits: HttpLimits | None = None,
        retries: RetryPolicy | None = None,
        content_hosts: Iterable[str] = (),
    ) -> None:
        self.base_url, self._origin = checked_base(base_url, has_key=auth != {})
        self.host, self.is_loopback = self._origin.name, self._origin.is_loopback
        self._auth = Auth(auth) if isinstance(auth, Mapping) else auth
        self._clock = clock
        self._dated = ""
        self.key_name = key_name
        self._limits = limits or HttpLimits()
        self._retries = retries or RetryPolicy()
        self._content_hosts = frozenset(host.lower() for host in content_hosts)
        guard_loggers()
        lanes = transport or LaneTransport(self._origin, self._limits.max_connections)
        self._transport = KeyGuard(lanes, self._origin, self._auth)
        self._url = lru_cache(maxsize=_URLS_MAX)(httpx.URL)
        # Built once where the key never changes; thousands of live calls feel it.
        self._asking = _ASKING | _revealed(self._auth) if isinstance(auth, Mapping) else None
        self._client = httpx.Client(
            transport=self._transport,
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx.Timeout(self._limits.idle_s, connect=self._limits.connect_s),
            headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
        )

    @classmethod
    def connect(
        cls,
        descriptor: Descriptor,
        clock: Clock,
        environ: Mapping[str, str],
        transport: httpx.BaseTransport | None,
        **more: Any,
    ) -> Self:
        """Return the client for the environment's key and base URL, by the names and hosts of a descriptor.

        Raises AccessError when a key is needed and there is none, UsageError when nothing says where the server is.
        """
        access = keys.resolve(descriptor, environ)
        return cls(
            descriptor.base_of(access.base_url, environ),
            keys.headers(descriptor, access, environ),
            clock,
            transport,
            key_name=access.name,
            content_hosts=descriptor.content_hosts,
            **more,
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def request_json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        payload: Mapping[str, Any] | None = None,
        allow: frozenset[int] = frozenset(),
        shape: Shape = dict,
    ) -> Answer:
        """Make a call that is safe to repeat, with retries, and return its JSON object, or array.

        Statuses in `allow` are returned as they are. Raises AccessError for a refused key and
        HttpError for everything else that is not a 2xx with JSON of that `shape`.
        """

        def call() -> Answer | Again | Fault:
            body: dict[str, Any] = {} if payload is None else {"content": orjson.dumps(payload), "headers": _JSON}
            request = self._request(method, path, params=dict(params or {}), **body)
            return self._exchange(request, self._limits.call_s, self._read_answer)

        return self._final(self._repeated(call, f"{method} {path}", allow), f"{method} {path}", allow, shape)

    def ask(
        self,
        path: str,
        body: bytes | JsonStream,
        deadline_s: float,
        headers: Mapping[str, str] | None = None,
        *,
        may_be_silent: bool = True,
    ) -> Answer | Again | Fault:
        """Send exactly one POST of JSON and return the whole answer, or what kept it from arriving; for many threads.

        Never retries, never follows a redirect, ends after `deadline_s` in all, and raises nothing for
        what the network or the server does; what making a `JsonStream` raises comes out as it is. The answer's body is
        exactly what arrived. Nothing reached the server where the reason is CONNECT, or NO_TURN: too few connections
        here for so many callers. A `Fault` that is not of the answer is of the connection as such, and no other call
        would fare better. `headers` replace those of the same name. `path` begins with one slash. A model may think
        for as long as the deadline without a word; where the server may not be silent, it is left sooner.
        """
        idle_s = deadline_s if may_be_silent else self._limits.idle_s
        limits = {"connect": self._limits.connect_s, "read": idle_s, "write": idle_s, "pool": idle_s}
        sent = {**(self._asking or _ASKING | _revealed(self._auth)), **(headers or {})}
        if isinstance(body, JsonStream):
            sent["Content-Length"] = str(body.size_bytes)
        content = _whole(body) if isinstance(body, JsonStream) else body
        url = self._url(self.base_url + path)
        # Past the library's client, whose work per call is felt where thousands are made.
        request = httpx.Request("POST", url, headers=sent, content=content, extensions={"timeout": limits})
        return self._exchange(request, deadline_s, self._read_answer, self._transport.handle_request)

    def upload_multipart(
        self, path: str, file: Path, filename: str, fields: Mapping[str, str], allow: frozenset[int] = frozenset()
    ) -> Answer:
        """Stream a file as form data, with retries, and return the JSON object answered, or a status in `allow`."""

        def call() -> Answer | Again | Fault:
            with readable(file) as content:
                files = {"file": (filename, content, "application/jsonl")}
                request = self._request("POST", path, data=dict(fields), files=files)
                with _told(request):
                    return self._exchange(request, self._limits.upload_s, self._read_answer)

        return self._final(self._repeated(call, f"POST {path}", allow), f"POST {path}", allow)

    def upload_resumable(self, start: transfers.Start, file: Path) -> Answer:
        """Send a file in chunks from disk, going on after a break where the server stands.

        Returns the last answer, whose body may be lost. Raises ProviderError, with nothing sent, when
        the server names an upload address of another origin.
        """

        def send(
            method: str, address: str, headers: Mapping[str, str], content: bytes | Iterable[bytes]
        ) -> transfers.Result:
            request = self._request(method, address, headers=headers, content=content)
            with _told(request):
                return self._exchange(request, self._limits.upload_s, self._read_answer)

        name = f"POST {start.path}"
        with readable(file) as content:
            size_bytes = file.stat().st_size
            result = transfers.Upload(send, lambda call: self._repeated(call, name), start, content, size_bytes).run()
        return result if isinstance(result, Answer) and result.is_success else self._final(result, name)

    def download(self, path: str, dest: Path) -> Download | None:
        """Stream a file to `dest`, flushed to disk, with retries; None on 404 and 410.

        Only a whole body is left at `dest`: one shorter than declared, slower than the floor or
        past its deadline is dropped and asked for again.
        """

        def consume(response: httpx.Response, until: Deadline) -> Download | Again:
            if "text/html" in response.headers.get("content-type", ""):
                raise transfers.Refused("a web page came instead of the file: a proxy or login page answered")
            limits = self._limits
            slowness = transfers.Slowness(self._clock, limits.min_bytes_per_s, limits.slow_window_s)
            lower = {name.lower(): value for name, value in response.headers.items()}
            return transfers.store(
                response.iter_raw(), lower, dest, max_bytes=limits.download_bytes, slowness=slowness, until=until
            )

        result = None
        try:
            result = self._content(path, self._limits.download_s, consume)
        finally:
            if result is None:
                dest.unlink(missing_ok=True)
        return result

    def peek(self, path: str, max_bytes: int) -> bytes | None:
        """Return the first bytes of a file, with retries, and leave the rest; None on 404 and 410."""

        def consume(response: httpx.Response, until: Deadline) -> bytes:
            head = bytearray()
            for chunk in response.iter_bytes():
                head += chunk
                if len(head) >= max_bytes or until.remaining_s <= 0:
                    break
            return bytes(head[:max_bytes])

        return self._content(path, self._limits.call_s, consume)

    def _request(self, method: str, path: str, headers: Mapping[str, str] | None = None, **parts: Any) -> httpx.Request:
        return self._client.build_request(
            method, self._address(path), headers=_revealed(self._auth) | dict(headers or {}), **parts
        )

    def now(self) -> datetime:
        """Return the earlier of our clock and the date of the last answer: a clock that is ahead ends nothing."""
        now = self._clock.now()
        return min(now, errors.http_date(self._dated) or now)

    def _address(self, path: str) -> str:
        """Return the URL of a path below the base URL; a whole URL is kept if the key may go there."""
        if path.startswith("/") and not path.startswith("//"):
            return self.base_url + path
        if "://" not in path:
            raise ProviderError(f"path {path[:80]!r} does not begin with one slash")
        if origin_of(path) != self._origin or not set("\\@ ").isdisjoint(path):
            elsewhere = errors.redirect_host(self.base_url, path)
            message = f"{self.host} names an address at {elsewhere}, where {self.key_name} does not go"
            raise ProviderError(message, hint=f"if it may go there, make {elsewhere} the base URL")
        return path

    def _exchange(
        self,
        request: httpx.Request,
        seconds: float,
        consume: Callable[[httpx.Response, Deadline], T],
        send: Callable[[httpx.Request], httpx.Response] | None = None,
    ) -> T | Again | Fault:
        # Failures leave as values: an exception raised inside `except` would keep the library's
        # own, and with it the request and its headers, in its context.
        with within(self._clock, seconds) as until:
            try:
                response = send(request) if send else self._client.send(request, stream=True)
                try:
                    return consume(response, until)
                finally:
                    response.close()
            except (transfers.Refused, httpx.DecodingError, httpx.StreamError) as error:
                return Fault(str(error), is_of_answer=True)
            except (httpx.HTTPError, httpx.InvalidURL, ConnectionError, TimeoutError) as error:
                return failure(error)

    def _read_answer(self, response: httpx.Response, until: Deadline) -> Answer | Again:
        """Return the whole answer, or why it is none; raises Refused for one that is too large."""
        headers = response.headers
        self._dated = headers.get("date", "")
        declared = headers.get("content-length", "") if "content-encoding" not in headers else ""
        n_declared = int(declared[:19]) if declared.isascii() and declared.isdigit() else None
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > self._limits.json_bytes:
                raise transfers.Refused(f"the answer is larger than {self._limits.json_bytes} bytes")
            if until.remaining_s <= 0 and len(body) != n_declared:
                return Again(errors.RetryReason.TIMEOUT, "the call's total deadline has passed")
        if n_declared is not None and n_declared != len(body):
            return Again(errors.RetryReason.SHORT_BODY, f"{len(body)} of {n_declared} bytes arrived")
        return errors.answer_of(response.status_code, headers, bytes(body))

    def _followed(
        self, path: str, seconds: float, consume: Callable[[httpx.Response, Deadline], Content | Again]
    ) -> Content | Answer | Again | Fault:
        """Get content from where it is, following redirects to the hosts of content without the key."""

        def read(response: httpx.Response, until: Deadline) -> Content | Answer | Again:
            return consume(response, until) if response.status_code == 200 else self._read_answer(response, until)

        request = self._request("GET", path)
        for hop in range(_HOPS_MAX):
            result = self._exchange(request, seconds, read)
            if hop and isinstance(result, Again) and result.reason is errors.RetryReason.CONNECT:
                # The provider itself was reached: a host of one file's content says nothing about it.
                return dataclasses.replace(result, reason=errors.RetryReason.CONNECTION_LOST)
            if not isinstance(result, Answer) or result.status_code not in _REDIRECTS:
                return result
            target = redirect_target(str(request.url), result.headers.get("location", ""), self._content_hosts)
            if target is None:
                return result
            request = self._client.build_request("GET", target)
        return Fault(f"more than {_HOPS_MAX} redirects")

    def _content(
        self, path: str, seconds: float, consume: Callable[[httpx.Response, Deadline], Content | Again]
    ) -> Content | None:
        """Return what is made of a file's bytes, with retries; None on 404 and 410."""
        call = f"GET {path}"
        result: Content | Answer | Again | Fault = self._repeated(lambda: self._followed(path, seconds, consume), call)
        match result:
            case Answer(may_be_gone=True):
                return None
            case Answer() | Again() | Fault():
                self._final(result, call)
                raise HttpError(f"{call} at {self.host} answered with something that is not a file")
            case _:
                return result

    def _repeated(
        self, call: Callable[[], T | Again | Fault], name: str, allow: frozenset[int] = frozenset()
    ) -> T | Again | Fault:
        def attempt() -> T | Again | Fault:
            result = call()
            if isinstance(result, Answer) and result.status_code == 401 and self._auth.renew():
                result = call()
            if not isinstance(result, Answer) or result.status_code in allow:
                return result
            is_passing = result.status_code in (408, 425, 429) or 500 <= result.status_code <= 599
            if not is_passing or errors.error_class_of(result) is ErrorClass.BILLING:
                return result
            wait_s = result.retry_after_s(self._clock.now())
            return Again(errors.RetryReason.STATUS, result.excerpt(), wait_s, result.status_code)

        def on_wait(last: Again, seconds: float) -> None:
            _log.info("%s at %s: %s; again in %.1f s", name, self.host, last.text, seconds)

        return errors.repeat(attempt, self._retries, self._clock, name, on_wait)

    def _final(
        self, result: Answer | Again | Fault, call: str, allow: frozenset[int] = frozenset(), shape: Shape = dict
    ) -> Answer:
        """Return a usable answer: 2xx with a JSON object (or array), or a status in `allow`; raise for all else.

        An answer that refuses the key is never allowed, whatever its status.
        """
        place = f"{call} at {self.host}"
        match result:
            case Answer(status_code=status_code) if (
                status_code in allow and errors.error_class_of(result) is not ErrorClass.ACCESS
            ):
                return result
            case Answer(is_success=True) if isinstance(result.json, shape):
                return result
            case Answer():
                raise self._refusal(result, place, shape)
            case Again():
                wait = f"; it asks to wait {result.after_s:,.0f} s" if result.after_s else ""
                message = f"{place} failed: {result.text}{wait}"
                if result.reason is errors.RetryReason.CONNECT:
                    raise UnreachableError(message, hint=_LATER_HINT)
                raise HttpError(message, hint=_LATER_HINT, status_code=result.status_code, retry_after_s=result.after_s)
            case Fault():
                raise HttpError(f"{place} failed: {redact(result.detail)}", error_class=ErrorClass.PERMANENT)

    def _refusal(self, answer: Answer, place: str, shape: Shape) -> AccessError | HttpError:
        status_code = answer.status_code
        if answer.is_success:
            wanted = "object" if shape is dict else "array"
            message = f"{place} answered {status_code} without a JSON {wanted}: {answer.excerpt()}"
            return HttpError(message, hint=_PROXY_HINT, status_code=status_code)
        if 300 <= status_code <= 399:
            host = errors.redirect_host(self.base_url, answer.headers.get("location", ""))
            message = f"{place} answered {status_code}, a redirect to {host}, which is not followed"
            hint = f"if {self.key_name} may go to {host}, make that the base URL"
            return HttpError(message, hint=hint, status_code=status_code, error_class=ErrorClass.PERMANENT)
        error_class = errors.error_class_of(answer)
        message = f"{place} answered {status_code}: {answer.excerpt()}"
        is_access = error_class is ErrorClass.ACCESS
        message = f"{self.key_name} was refused: {message}" if is_access else message
        advice = self._auth.advice(message) if is_access or status_code == 403 else None
        if advice is not None:
            return AccessError(message, hint=advice)
        if is_access:
            return (ForbiddenError if status_code == 403 else AccessError)(message, hint=_ACCESS_HINT)
        code = answer.error.code if answer.error else None
        advice = _BILLING_HINT if error_class is ErrorClass.BILLING else None
        return HttpError(message, hint=advice, status_code=status_code, error_class=error_class, code=code)


def _revealed(auth: Auth) -> dict[str, str]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in auth.headers().items()}


class ProviderClient:
    """What every client of a provider's API has: one provider's descriptor, one key at one host, and a clock."""

    descriptor: Descriptor

    def __init__(self, http: HttpClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self.host, self.is_loopback = http.host, http.is_loopback

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def scope_in(self, headers: Mapping[str, str], names: tuple[str, ...]) -> str:
        """Return `provider/host/...`: which account an answer came from, by the headers that say so."""
        parts = (re.sub(r"[^\w.-]", "_", headers.get(name, "").strip())[:_SCOPE_CHARS] or "-" for name in names)
        return "/".join((self.descriptor.name, self.host, *parts))


def segment(identifier: str) -> str:
    """Return an id as one segment of a path; raises ProviderError for what would address something else."""
    if not identifier or set(identifier) <= {"."}:
        raise ProviderError(f"{identifier!r} is not an id")
    return quote(identifier, safe="")
