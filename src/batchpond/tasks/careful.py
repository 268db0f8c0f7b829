"""Reading with care: what a text says without its thoughts, answers in odd form, and whether one is meant.

An answer in a text is not always the judge's: "I would not answer A", "if B were shorter, A", "the essay says A",
"A. Wait, no". What leads to it, and what follows, is looked at for such words (`texts/guards.toml`). One that is not
meant is ambiguous, like two that differ. All of it is linear in the text.
"""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from batchpond.model import Finish, Outcome, Response
from batchpond.tasks import base
from batchpond.tasks.base import Judgment

_LEAD_CHARS: Final = 400
_TAIL_CHARS: Final = 50_000
_WORD_CHARS: Final = 80

_THOUGHTS: Final = re.compile(r"<(/?)(?:think|thinking|thoughts?|reasoning|scratchpad|analysis)>", re.IGNORECASE)
_ESCAPED: Final = re.compile(r"\\([^\w\s]|_)")
_FORM: Final = re.compile(r"[\W_]+")
_SIGNS: Final = "*_`#\"'(){}[]|$>=\u201c\u201d\u2018\u2019\u00ab\u00bb\u2192"
_FRAME: Final = re.compile(r"(?:<(?!del>|s>)[a-z]{1,20}>|\\?boxed|(?:```|~~~)[a-z]{0,10}|[-\u2022])\s*$", re.IGNORECASE)
_STOPS: Final = (".", "!", "?", "\u3002", "\uff01", "\uff1f")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|[\u3002\uff01\uff1f\n]")
_ASTRAY: Final = ("negated", "doubted", "quoted")
_PART: Final = re.compile(r"[,\uff0c\u2014\u2013]| - ")
_TURN: Final = re.compile(
    r"\b(?:so|therefore|thus|hence|(?<!anything )but|yet|still|overall|donc|also)\b", re.IGNORECASE
)


class Found(NamedTuple):
    """What stands at an answer's place, and where that begins and ends."""

    words: str
    start: int
    end: int


def read(response: Response, reader: Callable[[str], Judgment | None]) -> Judgment:
    """Return what `reader` finds in the visible text without its thoughts; a text that was cut for length has nothing.

    What stands in it may be the beginning of something else, and what would have followed may have taken it back.
    """
    is_cut = response.finish is Finish.LENGTH
    return base.read(response, lambda text: None if is_cut else reader(said(text)))


def said(text: str) -> str:
    """Return a text without the thoughts that a model wrote into it, which are no answer."""
    signs = list(_THOUGHTS.finditer(text))
    start = max((sign.end() for sign in signs if sign[1]), default=0)
    return text[start : next((sign.start() for sign in signs if not sign[1] and sign.start() >= start), None)]


def plain(text: str) -> str:
    """Return a text as it is shown: entities and escapes undone, apostrophes straight."""
    shown = _ESCAPED.sub(r"\1", html.unescape(text))
    return shown.replace("\u2019", "'").replace("e.g.", "eg")


def bare(words: str) -> str:
    """Return the letters and digits of some words, without case; nothing of a question."""
    return "" if "?" in words else _FORM.sub("", words).casefold()


@cache
def _tag(prefix: str, suffix: str) -> re.Pattern[str]:
    other_end = r"</[\w\s-]{1,40}>|(?:</?[\w\s-]{0,40}>?|/[a-z][\w\s-]{0,40}>)?\s{0,20}\Z"
    words = rf"[^<]{{0,{_WORD_CHARS}}}?|\s{{0,9}}<[^<>]{{1,{_WORD_CHARS}}}>\s{{0,9}}"
    return re.compile(rf"{loose(prefix)}(?P<words>{words})(?:{loose(suffix)}|{other_end})", re.IGNORECASE)


def loose(sign: str) -> str:
    """Return the pattern of a sign whose parts may stand apart."""
    parts = re.findall(r"[^\W_]+|_|[^\w\s]", sign)
    return r"\s{0,9}".join(r"[\s_-]{0,3}" if part == "_" else re.escape(part) for part in parts)


