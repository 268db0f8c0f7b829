"""The expected score of an answer: each score that could have stood there, weighed by its probability.

G-Eval (Liu et al. 2023, "NLG evaluation using GPT-4 with better human alignment", eq. 1): the sum over the allowed
answers of p times score, here of their probabilities at the one token that decides the answer, divided by their sum.
Of a verdict on two items a win of the first counts 1, a tie 1/2. A token decides where another answer in its place is
read as that other one; its choices count as far as they are read so, with all that stands around them. Where none or
several decide, and where the allowed answers have too little of the probability, the answer is unparsed and says why.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

from batchpond.model import Outcome, Response, Token, Verdict
from batchpond.tasks import base
from batchpond.tasks.base import Judgment, Rule

MASS_MIN: Final = 0.9
"""The least probability of all allowed answers together; what is left out may be any of them in another form."""
_PLACES_MAX: Final = 50
_WORTH: Final = {Verdict.FIRST: 1.0, Verdict.TIE: 0.5, Verdict.SECOND: 0.0}
_NO_PLACE: Final = "{n} of the tokens that came with log probabilities decide the answer, where one must"

Read = Callable[[Response], Judgment]


def read(rule: Rule, read_text: Read, response: Response) -> Judgment:
    """Return what a response says with its expected score, and the probability of what it says as its confidence."""
    said = read_text(response)
    answer = _answer(rule, said)
    if answer is None:
        return said
    if response.logprobs is None:
        return _unparsed("the answer came without log probabilities")
    tokens = _of_text(response.logprobs, (response.text or "").encode("utf-8", "replace"))
    places = [at for at, token in enumerate(tokens) if _may_decide(rule, answer, token)]
    if len(places) > _PLACES_MAX:
        return _unparsed(_NO_PLACE.format(n=f"up to {len(places)}"))
    found = [shares for at in places if (shares := _Place(rule, read_text, response, tokens, at).shares(answer))]
    if len(found) != 1:
        return _unparsed(_NO_PLACE.format(n=len(found)))
    (shares,) = found
    mass = math.fsum(shares.values())
    if mass < MASS_MIN:
        return _unparsed(f"allowed answers have {mass:.3f} of the probability, less than {MASS_MIN}")
    expected = math.fsum(share * rule.allowed[one] for one, share in shares.items()) / mass
    return said._replace(score=expected, confidence=shares.get(answer, 0.0) / mass)


def _unparsed(why: str) -> Judgment:
    return Judgment(None, Outcome.UNPARSED, explanation=why)


def _answer(rule: Rule, said: Judgment) -> str | None:
    """Return which of the allowed answers a judgment is, None where it is none."""
    worth = said.score if said.verdict is None else _WORTH.get(Verdict(said.verdict))
    return None if worth is None else next((one for one, its in rule.allowed.items() if its == worth), None)


def _of_text(tokens: Sequence[Token], text: bytes) -> list[Token]:
    """Return the tokens of the text that was answered: thoughts may come before it, and a token for the end after."""
    ends = list(itertools.accumulate(len(token.text) for token in tokens))
    start = b"".join(token.text for token in tokens).rfind(text)
    if start < 0 or not text:
        return []
    both = zip(tokens, ends, strict=True)
    return [token for token, end in both if end > start and end - len(token.text) < start + len(text)]


def _may_decide(rule: Rule, answer: str, token: Token) -> bool:
    """Return whether a token may be the end of an answer, up to which all allowed ones are alike."""
    end = _bare(token.text)
    return bool(end) and answer.endswith(end) and all(one.startswith(answer[: -len(end)]) for one in rule.allowed)


def _bare(text: bytes) -> str:
    return base.bare(text.decode("utf-8", "replace"))


class _Place:
    """A token of an answer, and how the answer is read with another text in its place."""

    def __init__(self, rule: Rule, read_text: Read, response: Response, tokens: Sequence[Token], at: int) -> None:
        self._rule, self._read, self._response = rule, read_text, response
        self._token = tokens[at]
        self._before = b"".join(token.text for token in tokens[:at])
        self._after = b"".join(token.text for token in tokens[at + 1 :])

    def shares(self, answer: str) -> dict[str, float]:
        """Return the probabilities of allowed answers by what was answered; none where this token does not decide."""
        own = _bare(self._token.text)
        stem = answer[: -len(own)]
        ends = {one[len(stem) :]: one for one in self._rule.allowed}
        other = next((end for end in ends if not end.startswith(own)), None)
        if (
            other is None
            or self._said(self._token.text) != answer
            or self._said(_with(self._token, own, other)) != (ends[other])
        ):
            return {}
        named = [(_bare(text), text, logprob) for text, logprob in self._token.choices]
        whole = {end for end, _, _ in named}
        found: dict[str, float] = {}
        for end, text, logprob in named:
            longer = {one for one in ends if one != end and one.startswith(end)}
            # It may begin a longer answer, unless those are seen to be tokens of their own.
            if end in ends and (not longer or longer & whole) and self._said(text) == ends[end]:
                found[ends[end]] = found.get(ends[end], 0.0) + math.exp(logprob)
        return found

    def _said(self, text: bytes) -> str | None:
        whole = (self._before + text + self._after).decode("utf-8", "replace")
        return _answer(self._rule, self._read(self._response._replace(text=whole)))


def _with(token: Token, own: str, other: str) -> bytes:
    """Return a token with another answer's end in place of its own."""
    n_same = sum(itertools.takewhile(bool, map(str.__eq__, own, other)))
    text = token.text.decode("utf-8", "replace").casefold()
    head, _, tail = text.rpartition(own[n_same:])
    return (head + other[n_same:] + tail).encode("utf-8")
