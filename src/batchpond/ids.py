"""Names made from content: the same thing has the same id on every machine.

All ids are lower-case base32 (`[a-z2-7]`), so they are safe in file names, URLs, provider
metadata and on file systems that fold case.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Sequence

from batchpond.model import Mode

ID_LENGTH = 26  # 130 bits
ATTEMPT_PREFIX_LENGTH = 10
REQUEST_KEY_LENGTH = 20
TOKEN_PREFIX = "batchpond1"
_CUSTOM_ID = re.compile(rf"[a-z2-7]{{{ATTEMPT_PREFIX_LENGTH}}}-([a-z2-7]{{{REQUEST_KEY_LENGTH}}})")
TOKEN = re.compile(rf"{TOKEN_PREFIX}-([a-z2-7]+)-([a-z2-7]{{{ID_LENGTH}}})-[a-z2-7]{{8}}")


LETTERS = (b"abcdefghijklmnopqrstuvwxyz234567" * 8)[:256]
"""What stands for each byte of which the lowest five bits count."""


def _halves(n_groups: int) -> tuple[int, int, int]:
    """Return what takes runs of so many groups of 5 bits apart: masks of all low and high halves, and how far."""
    half, lane = n_groups // 2 * 5, n_groups // 2 * 8
    low = sum((1 << half) - 1 << start for start in range(0, _CHARS_MAX * 8, 2 * lane))
    return low, low << half, lane - half


_CHARS_MAX = 32
_APART = [_halves(n_groups) for n_groups in (32, 16, 8, 4, 2)]


def _base32(raw: bytes, length: int) -> str:
    # Base 32 is five bits a letter: of 160 bits, halves are moved apart, then halves of these, until each group of five
    # stands in a byte of its own. The standard library takes five times as long, and each request has some ids.
    spread = int.from_bytes(raw[: _CHARS_MAX * 5 // 8])
    for low, high, shift in _APART:
        spread = spread & low | (spread & high) << shift
    return spread.to_bytes(_CHARS_MAX).translate(LETTERS).decode("ascii")[:length]


def _joined(parts: tuple[str | bytes | int, ...]) -> bytes:
    # Length prefixes keep ("ab", "c") and ("a", "bc") apart.
    encoded = [part if isinstance(part, bytes) else str(part).encode("utf-8") for part in parts]
    return b"".join([b"%d:%b" % (len(data), data) for data in encoded])


def hashes_of(start: tuple[str | int, ...], *columns: Sequence[str | bytes]) -> list[bytes]:
    """Return what ids, or draws, of many are made of, whose last parts stand in columns, for who makes all at once."""
    form = _joined(start).replace(b"%", b"%%") + b"%d:%b" * len(columns)
    encoded = [[part if isinstance(part, bytes) else part.encode("utf-8") for part in column] for column in columns]
    parts = [each for column in encoded for each in (map(len, column), column)]
    return [hashlib.sha256(form % both).digest() for both in zip(*parts, strict=True)]


def digest(kind: str, *parts: str | bytes | int, known: Sequence[str] = (), length: int = ID_LENGTH) -> str:
    """Return the id of `parts`, and of ids that are `known` after them, in a namespace of its own per `kind`."""
    start = f"{ID_LENGTH}:"
    text = start + start.join(known) if known else ""
    return _base32(hashlib.sha256(_joined((kind, *parts)) + text.encode("ascii")).digest(), length)


def request_id(provider: str, endpoint: str, model: str, body: bytes, repeat_no: int) -> str:
    """Return the id of one prompt to one model; `body` is the canonical JSON."""
    return _base32(request_hashes(provider, endpoint, model)([body], [repeat_no])[0], ID_LENGTH)


def request_hashes(provider: str, endpoint: str, model: str) -> Callable[[Sequence[bytes], Sequence[int]], list[bytes]]:
    """Return what gives what the `request_id`s of bodies and repeats for one model are made of.

    What they share is hashed once.
    """
    start = hashlib.sha256(_joined(("request", provider, endpoint, model)))

    def of(bodies: Sequence[bytes], repeats: Sequence[int]) -> list[bytes]:
        found, ends = [], {repeat_no: _joined((repeat_no,)) for repeat_no in set(repeats)}
        for body, repeat_no in zip(bodies, repeats, strict=True):
            seen = start.copy()
            seen.update(b"%d:" % len(body))
            seen.update(body)
            seen.update(ends[repeat_no])
            found.append(seen.digest())
        return found

    return of


def request_key(request: str) -> str:
    """Return the part of a request id that travels in a custom_id."""
    return request[:REQUEST_KEY_LENGTH]


def request_key_of(custom_id: str) -> str | None:
    """Return the part of a request id that a custom_id of any lake carries; None for one that another tool made."""
    found = _CUSTOM_ID.fullmatch(custom_id)
    return None if found is None else found.group(1)


def shard_id(group: tuple[str, str, str, Mode], generation: int, request_ids: list[str]) -> str:
    """Return the id of an ordered list of requests of one provider, endpoint, model and mode.

    `generation` counts the shards that were voided before, so that a voided one never comes back.
    """
    *parts, mode = group
    kind = "shard" if mode is Mode.BATCH else f"{mode} shard"
    return digest(kind, *parts, generation, known=request_ids)


def attempt_id(lake_id: str, shard: str, ordinal: int) -> str:
    """Return the id of the `ordinal`-th (from 1) intended batch for a shard."""
    return digest("attempt", lake_id, shard, ordinal)


def custom_id(attempt: str, request: str) -> str:
    """Return the id that one result line carries: it names both attempt and request."""
    return custom_id_prefix(attempt) + request_key(request)


def custom_id_prefix(attempt: str) -> str:
    """Return what every custom_id of an attempt begins with."""
    return f"{attempt[:ATTEMPT_PREFIX_LENGTH]}-"


def token(lake_id: str, attempt: str, secret: bytes, payload_sha256: str) -> str:
    """Return the mark that finds an attempt's batch again at the provider.

    The last part authenticates it with the lake's secret, so that a forged or foreign token in
    a shared account is never adopted. Under 64 characters of `[a-z0-9-]`: it fits OpenAI
    metadata values, Gemini display names, Cloud Storage object names and Vertex labels.
    """
    message = _joined((lake_id, attempt, payload_sha256))
    mark = _base32(hmac.new(secret, message, hashlib.sha256).digest(), 8)
    return f"{TOKEN_PREFIX}-{lake_id}-{attempt}-{mark}"


def attempt_of(token: str) -> str:
    """Return the attempt that a token was made for."""
    return token.split("-")[2]


def lake_and_attempt(token: str | None) -> tuple[str, str] | None:
    """Return the lake and the attempt that a token names; None where there is none, or it is none of any lake's."""
    found = TOKEN.fullmatch(token) if token else None
    return None if found is None else (found.group(1), found.group(2))


def unit_interval(seed: int, *parts: str | int) -> float:
    """Return a number in [0, 1) that depends only on the seed and the parts.

    Sampling and order by this number are equal on every machine and stable when items are
    added, which drawing from a generator in sequence is not.
    """
    return _share(hashlib.sha256(_joined(("uniform", seed, *parts))).digest())


def unit_intervals(seed: int, what: str, *columns: Sequence[str]) -> Iterator[float]:
    """Yield the `unit_interval` of many, whose last parts stand in columns."""
    return map(_share, hashes_of(("uniform", seed, what), *columns))


def _share(raw: bytes) -> float:
    return int.from_bytes(raw[:7], "big") / (1 << 56)


def number(kind: str, *parts: str | int) -> int:
    """Return a whole number below 2^63 made of `parts`, in a namespace of its own per `kind`."""
    return int.from_bytes(hashlib.sha256(_joined((kind, *parts))).digest()[:8], "big") >> 1
