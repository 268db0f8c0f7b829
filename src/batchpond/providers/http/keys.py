"""Keys and the addresses that they may go to.

Keys and base URLs come from the environment variables that the providers' own SDKs read. No file is read but the one
that `--env-file` names: a `.env` in a cloned repository cannot redirect a key. A key from the environment goes to
another host than the provider's own only if the base URL came from that provider's own variable or from the caller.
Addresses are https everywhere, http on this machine, a redirect only where listed.
"""

from __future__ import annotations

import ipaddress
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from batchpond.errors import AccessError, UsageError
from batchpond.providers.base import Descriptor
from batchpond.text import Secret

_ADDRESS_HINT: Final = "give the provider's address, such as https://api.openai.com/v1"
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
        """Whether this is a name or an address of this machine."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
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
        raise UsageError("the base URL cannot be read", hint=_ADDRESS_HINT)
    parts: SplitResult = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"the base URL at {origin.name} has a user name, query or fragment", hint=_ADDRESS_HINT)
    if origin.scheme != "https" and not (origin.scheme == "http" and (origin.is_loopback or not has_key)):
        message = f"the base URL at {origin.name} must begin with https:// (http:// is for this machine)"
        raise UsageError(message, hint=_ADDRESS_HINT)
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
    below = tuple(name for name in allowed_hosts if name.startswith("."))
    if origin is None or "@" in urlsplit(target).netloc:
        return None
    if origin.host not in allowed_hosts and not origin.host.endswith(below):
        return None
    return target if origin.scheme == "https" or origin.is_loopback else None


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


_LOOPBACK_KEY: Final = "simulated-key"


@dataclass(frozen=True, slots=True)
class Access:
    """A key, None where none is needed and none is set, the variable it is from, and the base URL it is for."""

    key: Secret | None
    key_env: str
    base_url: str

    @property
    def name(self) -> str:
        """What messages call the key, or the want of one."""
        return f"no key ({self.key_env} is not set)" if self.key is None else self.key_env


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A provider's line in `batchpond keys`; `problem` says why a key that is set cannot be used."""

    provider: str
    key_env: str
    is_found: bool
    base_url_host: str
    problem: str | None = None


def resolve(descriptor: Descriptor, environ: Mapping[str, str]) -> Access:
    """Return the key and base URL of a provider.

    The base URL is the provider's variable, else its own; on this machine a missing key is no error, since simulators
    take any. A provider without `needs_key` may be at an http:// address of another machine as long as no key goes
    there. Raises AccessError for a key that is missing or cannot be a header, UsageError for an unsafe base URL and
    where nothing says where the server is.
    """
    chosen = _chosen(descriptor, environ)
    if not chosen:
        message = f"nothing says where {descriptor.name} is: {descriptor.base_url_env} is not set"
        raise UsageError(message, hint=f"export {descriptor.base_url_env}=https://HOST/v1")
    named = (name for name in descriptor.key_env if name in environ)
    name = next((name for name in named if descriptor.needs_key or environ[name].strip()), None)
    url, origin = checked_base(chosen, has_key=descriptor.needs_key or name is not None)
    if name is not None:
        return Access(Secret(_checked_key(environ[name], name)), name, url)
    name = descriptor.key_env[0]
    if not descriptor.needs_key:
        return Access(None, name, url)
    if origin.is_loopback:
        return Access(Secret(_LOOPBACK_KEY), name, url)
    raise AccessError(
        f"no key for {descriptor.name}: {name} is not set",
        hint=f"export {name}=...; or run `batchpond simulate` and set {descriptor.base_url_env} to try without a key",
    )


def headers(descriptor: Descriptor, access: Access, environ: Mapping[str, str]) -> dict[str, str | Secret]:
    """Return the headers that let calls in: the key, and what the descriptor sends with it; none without a key."""
    if access.key is None:
        return {}
    is_bearer = descriptor.key_header == "Authorization"
    found: dict[str, str | Secret] = {
        descriptor.key_header: Secret(f"Bearer {access.key.reveal()}") if is_bearer else access.key,
        **dict(descriptor.headers),
    }
    named = ((header, setting(environ, variable)) for header, variable in descriptor.header_env)
    return found | {header: value for header, value in named if value}


def _chosen(descriptor: Descriptor, environ: Mapping[str, str]) -> str:
    chosen = setting(environ, descriptor.base_url_env) or descriptor.default_base_url
    return chosen if descriptor.default_port is None else completed(chosen, descriptor.default_port)


def setting(environ: Mapping[str, str], name: str) -> str | None:
    """Return a variable that is not secret, None when it is unset or blank."""
    return environ.get(name, "").strip() or None


def listing(descriptors: Iterable[Descriptor], environ: Mapping[str, str]) -> list[KeyRow]:
    """Return one row per provider, without showing or sending any key."""
    return [_row(descriptor, environ) for descriptor in descriptors]


def _row(descriptor: Descriptor, environ: Mapping[str, str]) -> KeyRow:
    name = next((name for name in (*descriptor.key_env, *descriptor.credentials_env) if name in environ), None)
    _, origin = checked_base(_chosen(descriptor, environ), has_key=descriptor.needs_key or name is not None)
    if name is None:
        return KeyRow(descriptor.name, descriptor.key_env[0], False, origin.name)
    try:
        if name in descriptor.key_env:
            _checked_key(environ[name], name)
    except AccessError as error:
        return KeyRow(descriptor.name, name, False, origin.name, error.message)
    return KeyRow(descriptor.name, name, True, origin.name)


def _checked_key(value: str, name: str) -> str:
    if not value.strip():
        raise AccessError(f"{name} is set but empty", hint=f"export {name}=...")
    if value[0] in "\"'" or value[-1] in "\"'":
        raise AccessError(f"{name} begins or ends with a quotation mark", hint="remove the quotes around the key")
    if not value.isascii() or any(character <= " " or character == "\x7f" for character in value):
        raise AccessError(
            f"{name} holds a space, line break or other character that no key has",
            hint=f"copy the key again, without the line break: export {name}=\"$(tr -d '[:space:]' < FILE)\"",
        )
    return value
