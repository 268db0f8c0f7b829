"""Responses to read, and the texts that every reader must survive."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from batchpond.model import Finish, Outcome, Response, ResponseStatus
from batchpond.study.file import rule_of as checked_rule
from batchpond.study.typed import Table
from batchpond.tasks.base import Judgment, Rule

ANY_TEXT = st.text(st.characters())  # lone surrogates included
RATED = {Outcome.DECIDED, Outcome.TIE}
LONG = 40_000  # characters: quadratic time takes a second for them, linear time a hundredth


def rule_of(task: str, **settings: Any) -> Rule:
    """Return the rule that a study's settings describe."""
    return checked_rule(Table("study.toml", "", ("answer",), settings), task)


def answered(text: str | None, finish: Finish | None = Finish.STOP, refusal: str | None = None) -> Response:
    """Return a successful response."""
    return Response("c", ResponseStatus.SUCCEEDED, finish=finish, text=text, refusal=refusal)


responses = st.builds(
    lambda status, finish, text, refusal: Response("c", status, finish=finish, text=text, refusal=refusal),
    st.sampled_from(ResponseStatus),
    st.one_of(st.none(), st.sampled_from(Finish)),
    st.one_of(st.none(), ANY_TEXT),
    st.one_of(st.none(), ANY_TEXT),
)

# What is the same for every task, whatever the right answer's text would be.
FAILURES: list[tuple[Callable[[str], Response], Outcome]] = [
    (lambda text: Response("c", ResponseStatus.ERRORED, text=text), Outcome.ERROR),
    (lambda text: Response("c", ResponseStatus.UNREADABLE, text=text), Outcome.ERROR),
    (lambda text: Response("c", ResponseStatus.EXPIRED, text=text), Outcome.EXPIRED),
    (lambda text: Response("c", ResponseStatus.CANCELLED, text=text), Outcome.CANCELLED),
    (lambda text: answered(text, Finish.BLOCKED), Outcome.BLOCKED),
    (lambda text: answered(text, Finish.REFUSAL), Outcome.REFUSED),
    (lambda _: answered(None, refusal="I will not judge this"), Outcome.REFUSED),
    (lambda _: answered(None, Finish.LENGTH), Outcome.TRUNCATED),
    (lambda _: answered("", Finish.LENGTH), Outcome.TRUNCATED),
    (lambda _: answered(None), Outcome.EMPTY),
    (lambda _: answered(" \n\t"), Outcome.EMPTY),
]

_HOSTILE = [
    "{", "}", "{}", "[", '{"', '{"a":', '{"a":[', '{"a":1}', '{"label":', '{"compliant":true', '"', '\\"', '{"\\',
    "```json\n", '{"rating":{', "{{", "}}", ",", ", ", '{"a":1,', "[[", '["', '["a",', "Model:", "Model: A ", "\n",
    "- ", "a\n", "1. a\n", "<FLIP>", "<FLIP>a", "Rating: 1/", "Rating:\n", "9", '{"rating":9', " ", "*", "\ud800",
    '{"a":"', '{"k":[{"', "i am ", "you are ", '{ "compliant" : "', "<FLIP>no_flip</FLIP>",
    '{"label":"no_flip"}', "score: 1\n",
]  # fmt: skip
HOSTILE = [(piece * (LONG // len(piece))) for piece in _HOSTILE]
HOSTILE += [
    '{"a":[' * 300 + "1," * (LONG // 2 - 900),
    '{"a":"' * 1_000 + "x" * LONG,
    '{"rating":' + "9" * LONG + "}",
    '{"a":[' + "1," * (LONG // 4) + '{"a":[' * (LONG // 12),
    '{"compliant":' + "[" * (LONG // 2) + "]" * (LONG // 2) + "}",
]


def check_judgment(judgment: Judgment) -> None:
    """Assert that a judgment's parts fit each other and can be stored."""
    if judgment.outcome not in RATED:
        assert (judgment.verdict, judgment.score, judgment.confidence) == (None, None, None)
    assert (judgment.verdict == "tie") == (judgment.outcome is Outcome.TIE)
    assert judgment.confidence is None or 0 <= judgment.confidence <= 1
    for text in (judgment.label, judgment.explanation):
        assert text is None or text.encode("utf-8")


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call uses the processor."""
    start = time.process_time()
    call()
    return time.process_time() - start
