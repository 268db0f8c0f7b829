"""The server: routes to the pages, on this machine alone, until it is told to stop.

Only the reader may ask who has the token, from a page of this server, at an address of this machine. A page elsewhere
can send requests to this machine: it does not know the token, its origin is another, and the cookie does not travel
with what it sends (SameSite=Strict). A name that was made to point here is refused by its Host.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchpond.errors import BatchpondError, UsageError
from batchpond_browse import cases
from batchpond_browse.asking import Lake, query
from batchpond_browse.pages import LISTS, STATIC, Pages, Reader, address, environment
from batchpond_browse.spool import TAKEN_BACK, Label, Spool

LOOPBACK: Final = "127.0.0.1"
FORM_BYTES_MAX: Final = 64 << 10
RATER: Final = "batchpond-rater"
BLIND: Final = "batchpond-blind"
Form = Mapping[str, str]
Act = Callable[[Request, Form, Response], object]
MakeReport = Callable[[str, Callable[[Form], str]], str]  # a study's report, its rows leading to addresses
BLOB: Final = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}
REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


class Browser:
    """The application: an answer to each request, from one lake."""

    def __init__(self, lake_path: Path, rater: str = "", make_report: MakeReport | None = None) -> None:
        self._rater = rater
        self._make_report = make_report
        self.spool = Spool(lake_path)
        templates = environment(address, is_bundle=False)
        templates.globals["has_report"] = make_report is not None
        self.pages = Pages(Lake(lake_path), templates, self.spool)

    def app(self) -> Starlette:
        """Return the routes, unguarded."""
        names = ("", "study", *LISTS, "case", "row")
        acts: Mapping[str, Act] = {
            "label": self._label, "reader": self._reader, "hand-in": lambda *_: self.spool.hand_in(),
        }  # fmt: skip
        routes: list[BaseRoute] = [
            *(Route(f"/{name}", self._shown(name, self.pages.page)) for name in names),
            Route("/report", self._shown("", self._report, {"content-security-policy": REPORT_POLICY})),
            Route("/blob", self._shown("", self._blob)),
            Route("/pulse", lambda _: PlainTextResponse(self.pages.lake.pulse())),
            *(Route(f"/{name}", self._done(act), methods=["POST"]) for name, act in acts.items()),
            Mount("/static", StaticFiles(directory=STATIC, packages=[("batchpond.interop", "card")])),
        ]
        return Starlette(routes=routes, exception_handlers={BatchpondError: self._problem})

    def _problem(self, request: Request, error: Any) -> Response:
        """Answer with a page that says why nothing is shown, or done."""
        shown = self.pages.problem(self._who(request), error.message, error.hint or "")
        return HTMLResponse(shown, 400 if isinstance(error, UsageError) else 500)

    def _report(self, reader: Reader, _: str, given: Form) -> str:
        study = given.get("study", "")
        if self._make_report is None or reader.is_blind:
            raise UsageError("there is no report, or not for who labels blind", hint="the extra `report`, or key b")
        more = {"study": study, "list": None}
        return self._make_report(study, lambda to: address(to.get("list", "rows"), {**to, **more}))

    def _blob(self, _: Reader, __: str, given: Form) -> Response:
        """Return a picture or document as what it is: nothing in it runs, and only pictures are opened in place."""
        found = self.pages.lake.rows(query("blob", {"sha256": given.get("sha256", "")}), is_kept=False)
        if not found:
            raise UsageError("the lake holds no such picture or document", hint="open it from the page that shows it")
        kind = found[0]["media_type"]
        where = "inline" if kind.startswith("image/") else "attachment"
        return Response(found[0]["content"], media_type=kind, headers={**BLOB, "content-disposition": where})

    def _shown(self, name: str, page: Callable[..., Any], headers: Form | None = None) -> Callable[[Request], Response]:
        """Return what answers a request with a page."""

        def answer(request: Request) -> Response:
            shown = page(self._who(request), name, dict(request.query_params))
            return shown if isinstance(shown, Response) else HTMLResponse(shown, headers=headers)

        return answer

    def _done(self, act: Act) -> Callable[..., object]:
        """Return what does as a form asks and goes on to the page that it names."""

        async def answer(request: Request) -> Response:
            body = await request.body()
            if len(body) > FORM_BYTES_MAX:
                return PlainTextResponse("that is too long\n", 413)
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            back = form.get("back", "")
            is_own = back.startswith("/") and not back.startswith(("//", "/\\"))
            response: Response = RedirectResponse(back if is_own else "/", 303)
            await run_in_threadpool(act, request, form, response)
            return response

        return answer

    def _who(self, request: Request) -> Reader:
        rater = dict(parse_qsl(request.cookies.get(RATER, ""))).get("rater", self._rater)
        return Reader(rater, request.cookies.get(BLIND) == "1")

    def _label(self, request: Request, form: Form, response: Response) -> None:
        rater = form.get("rater", "").strip() or self._who(request).rater
        _remember(response, RATER, address("", rater=rater)[2:])
        study, key, label, comment = (form.get(name, "") for name in ("study", "key", "label", "comment"))
        named = {} if label.strip() else dict(parse_qsl(urlsplit(form.get("case", "")).query))
        if named and self.spool.sheet(cases.case(self.pages.lake, study, named), rater).is_handed_in:
            label = TAKEN_BACK
        self.spool.give(Label(study, key, label, rater, comment))

    def _reader(self, _: Request, form: Form, response: Response) -> None:
        if "rater" in form:
            _remember(response, RATER, address("", rater=form["rater"].strip()[:100])[2:])
        if "blind" in form:
            _remember(response, BLIND, "1" if form["blind"] == "1" else "0")


def _remember(response: Response, name: str, value: str) -> None:
    response.set_cookie(name, value, httponly=True, samesite="strict", path="/")


@contextmanager
def running(
    lake_path: Path, *, port: int = 0, rater: str = "", make_report: MakeReport | None = None
) -> Iterator[tuple[str, Spool]]:
    """Serve a lake's pages while the block runs; yields their address, token included, and the labels that wait.

    Raises UsageError where the port is taken.
    """
    with closing(socket.socket()) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
            listening.listen()
        except OSError as error:
            raise UsageError(f"port {port} cannot be had: {error.strerror}", hint="leave it out") from None
        port, token = listening.getsockname()[1], secrets.token_urlsafe(24)
        browser = Browser(lake_path, rater, make_report)
        config = uvicorn.Config(
            Guard(browser.app(), token, port), log_level="critical", access_log=False, server_header=False,
            lifespan="off", timeout_graceful_shutdown=2,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="browse", daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{port}/?token={token}", browser.spool
        finally:
            server.should_exit = True
            thread.join()


HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class Guard:
    """Lets a request through to `app`, or answers it with why not; every answer gets the headers above."""

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}  # a page may have a policy of its own
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        answer: ASGIApp = self._refusal(scope) or self.app
        await answer(scope, receive, send_guarded)

    def cookie(self) -> str:
        """Return the cookie's name: browsers do not tell the ports of a machine apart."""
        return f"batchpond-{self.port}"

    def _refusal(self, scope: Scope) -> Response | None:
        request = HTTPConnection(scope)
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}:
            return PlainTextResponse(f"this page is at http://127.0.0.1:{self.port}/ alone\n", 421)
        if (origin is None and scope["method"] not in {"GET", "HEAD"}) or origin not in {None, f"http://{host}"}:
            return PlainTextResponse("only pages of this server may ask that\n", 403)
        asked = dict(request.query_params)
        if scope["method"] == "GET" and self._is_token(asked.pop("token", "")):
            answer = RedirectResponse(scope["path"] + f"?{urlencode(asked)}" * bool(asked), 303)
            answer.set_cookie(self.cookie(), self.token, httponly=True, samesite="strict", path="/")
            return answer
        if not self._is_token(request.cookies.get(self.cookie(), "")):
            return PlainTextResponse("open the address that `batchpond browse` printed, with its token\n", 403)
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())
