"""What a task's answer rule is and what it returns, whatever the task, and what every task's reader shares.

That is why there is no answer, numbers, texts that can be stored, answers on a line. And reading with care: what a
text says without its thoughts, answers in odd form, and whether one is meant. An answer in a text is not always the
judge's: "I would not answer A", "if B were shorter, A", "the essay says A", "A. Wait, no", "A. Final answer: B". What
leads to it, and what follows, is looked at for such words (`texts/guards.toml`, `texts/doubts.toml`). One that is not
meant is ambiguous, like two that differ. All of it is linear in the text.
"""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self

import msgspec
from msgspec import Meta

from batchpond import ids
from batchpond.errors import LakeError, StudyError
from batchpond.model import Finish, Outcome, Response, ResponseStatus, Verdict
from batchpond.tasks.templates import Placeholders, table

NUMBER_MAX: Final = 1e15
SCALE_LISTED_MAX: Final = 100
"""Of a longer scale the numbers are not listed one by one: nobody chooses among so many."""
READER: Final = 4
"""The newest way of reading answers: 1 takes what stands in the asked form for an answer, 2 reads with care, 3 takes an
error by which a provider's filter spoke for what that is: blocked, 4 also doubts what is quoted, or revised later."""
_DOUBTS: Final = 4

# An enumeration is asked for a member more slowly than a module for a name, and these once an answer.
_UNPARSED: Final = Outcome.UNPARSED
_CUT: Final = Finish.LENGTH

