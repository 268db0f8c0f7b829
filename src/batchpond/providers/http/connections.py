"""Connections below HTTP calls: the pool, the guard of the key, and what failures mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from ssl import SSLContext
from typing import Any, Protocol, TypeVar

import httpcore
import httpx

from batchpond.errors import AccessError
from batchpond.providers.http import deadline
from batchpond.providers.http.addresses import Origin, environment_proxy, origin_of
from batchpond.providers.http.outcomes import Fault
from batchpond.providers.http.retry import Again, RetryReason
from batchpond.text import Secret, redact

T = TypeVar("T")


class Auth(Protocol):
    """What calls are let in by: headers that may change while a client lives."""

    def headers(self) -> Mapping[str, str | Secret]:
        """Return the headers for a call that is made now; raises AccessError when there are none to be had."""

    def renew(self) -> bool:
        """Give up headers that were refused; returns whether the next ones are other ones."""

    def secrets(self) -> Iterable[str]:
        """Return every secret that the headers hold, or held a while ago."""


class FixedAuth:
    """Headers that never change: an API key."""

    def __init__(self, headers: Mapping[str, str | Secret]) -> None:
        self._headers = dict(headers)

    def headers(self) -> Mapping[str, str | Secret]:
        """Return the headers."""
        return self._headers

    def renew(self) -> bool:
        """Return False: there are no others."""
        return False

    def secrets(self) -> Iterable[str]:
        """Return the secrets among the headers."""
        return [value.reveal() for value in self._headers.values() if isinstance(value, Secret)]


class KeyGuard(httpx.BaseTransport):
    """Refuses, at the last step before the network, to send the key to any other origin."""

    def __init__(self, inner: httpx.BaseTransport, origin: Origin, auth: Auth) -> None:
        self._inner = inner
        self._origin = origin
        self._auth = auth

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on; raises AccessError when it would take the key elsewhere."""
        if origin_of(str(request.url)) != self._origin:
            sent = [*request.headers.values(), str(request.url)]
            if any(secret in value for secret in self._auth.secrets() for value in sent):
                raise AccessError(f"the key of {self._origin.name} was about to go to {request.url.host}: stopped")
        return self._inner.handle_request(request)

    def close(self) -> None:
        """Close what is inside."""
        self._inner.close()


class PoolTransport(httpx.BaseTransport):
    """A connection pool, through the environment's proxy if any, whose streams know the deadline."""

    def __init__(
        self,
        origin: Origin,
        max_connections: int = 8,
        ssl_context: SSLContext | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] = (),
    ) -> None:
        self._ssl_context = ssl_context
        self._pools: dict[str, httpcore.ConnectionPool] = {}
        settings: dict[str, Any] = {
            "max_connections": max_connections,
            "keepalive_expiry": 30.0,
            "network_backend": deadline.DeadlineBackend(),
            "socket_options": socket_options,
        }
        address = environment_proxy(origin)
        self._make: Callable[..., httpcore.ConnectionPool]
        if address is None:
            self._make = partial(httpcore.ConnectionPool, **settings)
        else:
            proxy = httpx.Proxy(address)
            if proxy.raw_auth:
                Secret(proxy.raw_auth[1].decode("utf-8", "replace"))  # known to `redact` from here on
            self._make = partial(httpcore.HTTPProxy, proxy_url=str(proxy.url), proxy_auth=proxy.raw_auth, **settings)
        self._pool(origin.scheme)

    def _pool(self, scheme: str) -> httpcore.ConnectionPool:
        """Return the pool of a scheme; plain HTTP needs no CA files, which take as long to read as several calls."""
        if scheme not in self._pools:
            trust = (self._ssl_context or httpx.create_ssl_context()) if scheme == "https" else None
            self._pools.setdefault(scheme, self._make(ssl_context=trust))
        return self._pools[scheme]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        inner = httpcore.Request(
            request.method,
            url,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        response = _translated(lambda: self._pool(request.url.scheme).handle_request(inner))
        return httpx.Response(response.status, headers=response.headers, stream=_Stream(response))

    def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            pool.close()


class _Stream(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        parts = self._response.iter_stream()
        while (part := _translated(lambda: next(parts, None))) is not None:
            yield part

    def close(self) -> None:
        _translated(self._response.close)


def _translated(call: Callable[[], T]) -> T:
    failure: httpx.TransportError
    try:
        return call()
    except httpcore.ConnectTimeout as error:
        failure = httpx.ConnectTimeout(str(error))
    except httpcore.PoolTimeout as error:
        failure = httpx.PoolTimeout(str(error))
    except httpcore.TimeoutException as error:
        failure = httpx.ReadTimeout(str(error))
    except (httpcore.ConnectError, httpcore.ProxyError) as error:
        failure = httpx.ConnectError(str(error))
    except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol) as error:
        failure = httpx.LocalProtocolError(str(error))
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        failure = httpx.ReadError(str(error))
    raise failure


def failure(error: Exception) -> Again | Fault:
    """Return what an exception of the HTTP library means: worth another try, or not."""
    detail = redact(f"{type(error).__name__}: {error}")[:300]
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError() if "CERTIFICATE_VERIFY_FAILED" in detail:
            return Fault(f"the server's certificate is not valid ({detail})")
        case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.ProxyError():
            return Again(RetryReason.CONNECT, detail)
        case httpx.TimeoutException() | TimeoutError():
            return Again(RetryReason.TIMEOUT, detail)
        case httpx.NetworkError() | httpx.RemoteProtocolError() | ConnectionError():
            return Again(RetryReason.CONNECTION_LOST, detail)
        case _:
            return Fault(detail)
