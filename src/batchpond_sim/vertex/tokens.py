"""A local token endpoint: access tokens of an hour, for a signed assertion or a refresh token.

Signatures are not looked into; whoever has an assertion of the right shape gets a token.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import orjson

from batchpond_sim.host.wire import CHUNK_BYTES, Answer, Request, json_reply
from batchpond_sim.world.shelf import Shelf
from batchpond_sim.world.world import Call, World

PREFIX = "ya29.simulated-"
LIFETIME_S = 3_599
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token that was given out."""

    id: str
    n: int
    expires_s: float


class TokenDesk:
    """Gives out the tokens of one world, and knows which are good."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given: Shelf[TokenRecord] = Shelf(world.folder("vertex", "tokens"), TokenRecord)

    def is_good(self, token: str) -> bool:
        """Return whether a token lets its bearer in: one that was given out here must not have run out."""
        if not token.startswith(PREFIX):
            return True
        record = self._given.get(token.removeprefix(PREFIX))
        return record is not None and self._world.now_s() < record.expires_s

    def give(self, request: Request, call: Call, _project: str, _argument: str) -> Answer:
        """Answer a request for a token."""
        form = {name: values[0] for name, values in parse_qs(_text(request)).items()}
        is_signed = form.get("grant_type") == _GRANT and _is_assertion(form.get("assertion", ""), self._world.now_s())
        if not is_signed and not (form.get("grant_type") == "refresh_token" and form.get("refresh_token")):
            return json_reply(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        with self._world.lock:
            record = TokenRecord(
                self._world.name("token", call.n), self._given.next_n(), self._world.now_s() + LIFETIME_S
            )
            self._given.put(record)
        body = {"access_token": PREFIX + record.id, "expires_in": LIFETIME_S, "token_type": "Bearer"}
        return json_reply(200, body)


def _text(request: Request) -> str:
    return request.body.read(CHUNK_BYTES).decode("latin-1")


def _is_assertion(text: str, _now_s: float) -> bool:
    parts = text.split(".")
    if len(parts) != 3:
        return False
    head, claims = _decoded(parts[0]), _decoded(parts[1])
    return head.get("alg") == "RS256" and {"iss", "scope", "aud", "iat", "exp"} <= claims.keys()


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