Text = Annotated[str, Meta(max_length=10_000)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1_000)]
Number = Annotated[float, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Logprobs = Annotated[bool, Meta(description="the expected score, by the probabilities of the answer's tokens")]
_LATER: Final = frozenset({"logprobs", "both_good", "both_bad"})
"""What is kept of a rule only where it is set: one without has the name that it had before."""


class About(StrEnum):
    """What one question of a task is about, in a study of its stages."""

    ROW = "row"
    PAIR = "pair"
    """Any two rows, in pairs that the study chooses, in one order or both."""
    CANDIDATES = "candidates"
    """Two candidates' answers to one input, in both orders."""
    LIST = "list"
    """Some rows, which the answer puts in order."""
    TALK = "talk"
    """A row, and what was said of it so far: each answer leads to a further question."""

    @property
    def is_of_two(self) -> bool:
        """Whether one row is set beside another."""
        return self in {About.PAIR, About.CANDIDATES}


class Gives(StrEnum):
    """What an answer is to later stages."""

    JUDGMENT = "judgment"
    OUTPUT = "output"
    """A text, which they judge."""
    ROWS = "rows"
    """A list: each entry of it is a row of theirs."""


class Judgment(NamedTuple):
    """A response as its task reads it; verdict, score and confidence only when `outcome` is decided or tie.

    `verdict` is first, second or tie for two items, true or false for a yes or no; `label` a word of the
    task's own, `score` a number on its scale, `confidence` from 0 to 1, `explanation` the judge's reason.
    A judge that says why it cannot decide leaves its explanation, and the label for that, without a verdict.
    """

    verdict: str | None
    outcome: Outcome
    label: str | None = None
    score: float | None = None
    confidence: float | None = None
    explanation: str | None = None


TIE_KINDS: Final = {name: Judgment(Verdict.TIE, Outcome.TIE, label=name) for name in ("both_good", "both_bad")}
"""What a tie may be beside that, by the word that its label is; it counts as any tie does."""


class Rule:
    """How a task's answers are asked for and read: the base of frozen dataclasses, one for each way to read one task.

    Their fields are the study's settings and the lake's record of them; what may stand in them is said by their types.
    `READER` tells two ways to read one task apart; a change of what a rule of the same fields reads needs another
    `PARSER_VERSION`.
    """

    TASK: ClassVar[str]
    ABOUT: ClassVar[About] = About.ROW
    GIVES: ClassVar[Gives] = Gives.JUDGMENT
    PARSER_VERSION: ClassVar[int] = 1
    READER: ClassVar[str] = ""
    PLACEHOLDERS: ClassVar[Placeholders]
    SAYS: ClassVar[tuple[str, ...]] = ("text",)
    EARNS: ClassVar[bool] = False
    """Whether an answer may meet what it is judged by, and so earn the points that this gives."""
    size: int = 1
    """How many items an answer is of, where each has a row of the plan."""

    @property
    def says(self) -> tuple[str, ...]:
        """The columns of `results` that an answer has which counts, as templates of later stages may show them."""
        return self.SAYS

    @cached_property
    def parser_id(self) -> str:
        """The name of this way to read answers; another rule has another name."""
        text = json.dumps(self._fields(), sort_keys=True)
        name = "-".join(filter(None, (self.TASK, self.READER, "kinds" if self.has_tie_kinds else "")))
        return f"{name}-{self.PARSER_VERSION}-{ids.digest('answer', name, text, length=8)}"

    @property
    def has_tie_kinds(self) -> bool:
        """Whether a judge may say that both are good, or both are bad: its parser's name tells the views so."""
        return any(getattr(self, name, None) for name in TIE_KINDS)

    @property
    def placeholders(self) -> Placeholders:
        """What its templates must and may contain."""
        return self.PLACEHOLDERS

    @property
    def parts(self) -> Mapping[str, Rule]:
        """What reads each field, by its name, where an answer has several; the rule itself reads all others."""
        return {}

    @property
    def allowed(self) -> Mapping[str, float]:
        """Where the score is the expected one: what each answer counts, by its letters and digits alone."""
        return {}

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """What people may say in a judge's place, by the kind of their label, where its settings tell."""
        return {}

    def values(self) -> dict[str, str]:
        """Return what the rule itself fills in, by placeholder."""
        return {}

    def check(self, where: str) -> None:
        """Raise StudyError when answers could not be read reliably by it."""

    def check_shown(self, where: str, text: str) -> None:
        """Raise StudyError for a template that does not tell of a kind of ties for which there is a word."""
        for name in TIE_KINDS:
            word, shown = getattr(self, name, None), f"{{ANSWER_{name.upper()}}}"
            if word and shown not in text and word.casefold() not in text.casefold():
                raise StudyError(f"{where} shows no {shown}, so no judge will say it", hint="write a template of yours")

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer for providers that can hold a model to one, if there is one."""
        return None

    def read(self, response: Response) -> Judgment:
        """Return what a response says; total: any response gives a judgment."""
        is_cut = response.finish is _CUT
        return read(response, lambda text: self._found(self._left_of_cut(text) if is_cut else text))

    def _found(self, text: str) -> Judgment | None:
        raise NotImplementedError

    def _left_of_cut(self, text: str) -> str:
        return text

    def read_with_care(self, response: Response, _reader: int = _DOUBTS) -> Judgment:
        """Return what a response says as a reader from 2 on reads it; a rule that has only one reads as ever."""
        return self.read(response)

    def _fields(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _names(type(self))}
        values = {name: value for name, value in values.items() if value or name not in _LATER}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_spec(self) -> dict[str, Any]:
        """Return the rule as `studies.parsers` keeps it."""
        return {"task": self.TASK, "reader": self.READER, **self._fields()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Return the rule that `to_spec` wrote; raises LakeError when it is damaged."""
        try:
            known = {name: spec[name] for name in _names(cls) if name in spec or name not in _LATER}
            return msgspec.convert(known, cls)
        except KeyError as error:
            raise LakeError(f"a study's answer rule in the lake lacks {error}") from None
        except msgspec.ValidationError as error:
            raise LakeError(f"a study's answer rule in the lake is damaged: {error}") from None


class CarefulRule(Rule):
    """A rule with a second reader: what it finds in a text without its thoughts, if that is meant."""

    def read_with_care(self, response: Response, reader: int = _DOUBTS) -> Judgment:
        """Return what a response says, in whatever form, if it is meant; of a text that was cut for length, nothing.

        What stands in it may be the beginning of something else, and what would have followed may have taken it back.
        """
        is_cut, care = response.finish is _CUT, self._doubts if reader >= _DOUBTS else care_of()
        return read(response, lambda text: None if is_cut else care.found(said(text), self._found_with_care))

    @cached_property
    def _doubts(self) -> Care:
        names = [*((one, one) for one in Verdict), *((one, Verdict.TIE) for one in TIE_KINDS)]
        return care_of(self.READER or self.TASK, *((means, getattr(self, one, None) or "") for one, means in names))

    def _found_with_care(self, text: str, care: Care) -> Judgment | None:
        raise NotImplementedError


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


EXPLANATION_MAX_CHARS: Final = 20_000
_NOT_ANSWERED: Final = {
    ResponseStatus.ERRORED: Outcome.ERROR,
    ResponseStatus.UNREADABLE: Outcome.ERROR,
    ResponseStatus.EXPIRED: Outcome.EXPIRED,
    ResponseStatus.CANCELLED: Outcome.CANCELLED,
}
_NUMBERS: Final = (int, float)
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)


