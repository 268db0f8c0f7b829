"""Which addresses may be called: https everywhere, http on this machine, a redirect only where listed."""

from __future__ import annotations

import ipaddress
import urllib.request
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from batchpond.errors import UsageError

_HINT: Final = "give the provider's address, such as https://api.openai.com/v1"
_THIS_MACHINE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  # read, not bound
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Origin:
    """What a key is bound to."""

    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        """Return the host, with its port unless that is the scheme's own."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == _PORTS.get(self.scheme) else f"{shown}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether this is an address of this machine."""
        return is_loopback_host(self.host)


def is_loopback_host(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def origin_of(url: str) -> Origin | None:
    """Return a URL's origin, or None when it has none that can be read."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None
    return Origin(parts.scheme, parts.hostname, port) if parts.hostname and port else None


def checked_base(base_url: str, *, has_key: bool = True) -> tuple[str, Origin]:
    """Return a base URL without its last slash, and its origin; raises UsageError for an unsafe one.

    Without a key to protect, http:// may also lead to another machine.
    """
    url = base_url.strip().rstrip("/")
    origin = origin_of(url)
    if origin is None or any(character <= " " for character in url):
        raise UsageError("the base URL cannot be read", hint=_HINT)
    parts: SplitResult = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"the base URL at {origin.name} has a user name, query or fragment", hint=_HINT)
    if origin.scheme != "https" and not (origin.scheme == "http" and (origin.is_loopback or not has_key)):
        message = f"the base URL at {origin.name} must begin with https:// (http:// is for this machine)"
        raise UsageError(message, hint=_HINT)
    return url, origin


def completed(address: str, port: int) -> str:
    """Return an address that may lack scheme, host or port as a URL: `:1234`, `gpu-1`, `0.0.0.0:1234/path`.

    Without a scheme it is http, at `port`; an address that servers listen on everywhere is this machine.
    """
    scheme, separator, rest = address.strip().rpartition("://")
    netloc, slash, path = rest.partition("/")
    host, colon, own_port = netloc.rpartition(":")
    if not colon or netloc.endswith("]"):
        host, own_port = netloc, "" if separator else str(port)
    host = _THIS_MACHINE.get(host, host) if host or not separator else host
    return f"{scheme or 'http'}://{host}{':' if own_port else ''}{own_port}{slash}{path}"


def redirect_target(url: str, location: str, allowed_hosts: frozenset[str]) -> str | None:
    """Return where a redirect leads if that is one of the allowed hosts, else None.

    An allowed host that begins with a dot stands for all hosts below it.
    """
    try:
        target = urljoin(url, location)
    except ValueError:
        return None
    origin = origin_of(target)
    if origin is None or not _is_among(origin.host, allowed_hosts) or "@" in urlsplit(target).netloc:
        return None
    return target if origin.scheme == "https" or origin.is_loopback else None


def _is_among(host: str, allowed_hosts: frozenset[str]) -> bool:
    return host in allowed_hosts or any(host.endswith(name) for name in allowed_hosts if name.startswith("."))


def environment_proxy(origin: Origin) -> str | None:
    """Return the proxy that the environment asks for, None for none; never one for this machine."""
    if origin.is_loopback or urllib.request.proxy_bypass(origin.host):
        return None
    proxies = urllib.request.getproxies()
    address = proxies.get(origin.scheme) or proxies.get("all")
    if not address:
        return None
    address = address if "://" in address else f"http://{address}"
    if urlsplit(address).scheme not in _PORTS:
        raise UsageError(f"the proxy of the environment is not an http one: {urlsplit(address).scheme}://")
    return address
