"""Which pictures and documents models take, in which words, and how many tokens they are: `media` of `known.toml`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batchpond.lake.jsonl import Embedded
from batchpond.model import Media, Turn
from batchpond.providers.base import table

PDF: Final = "application/pdf"
UNKNOWN_TOKENS: Final = 10_000
PAGES_UNKNOWN: Final = 100
_CROPS: Final = (256, 768)
_BYTES: Final = "{bytes}"


@dataclass(frozen=True, kw_only=True)
class Count:
    """How models whose names match count: `base` tokens, and `each` for every square of `side` pixels, `most` of them.

    Each row of squares has `row` more. A picture is fitted to a `long` and a `short` side first. With `crops`, the side
    of a picture larger than that follows from it, as Gemini's guide has it. A page of a document is `page` at most.
    """

    models: str
    base: int = 0
    each: float = 0.0
    side: int = 1
    row: int = 0
    long: int = 0
    short: int = 0
    most: int = 0
    crops: int = 0
    page: int = 0

    def tokens(self, width: float, height: float) -> int:
        """Return the tokens of a picture of so many pixels; of one that the provider shrinks, the most it can be."""
        for most, of in ((self.long, max), (self.short, min)):
            factor = min(1.0, most / of(width, height)) if most else 1.0
            width, height = width * factor, height * factor
        side = self.side
        if max(width, height) > self.crops > 0:
            side = sorted((*_CROPS, int(min(width, height) / 1.5)))[1]
        n_across, n_rows = (math.ceil(round(part / side, 6)) for part in (width, height))
        n = n_across * n_rows
        return self.base + math.ceil(self.each * min(n, self.most or n)) + self.row * n_rows


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What a provider's models take: media `types`, each of at most so many bytes, and a request of so many.

    A picture has at most `max_side` pixels a side, where that is said. `takes_urls` where it fetches a picture itself,
    and a document at endpoints that match `document_urls`; models that match `blind` take nothing. `forms` are the
    parts of a message: a text, an image, a document, and the addresses of those.
    """

    types: Mapping[str, int] = field(default_factory=dict)
    max_request_bytes: int = 0
    max_side: int = 0
    takes_urls: bool = False
    document_urls: str = "$"
    blind: str = "$"
    counts: tuple[Count, ...] = ()
    forms: Mapping[str, Any] = field(default_factory=lambda: table("shared", "forms"))

    def parts(self, turn: Turn, prefix: str = "") -> list[dict[str, Any]]:
        """Return what a turn says and shows, in order; `prefix` begins the names of the forms."""
        return [_part(self.forms, prefix, one) for one in turn.parts or (turn.text,)]

    def refusal(self, model: str, media: Media, endpoint: str = "") -> str | None:
        """Return why a model cannot be shown something, None where it can."""
        if not self.types or re.match(self.blind, model, re.IGNORECASE):
            return "takes neither pictures nor documents"
        if media.url is not None and media.media_type == PDF:
            is_taken = endpoint and re.match(self.document_urls, endpoint)
            return None if is_taken else f"takes no addresses of documents at {endpoint}, only what is sent along"
        if media.url is not None:
            return None if self.takes_urls else "takes no addresses of pictures, only what is sent along"
        if (most := self.types.get(media.media_type)) is None:
            return f"takes no {media.media_type}, only {', '.join(self.types)}"
        if max(media.width or 0, media.height or 0) > self.max_side > 0:
            return f"takes at most {self.max_side:,} pixels a side, not {media.width} x {media.height}"
        return None if media.size_bytes <= most else f"takes at most {most:,} bytes at once, not {media.size_bytes:,}"

    def tokens(self, model: str, media: Media) -> tuple[int, bool]:
        """Return how many tokens something counts as, and whether that is documented: else it counts as very large."""
        count = next((one for one in self.counts if re.match(one.models, model, re.IGNORECASE)), None)
        if media.media_type == PDF:
            known = (media.n_pages or 0) * (count.page if count else 0)
            return known or UNKNOWN_TOKENS * (media.n_pages or PAGES_UNKNOWN), known > 0
        if count is None or media.width is None or media.height is None:
            return UNKNOWN_TOKENS, False
        return count.tokens(media.width, media.height), True


def _part(forms: Mapping[str, Any], prefix: str, one: str | Media) -> Any:
    if isinstance(one, str):
        return {**forms[f"{prefix}text"], "text": one}
    kind = ("document" if one.media_type == PDF else "image") + ("_address" if one.url else "")
    return _filled(forms[prefix + kind], one)


def _filled(form: Any, media: Media) -> Any:
    if isinstance(form, dict):
        return {name: _filled(value, media) for name, value in form.items()}
    text = str(form).removesuffix(_BYTES).format(type=media.media_type, url=media.url)
    return Embedded(text, media) if form.endswith(_BYTES) else text


UNSEEN: Final = Sight()