_STOPPED: Final[Mapping[Finish | None, Outcome]] = {Finish.BLOCKED: Outcome.BLOCKED, Finish.REFUSAL: Outcome.REFUSED}


def not_answered(response: Response) -> Outcome | None:
    """Return why a response's text does not count at all, or None when it does."""
    return _STOPPED.get(response.finish) or _NOT_ANSWERED.get(response.status)


def why_no_answer(response: Response) -> Outcome:
    """Return the outcome of a text in which no answer was found."""
    if response.refusal:
        return Outcome.REFUSED
    if response.finish is Finish.LENGTH:
        return Outcome.TRUNCATED
    return Outcome.UNPARSED if (response.text or "").strip() else Outcome.EMPTY


def read(response: Response, reader: Callable[[str], Judgment | None]) -> Judgment:
    """Return what `reader` finds in the visible text, or why there is nothing; None from it is nothing.

    An answer that `reader` saw but could not use (unparsed) is named by what came with the response.
    """
    if (outcome := not_answered(response)) is not None:
        return Judgment(None, outcome)
    found = reader(response.text or "")
    if found is None or found.outcome is _UNPARSED:
        return Judgment(None, why_no_answer(response))
    return found


def whole_lines(text: str) -> str:
    """Return a text that was cut without the line that it was cut in.

    `Model: A` may be the beginning of `Model: A and B are equal`.
    """
    return "\n".join((text + "?").splitlines()[:-1])


def agreed(readings: Sequence[Judgment]) -> Judgment | None:
    """Return the last of several readings of one text if they say the same, else ambiguous.

    Readings that could not be used (unparsed) count only when there is no other: a judge may repeat
    the form that it was shown before it fills it in. None when there is no reading.
    """
    if len(readings) == 1:
        return readings[0]
    usable = [reading for reading in readings if reading.outcome is not Outcome.UNPARSED]
    if not usable:
        return readings[-1] if readings else None
    if len({(reading.outcome, reading.verdict, reading.label, reading.score) for reading in usable}) > 1:
        return Judgment(None, Outcome.AMBIGUOUS)
    return usable[-1]


def storable(text: str, size_max: int = EXPLANATION_MAX_CHARS) -> str | None:
    """Return a text as a table can keep it, cut to `size_max` characters; None when it is blank.

    Half a surrogate pair, which JSON can escape but UTF-8 cannot say, becomes a question mark.
    """
    cut = text[:size_max]
    return (cut if cut.isascii() else cut.encode("utf-8", "replace").decode("utf-8")).strip() or None


def explanation(value: object) -> str | None:
    """Return a judge's reason, which must be a text; all of it stays in `responses.text`."""
    return storable(value) if isinstance(value, str) else None


def number(value: object) -> float | None:
    """Return a finite number, also one written as a text; true and false are none."""
    if isinstance(value, str):
        text = value.strip()
        value = float(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, _NUMBERS) or not math.isfinite(value):
        return None
    return float(value)


def confidence(value: object) -> float | None:
    """Return a number from 0 to 1, also from a text with a per cent sign; anything else is unknown."""
    is_percent = isinstance(value, str) and value.rstrip().endswith("%")
    found = number(value.rstrip()[:-1] if isinstance(value, str) and is_percent else value)
    if found is None:
        return None
    share = found / 100 if is_percent else found
    return share if 0 <= share <= 1 else None


_BULLETS: Final = re.compile(r"\s*(?:[-+*\u2022]\s+|>\s*)*+")
_AROUND: Final = "*_`#\"'(){}[]\u201c\u201d\u2018\u2019\u00ab\u00bb"
_MARKUP: Final = str.maketrans("", "", _AROUND)
_MARKUP_OF_WORDS: Final = str.maketrans("", "", _AROUND + "<>~$\\")


