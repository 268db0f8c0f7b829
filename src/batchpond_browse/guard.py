"""Who may ask: only the reader who has the token, from a page of this server, at an address of this machine.

A page elsewhere can send requests to this machine: it does not know the token, its origin is another, and the cookie
does not travel with what it sends (SameSite=Strict). A name that was made to point here is refused by its Host.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
