"""An OpenAI-compatible server, asked call by call: what is an answer, what is tried again, and what ends the worker."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from batchpond_work import ACCESS, USAGE, WorkError
from batchpond_work.claims import row_of
from batchpond_work.place import parsed
from batchpond_work.settings import Settings

if TYPE_CHECKING:
    import httpx

CONNECT_S: Final = 10.0
DELAY_S, DELAY_MAX_S, ASKED_DELAY_MAX_S = 1.0, 60.0, 300.0
_IN_PASSING: Final = frozenset({408, 409, 425, 429})
_TEXT_CHARS: Final = 2_000

Take = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why a call has no row yet; `is_of_request` where the server spoke, and of nothing but this request."""

    why: str
    is_of_request: bool = False
    delay_s: float | None = None


class Engine(Protocol):
    """What answers requests; `n_threads` of its calls run at once, each with at most `n_lines` requests, or a part's.

    `is_of_one_model` where it answers only requests to the model that it began with.
    """

    n_threads: int
    n_lines: int | None
    is_of_one_model: bool

    def takes(self, line: bytes) -> bool:
        """Whether it can read request lines of this form."""

    def begin(self, model: str, stop: Event) -> None:
        """Get ready to answer requests to this model; no part is held yet."""

    def answer(self, lines: Mapping[str, bytes], take: Take, stop: Event) -> str | None:
        """Answer requests, each row as it comes; why some have none, or a WorkError that ends the worker."""

    def end(self) -> None:
        """Let go of what `begin` took."""


class Server:
    """A server at a URL; raises WorkError for one that cannot be."""

    n_lines: int | None = 1
    n_usual = 32
    is_of_one_model = False

    def __init__(self, url: str, key: str, settings: Settings) -> None:
        split = urlsplit(url)
        if split.scheme not in {"http", "https"} or not split.hostname or split.username or split.password:
            hint = "http://HOST:PORT/v1, without a key in it: --key-env names the variable that has one"
            raise WorkError("that is no URL of a server", hint=hint, exit_code=USAGE)
        import httpx  # noqa: PLC0415 - a worker with a command of its own needs none

        # Of a body too that is not in the encoding that its header says.
        self._errors, self._settings, self._url = httpx.RequestError, settings, url.rstrip("/")
        self._host = split.netloc
        self.n_threads = settings.concurrency or self.n_usual
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(settings.timeout, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=self.n_threads, max_keepalive_connections=self.n_threads),
            trust_env=split.hostname not in {"localhost", "127.0.0.1", "::1"},
        )
        self._answered_s = -1.0

    def takes(self, line: bytes) -> bool:
        """Whether a line has a body, and a path of the API that it goes to."""
        request = parsed(line) or {}
        return isinstance(request.get("body"), dict) and str(request.get("url", "")).startswith("/v1/")

    def begin(self, model: str, stop: Event) -> None:
        """Do nothing: the first call shows whether it is there."""

    def end(self) -> None:
        """Close its connections."""
        self._client.close()

    def answer(self, lines: Mapping[str, bytes], take: Take, stop: Event) -> str | None:
        """Ask for each; a server that answers nobody all that while raises WorkError, for then nothing is known."""
        why = None
        for custom_id, line in lines.items():
            began_s = time.monotonic()
            found = self._ask(custom_id, parsed(line) or {}, stop)
            if isinstance(found, bytes):
                take(custom_id, found)
                continue
            why, is_alone = found.why, self._answered_s < began_s
            if stop.is_set():
                break
            if self._settings.give_up and (found.is_of_request or not is_alone):
                take(custom_id, row_of(custom_id, error={"code": "gave_up", "message": why}))
            elif is_alone:
                hint = "start it, or wait for it, and run the worker again: what is answered is not asked again"
                raise WorkError(f"{self._host} answered nothing in {self._settings.tries} tries: {why}", hint=hint)
        return why

    def _ask(self, custom_id: str, request: dict[str, Any], stop: Event) -> bytes | _Failed:
        """Return a row, or why there is none after all tries."""
        failed = _Failed("stopped")
        for n in range(self._settings.tries):
            spread_s = min(DELAY_MAX_S, DELAY_S * 2**n) * random.uniform(0.25, 0.5)  # noqa: S311 - spreads tries
            if n and stop.wait(max(spread_s, failed.delay_s or 0.0)):
                break
            try:
                found = self._called(custom_id, request)
            except self._errors as error:
                failed = _Failed(f"{type(error).__name__}: {error}")
                continue
            if isinstance(found, bytes):
                self._answered_s = time.monotonic()
                return found
            failed = found
        return failed

    def _called(self, custom_id: str, request: dict[str, Any]) -> bytes | _Failed:
        """Make one call; what drips in for longer than a call may take is no answer."""
        until_s, content = time.monotonic() + self._settings.timeout, bytearray()
        url = self._url + request["url"].removeprefix("/v1")
        with self._client.stream("POST", url, json=request["body"]) as answer:
            for piece in answer.iter_bytes():
                content += piece
                if time.monotonic() > until_s:
                    return _Failed(f"no whole answer in {self._settings.timeout:g} s", is_of_request=True)
        return self._row(custom_id, answer, bytes(content))

    def _row(self, custom_id: str, answer: httpx.Response, content: bytes) -> bytes | _Failed:
        """Return the row of an answer, also of one that says no for good; raises WorkError for what all calls meet."""
        status, body = answer.status_code, parsed(content)
        said = f"HTTP {status}: {' '.join(content.decode(errors='replace').split())[:_TEXT_CHARS]}"
        if status in _IN_PASSING or status >= 500 or (status < 300 and body is None):
            return _Failed(said, status < 300 or status == 500, _asked_delay_s(answer.headers.get("retry-after", "")))
        is_of_request = status == 403 and self._answered_s >= 0  # who lets others pass has looked into this one
        if status in {401, 402, 403} and not is_of_request:
            hint = "--key-env names the variable that has a good key"
            raise WorkError(f"{self._host} refuses to answer: {said}", hint=hint, exit_code=ACCESS)
        if status in {404, 405} or 300 <= status < 400:
            hint = (
                "is the URL whole, often to /v1, and the model served by that name? --model takes batches of one alone"
            )
            raise WorkError(f"{self._host} has nothing there: {said}", hint=hint, exit_code=USAGE)
        request_id = answer.headers.get("x-request-id")
        whole = body if body is not None else {"error": {"message": said}}
        return row_of(custom_id, response={"status_code": status, "request_id": request_id, "body": whole})


def _asked_delay_s(text: str) -> float | None:
    """Return the seconds of a Retry-After header; None where it says a date, or nothing."""
    try:
        delay_s = float(text)
    except ValueError:
        return None
    return min(delay_s, ASKED_DELAY_MAX_S) if math.isfinite(delay_s) else None
