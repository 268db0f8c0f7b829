"""The expected score of an answer: each that could have stood there, weighed by its probability.

G-Eval (Liu et al. 2023, arXiv:2303.16634): the sum over the allowed answers of probability times score, here at the one
token that decides, divided by the sum of the probabilities. Of a verdict on two items a win of the first counts 1, a
tie 1/2. A choice for a token counts if it ends an allowed answer, and that is what is read with it in all that stands
around. A token decides where choices of several answers count, its own among them. Else the answer is unparsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from batchpond.model import Outcome, Response, Token, Verdict
from batchpond.tasks import base
from batchpond.tasks.base import Judgment, Rule

MASS_MIN: Final = 0.9
"""The least probability of all allowed answers together: the rest may be any of them in another form."""
_MASS_MAX: Final = 1.01  # by what servers round: beyond it they are no probabilities
_PLACES_MAX: Final = 50
_WORTH: Final = {Verdict.FIRST: 1.0, Verdict.TIE: 0.5, Verdict.SECOND: 0.0}


def read(rule: Rule, read_text: Callable[[Response], Judgment], response: Response) -> Judgment:
    """Return what a response says with its expected score, and the probability of what it says as its confidence."""

    def answer_of(said: Judgment) -> str | None:
        worth = said.score if said.verdict is None else _WORTH.get(Verdict(said.verdict))
        return next((one for one, its in rule.allowed.items() if its == worth), None)

    said = read_text(response)
    answer = answer_of(said)
    if answer is None:
        return said
    places = [*islice(_places(response, answer, lambda other: answer_of(read_text(other))), _PLACES_MAX)]
    found = [_shares(rule, answer, *place) for place in places if len(places) < _PLACES_MAX]
    found = [shares for shares in found if len(shares) > 1 and answer in shares]
    mass = math.fsum(found[0].values()) if len(found) == 1 else 0.0
    if not MASS_MIN <= mass <= _MASS_MAX:
        why = f"{len(found)} of {len(response.logprobs or ())} tokens with log probabilities decide the answer"
        return Judgment(
            None, Outcome.UNPARSED, explanation=f"{why}; allowed answers have {mass:.3f} of the probability"
        )
    expected = math.fsum(share * rule.allowed[one] for one, share in found[0].items()) / mass
    return said._replace(score=expected, confidence=found[0][answer] / mass)


def _places(
    response: Response, answer: str, ask: Callable[[Response], str | None]
) -> Iterator[tuple[Token, Callable[[bytes], str | None]]]:
    """Yield the tokens that may be the end of an answer, with what is read of the text by what stands in their place.

    Thoughts may stand before the text, and a token that means its end after it.
    """
    tokens, text = response.logprobs or (), (response.text or "").encode("utf-8", "replace")
    whole, end = b"".join(token.text for token in tokens), 0
    start = whole.rfind(text)
    stop = start + len(text)
    for token in tokens if start >= 0 else ():
        begin, end = end, end + len(token.text)
        if start < end and begin < stop and answer.endswith(_bare(token.text) or "\n"):
            before, after = whole[start : max(start, begin)], whole[end:stop]

            def say(choice: bytes, before: bytes = before, after: bytes = after) -> str | None:
                return ask(response._replace(text=(before + choice + after).decode("utf-8", "replace")))

            yield token, say


def _shares(rule: Rule, answer: str, token: Token, say: Callable[[bytes], str | None]) -> dict[str, float]:
    """Return the probabilities of the allowed answers that end with a choice for a token."""
    stem = answer[: -len(_bare(token.text))]
    named = [(stem + _bare(text), text, logprob) for text, logprob in token.choices]
    shares: dict[str, float] = {}
    for one, text, logprob in named if all(known.startswith(stem) for known in rule.allowed) else ():
        longer = {other for other in rule.allowed if other.startswith(one)} - {one}
        # It may be the beginning of a longer answer, unless those are seen to be tokens of their own.
        is_whole = not longer or not longer.isdisjoint(other for other, _, _ in named)
        if one in rule.allowed and is_whole and say(text) == one:
            shares[one] = shares.get(one, 0.0) + math.exp(logprob)
    return shares


def _bare(text: bytes) -> str:
    return base.bare(text.decode("utf-8", "replace"))