def _bare(line: str, markup: dict[int, int | None]) -> str:
    return "".join(line.translate(markup).split()).casefold().rstrip(".,;!")


def bare_words(line: str) -> str:
    """Return a line without white space, case, bullets, quotes, brackets, emphasis and its last full stop."""
    return _bare(_BULLETS.sub("", line, count=1), _MARKUP_OF_WORDS)


def bare_number(line: str, prefix: str = "") -> str | None:
    """Return what follows a bare prefix on a line, with every sign that could belong to a number: `-3`, `<3`.

    None when the line begins otherwise. Only with a prefix can a bullet be told from a minus.
    """
    text = _bare(line, _MARKUP)
    if prefix:
        text = text.lstrip("-+>\u2022")
    return text.removeprefix(prefix) if text.startswith(prefix) else None


_LEAD_CHARS: Final = 400
_TAIL_CHARS: Final = 50_000
_WORD_CHARS: Final = 80

_THOUGHTS: Final = re.compile(r"<(/?)(?:think|thinking|thoughts?|reasoning|scratchpad|analysis)>", re.IGNORECASE)
_ESCAPED: Final = re.compile(r"\\([^\w\s]|_)")
_FORM: Final = re.compile(r"[\W_]+")
_SIGNS: Final = "*_`#\"'(){}[]|$>=\u201c\u201d\u2018\u2019\u00ab\u00bb\u2192"
_FRAME: Final = re.compile(r"(?:<(?!del>|s>)[a-z]{1,20}>|\\?boxed|(?:```|~~~)[a-z]{0,10}|[-\u2022])\s*$", re.IGNORECASE)
_FRAME_CHARS: Final = 24
_STOPS: Final = (".", "!", "?", "\u3002", "\uff01", "\uff1f")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|[\u3002\uff01\uff1f\n]")


class Found(NamedTuple):
    """What stands at an answer's place, and where that begins and ends."""

    words: str
    start: int
    end: int


def said(text: str) -> str:
    """Return a text without the thoughts that a model wrote into it, which are no answer."""
    signs = list(_THOUGHTS.finditer(text)) if "<" in text else []
    if not signs:
        return text
    start = max((sign.end() for sign in signs if sign[1]), default=0)
    return text[start : next((sign.start() for sign in signs if not sign[1] and sign.start() >= start), None)]


def plain(text: str) -> str:
    """Return a text as it is shown: entities and escapes undone, apostrophes straight."""
    shown = html.unescape(text)
    shown = _ESCAPED.sub(r"\1", shown) if "\\" in shown else shown
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


class Care(NamedTuple):
    """What tells whether an answer is meant: words around it; in doubt, also quotations and what is said later."""

    guards: Mapping[str, re.Pattern[str]]
    doubts: bool

    def found(self, text: str, find: Callable[[str, Care], Judgment | None]) -> Judgment | None:
        """Return what is found in a text outside comments and quoted lines; what is found there alone is ambiguous."""
        own = text
        if self.doubts and text[:1] + text[-1:] != "{}":  # the texts in an object are left as they are
            own = self.guards["hidden"].sub(" ", text) if "!--" in text or "quote" in text else text
            own = self.guards["quoted"].sub("\n.", "\n" + own)[1:]
        found = find(own, self)
        quoted = find(text, self) if own != text and (found is None or found.outcome is _UNPARSED) else None
        return Judgment(None, Outcome.AMBIGUOUS) if quoted and quoted.outcome is not _UNPARSED else found

    def meant(self, text: str, readings: Sequence[tuple[Judgment, Found]]) -> Judgment | None:
        """Return the one reading that a plain text has, if it is meant where it stands last; None when there is none.

        Readings that could not be used (unparsed), or are foreign words or a loser, count only when there is no other.
        """
        usable = [one for one in readings if one[0].outcome is not Outcome.UNPARSED]
        if not usable:
            return readings[-1][0] if readings else None
        if len(usable) > 1:
            usable = [one for one in usable if not self.guards["foreign"].search(_lead(text, one[1])[0])] or usable
        judgment, found = usable[-1]
        says = {(one.outcome, one.verdict, one.label, one.score) for one, _ in usable} if len(usable) > 1 else ()
        is_meant = len(says) < 2 and _is_meant(text, found, self) and not self._is_revised(text, judgment, found)
        return judgment if is_meant else Judgment(None, Outcome.AMBIGUOUS)

    def _is_revised(self, text: str, judgment: Judgment, found: Found) -> bool:
        """Whether a sentence behind an answer says another, or calls it the worse one; a concession does not."""
        said = judgment.verdict or judgment.label or f"{judgment.score or 0:.15g}"
        later = text[found.end :][:_TAIL_CHARS].lower()
        for match in self.guards["statement"].finditer("\n" + later) if later.strip("`\n ") else ():
            names = (name.removeprefix("is_") for name, words in match.groupdict().items() if words and "is_" in name)
            named = next(names) or "".join(match["name"].split()).upper()
            differs = named in {said, Verdict.TIE} if match["less"] or match["worse"] else named != said
            before = _SENTENCE.split(match.string[max(0, match.start() - _LEAD_CHARS) : match.start()])[-1]
            if differs and not self.guards["conceded"].search(before):
                return True
        return False