def tags(text: str, prefix: str, suffix: str) -> list[Found]:
    """Return what stands in each tag of a plain text, whatever the tag's form; the text's end may be the tag's."""
    return [Found(match["words"], *match.span()) for match in _tag(prefix, suffix).finditer(text)]


def meant(text: str, readings: Sequence[tuple[Judgment, Found]]) -> Judgment | None:
    """Return the one reading that a plain text has, if it is meant where it stands last; None when there is none.

    Readings that could not be used (unparsed) count only when there is no other.
    """
    usable = [one for one in readings if one[0].outcome is not Outcome.UNPARSED]
    if not usable:
        return readings[-1][0] if readings else None
    judgment, found = usable[-1]
    if len({(one.outcome, one.verdict, one.label, one.score) for one, _ in usable}) > 1 or not _is_meant(text, found):
        return Judgment(None, Outcome.AMBIGUOUS)
    return judgment


def _is_meant(text: str, found: Found) -> bool:
    """Whether nothing around an answer says that it is none: no negation, condition, quotation or second thought."""
    guards = _guards()
    tail = text[found.end :].lstrip(_SIGNS + " \t")
    if (
        tail.startswith(("?", "\uff1f"))
        or guards["followed"].match(tail)
        or guards["taken_back"].search("\n" + tail[:_TAIL_CHARS])
    ):
        return False
    lead, marks = _lead(text[max(0, found.start - _LEAD_CHARS) : found.start])
    lead = guards["plain"].sub("", _TURN.split(lead)[-1]).strip()
    part = _PART.split(lead)[-1]
    is_announced = lead.endswith((":", "\uff1a")) or "\u2192" in marks
    if "\n" in marks and not is_announced:
        return not (guards["broken_off"].search(lead) and guards["to_answer"].search(lead))
    if guards["supposed"].search(lead) or guards["retracted"].search(part):
        return False
    return not (guards["to_answer"].search(lead.rstrip(":\uff1a ")) if is_announced else guards["astray"].search(part))


def _lead(before: str) -> tuple[str, str]:
    """Return the unfinished sentence that leads to an answer, and the marks and lines between them."""
    whole, length = before, -1
    while len(before) != length:
        length = len(before)
        before = _FRAME.sub("", before.rstrip().rstrip(_SIGNS))
    return ("" if before.endswith(_STOPS) else _SENTENCE.split(before)[-1]), whole[len(before) :]


@cache
def _guards() -> dict[str, re.Pattern[str]]:
    text = (resources.files("batchpond.tasks") / "texts" / "guards.toml").read_text("utf-8")
    words = {name: "|".join(found) for name, found in tomllib.loads(text).items()}
    begins = r"[\n.!?;(\u2014\u2013\u3002][^\S\n]{0,9}+"
    patterns = {
        "plain": rf"\b(?:{words['plain']})\b",
        "followed": rf"(?:{words['followed']})(?![a-z])",
        "taken_back": rf"{begins}(?:{words['taken_back']})(?![a-z])|(?:{words['taken_back_anywhere']})",
        "to_answer": rf"(?<!\w)(?:{words['negated_to_answer']}|{words['quoted_to_answer']})\W*$",
        "astray": rf"(?<!\w)(?:{'|'.join(words[name] for name in _ASTRAY)})(?!\w)|{words['negated_anywhere']}",
        "retracted": rf"(?<!\w)(?:{words['retracted']})(?!\w)|(?:<del|<s|~~)$",
        "supposed": rf"(?<!\w)(?:{words['supposed']})(?!\w)|^(?:{words['supposed_first']})\b"
        rf"|{words['supposed_anywhere']}",
        "broken_off": rf"(?<!\w)(?:{words['broken_off']})\W*$",
    }
    return {name: re.compile(pattern, re.IGNORECASE) for name, pattern in patterns.items()}
