"""The expected score of an answer: each score that could have stood there, weighed by its probability.

G-Eval (Liu et al. 2023, "NLG evaluation using GPT-4 with better human alignment"): the sum over the allowed answers
of probability times score, here of their probabilities at the one token that decides the answer, divided by their
sum. Of a verdict on two items a win of the first counts 1, a tie 1/2. A token decides where it is the end of the
answer and with another one's end in its place that other is read. A choice for it counts if with it, and all that
stands around, its answer is read. Where not one token decides, or allowed answers have too little of the probability,
it is unparsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from batchpond.model import Outcome, Response, Token, Verdict
from batchpond.tasks import base
from batchpond.tasks.base import Judgment, Rule

MASS_MIN: Final = 0.9
"""The least probability of all allowed answers together: the rest may be any of them in another form."""
_PLACES_MAX: Final = 50
_WORTH: Final = {Verdict.FIRST: 1.0, Verdict.TIE: 0.5, Verdict.SECOND: 0.0}


Say = Callable[[bytes], str | None]
"""Reads an answer with other bytes in the place of one of its tokens."""


def read(rule: Rule, read_text: Callable[[Response], Judgment], response: Response) -> Judgment:
    """Return what a response says with its expected score, and the probability of what it says as its confidence."""

    def answer_of(text: str | None) -> str | None:
        return _answer(rule, read_text(response._replace(text=text)))

    said = read_text(response)
    answer = _answer(rule, said)
    if answer is None:
        return said
    tokens = response.logprobs or ()
    found = [_shares(rule, *place) for place in _deciding(rule, answer, tokens, response.text or "", answer_of)]
    if len(found) != 1:
        return _unparsed(f"{len(found)} of {len(tokens)} tokens with log probabilities decide the answer, not one")
    mass = math.fsum(found[0].values())
    if mass < MASS_MIN:
        return _unparsed(f"allowed answers have {mass:.3f} of the probability, less than {MASS_MIN}")
    expected = math.fsum(share * rule.allowed[one] for one, share in found[0].items()) / mass
    return said._replace(score=expected, confidence=found[0].get(answer, 0.0) / mass)


def _unparsed(why: str) -> Judgment:
    return Judgment(None, Outcome.UNPARSED, explanation=why)


def _answer(rule: Rule, said: Judgment) -> str | None:
    """Return which of the allowed answers a judgment is, None where it is none."""
    worth = said.score if said.verdict is None else _WORTH.get(Verdict(said.verdict))
    return next((one for one, its in rule.allowed.items() if its == worth), None)


def _deciding(
    rule: Rule, answer: str, tokens: Sequence[Token], text: str, answer_of: Callable[[str], str | None]
) -> Iterator[tuple[str, Token, Say]]:
    """Yield the tokens that decide the answer, with what of it stands before them."""
    other = next(one for one in rule.allowed if not (one.startswith(answer) or answer.startswith(one)))
    n_same = next(at for at, (its, own) in enumerate(zip(other, answer, strict=False)) if its != own)
    whole, shown = b"".join(token.text for token in tokens), text.encode("utf-8", "replace")
    start = whole.rfind(shown)  # thoughts may stand before it, and a token that means the end after
    stop = start + len(shown)
    ends = accumulate(len(token.text) for token in tokens)
    both = [(token, end) for token, end in zip(tokens, ends, strict=True) if start < end < stop + len(token.text)]
    places = [(answer.removesuffix(_bare(token.text)), token, end) for token, end in both]
    places = [place for place in places if place[0] != answer and all(one.startswith(place[0]) for one in rule.allowed)]
    for stem, token, end in places if len(places) <= _PLACES_MAX and start >= 0 else ():
        before, after = whole[start : max(start, end - len(token.text))], whole[end:stop]

        def say(choice: bytes, before: bytes = before, after: bytes = after) -> str | None:
            return answer_of((before + choice + after).decode("utf-8", "replace"))

        head, _, tail = token.text.decode("utf-8", "replace").casefold().rpartition(answer[n_same:])
        if say(token.text) == answer and say(f"{head}{other[n_same:]}{tail}".encode()) == other:
            yield stem, token, say


def _shares(rule: Rule, stem: str, token: Token, say: Say) -> dict[str, float]:
    """Return the probabilities of allowed answers that begin with `stem` and end with a choice for a token."""
    named = [(stem + _bare(text), text, logprob) for text, logprob in token.choices]
    shares: dict[str, float] = {}
    for one, text, logprob in named:
        longer = {other for other in rule.allowed if other.startswith(one)} - {one}
        # It may be the beginning of a longer answer, unless those are seen to be tokens of their own.
        is_whole = not longer or not longer.isdisjoint(other for other, _, _ in named)
        if one in rule.allowed and is_whole and say(text) == one:
            shares[one] = shares.get(one, 0.0) + math.exp(logprob)
    return shares


def _bare(text: bytes) -> str:
    return base.bare(text.decode("utf-8", "replace"))