def _is_meant(text: str, found: Found, care: Care) -> bool:
    """Whether nothing around an answer says that it is none: no negation, condition, quotation or second thought."""
    guards, tail = care.guards, text[found.end :].lstrip(_SIGNS + " \t")
    if (
        tail.startswith(("?", "\uff1f"))
        or guards["followed"].match(tail)
        or guards["taken_back"].search("\n" + (tail.lower() if care.doubts else tail)[:_TAIL_CHARS])
        or guards["struck"].search(text, found.end if found.words else found.start)
    ):
        return False
    lead, marks = _lead(text, found)
    if not lead or guards["foreign"].search(lead):
        return not lead and not ("?" in text and guards["asked"].match(text[: found.start][-_WORD_CHARS:]))
    lead = guards["plain"].sub("", guards["turn"].split(lead)[-1]).strip()
    part = guards["part"].split(lead)[-1]
    is_announced = lead.endswith((":", "\uff1a")) or "\u2192" in marks
    if "\n" in marks and not is_announced:
        return not (guards["broken_off"].search(lead) and guards["to_answer"].search(lead))
    if guards["supposed"].search(lead) or guards["retracted"].search(part):
        return False
    return not (guards["to_answer"].search(lead.rstrip(":\uff1a ")) if is_announced else guards["astray"].search(part))


def _lead(text: str, found: Found) -> tuple[str, str]:
    """Return the unfinished sentence that leads to an answer, and the marks and lines between them."""
    before = text[max(0, found.start - _LEAD_CHARS) : found.start]
    whole, length = before, -1
    while len(before) != length:
        length = len(before)
        before = before.rstrip().rstrip(_SIGNS)
        bare = before.rstrip()
        if not bare.endswith(_STOPS):  # which end no frame
            inside = max(0, len(bare) - _FRAME_CHARS)
            before = before[:inside] + _FRAME.sub("", before[inside:])
    return ("" if before.endswith(_STOPS) else _SENTENCE.split(before)[-1]), whole[len(before) :]


@cache
def care_of(kind: str = "", *own: tuple[str, str]) -> Care:
    """Return what tells whether an answer is meant; where it has names, by its kind and a rule's own, with doubts."""
    said, doubts = table("guards"), table("doubts") if kind else {"patterns": {}, "parts": {}, "names": {kind: {}}}
    patterns, parts = said.pop("patterns") | doubts["patterns"], said | doubts["parts"]
    parts = {name: "|".join([*found, *doubts.get(name, ())]) for name, found in parts.items()}
    names = {key: "|".join(found) % parts for key, found in doubts["names"][kind].items()}
    for key, words in own:
        if not words:
            continue
        # The sign that tells it from another is a name too, alone only where no word follows.
        word, sign = words.strip(), "(?!)" if words.strip()[-1:].islower() else re.escape(words.strip()[-1:].lower())
        by_sign = rf"{sign}(?(noun)|{parts['end']})|#{sign}"
        names[key] += f"|{by_sign}" if len(word) == 1 else f"|{loose(word.lower())}|{by_sign}"
    parts["names"] = "|".join(f"(?P<is_{key}>{pattern})" for key, pattern in names.items())
    return Care({name: re.compile(found % parts, re.IGNORECASE) for name, found in patterns.items()}, bool(kind))
