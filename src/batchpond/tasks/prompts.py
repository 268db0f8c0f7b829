"""The prompts task: any prompt, read by what the study says: a regular expression, JSON pointers, or SQL.

- `regex`: a pattern with named groups; `json`: one RFC 6901 pointer per field (case of keys does not
  matter); `sql`: one SQL expression per field over the column `text`, which the lens checks and evaluates.
- The fields are verdict, label and score, of which there is at least one, and confidence and explanation.
- Every one of the first three that is asked for must be found and mean something, or the answer is
  unparsed: no judgment is half there. Two places in a text that say different things are ambiguous.

`words` says what the words found for the verdict mean: first, second, tie, true, false, not_applicable or
unsure; without it they must be those words. `labels`, if any, are the only labels; a score lies between
`score_min` and `score_max`. What an SQL expression gives is read like a JSON value, as a text; NULL is nothing.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from batchpond.errors import StudyError
from batchpond.model import Outcome, Response, Verdict
from batchpond.tasks import base, structured
from batchpond.tasks.base import NUMBER_MAX, Judgment, Number, Rule, Text, Texts
from batchpond.tasks.structured import pointed
from batchpond.tasks.templates import STATEMENT_PLACEHOLDERS, Placeholders

PATTERN_MAX_CHARS: Final = 2_000
TEXT_MAX_CHARS: Final = 100_000
_GROUPS_MAX: Final = 9
# Nothing that a model means has these in it; they are taken out of a text before they mark its matches.
_BEGIN, _BETWEEN, _END = "\x01", "\x02", "\x03"
_MARKS: Final = str.maketrans(dict.fromkeys((_BEGIN, _BETWEEN, _END), " "))


@dataclass(frozen=True)
class Pattern:
    """A study's own regular expression, with named groups, run by RE2: a search is linear in the text whatever it is.

    A backtracking engine can be sent to sleep for years by an innocent pattern and an unlucky answer, and cannot be
    interrupted. The pattern must be valid for Python too, whose errors say where they are and which groups have names;
    RE2 then refuses what it cannot do in linear time (look-around, back-references). All matches are read, so the
    worst a pattern can do is to look at the rest of the text after each of them; texts are bounded so that even this
    takes seconds, not hours. `\\d` and `\\w` mean ASCII; `(?i)`, `(?m)` and `(?s)` may begin a pattern.
    """

    text: str

    @cached_property
    def groups(self) -> dict[str, int]:
        """The number of each named group; raises StudyError when the pattern is not valid."""
        return dict(self._compiled("the pattern").groupindex)

    def _compiled(self, where: str) -> re.Pattern[str]:
        try:
            with warnings.catch_warnings(action="error"):
                return re.compile(self.text)
        except re.error as error:
            place = "" if error.pos is None else f" at character {error.pos + 1}"
            raise StudyError(f"{where} is not a regular expression: {error.msg}{place}: {self.text!r}") from None
        except (RecursionError, OverflowError, FutureWarning, DeprecationWarning) as error:
            raise StudyError(f"{where} is not a usable regular expression: {error}") from None

    def check(self, where: str) -> None:
        """Raise StudyError for a pattern that is too long, not valid, or not possible in linear time."""
        if len(self.text) > PATTERN_MAX_CHARS:
            raise StudyError(f"{where} is longer than {PATTERN_MAX_CHARS:,} characters")
        compiled = self._compiled(where)
        if not compiled.groupindex:
            raise StudyError(f"{where} has no named group", hint="for example (?P<verdict>A|B)")
        if compiled.groups > _GROUPS_MAX:
            raise StudyError(f"{where} has more than {_GROUPS_MAX} groups", hint="(?:...) groups without counting")
        try:
            self._marked("")
        except pa.ArrowInvalid as error:
            raise StudyError(
                f"{where} cannot be run in linear time: {str(error).removeprefix('Invalid regular expression: ')}",
                hint="look-around, back-references and repetitions over 1,000 are not possible",
            ) from None

    def _marked(self, text: str) -> str:
        replacement = _BEGIN + _BETWEEN.join(f"\\{number}" for number in self.groups.values()) + _END
        # Not with max_replacements: Arrow then searches what is left as a text of its own, so `^` matches inside.
        return str(pc.replace_substring_regex(pa.scalar(text), pattern=self.text, replacement=replacement).as_py())

    def matches(self, text: str) -> list[dict[str, str]]:
        """Return the named groups of all matches; a group that matched nothing is left out.

        A text longer than TEXT_MAX_CHARS has none: half of it could say the opposite of the whole.
        """
        if len(text) > TEXT_MAX_CHARS:
            return []
        plain = text.translate(_MARKS).encode("utf-8", "replace").decode("utf-8")
        found = [part.partition(_END)[0].split(_BETWEEN) for part in self._marked(plain).split(_BEGIN)[1:]]
        named = (zip(self.groups, values, strict=True) for values in found if any(values))
        return [{name: value for name, value in one if value} for one in named]


TASK: Final = "prompts"
FORMS: Final = ("regex", "json", "sql")
PRIMARY: Final = ("verdict", "label", "score")
FIELDS: Final = (*PRIMARY, "confidence", "explanation")
LABEL_MAX_CHARS: Final = 200
OUTCOMES: Final = {
    **dict.fromkeys((Verdict.FIRST, Verdict.SECOND, "true", "false"), Outcome.DECIDED),
    Verdict.TIE: Outcome.TIE,
    "not_applicable": Outcome.NOT_APPLICABLE,
    "unsure": Outcome.UNSURE,
}
_DECIDED: Final = Outcome.DECIDED
RATED: Final = frozenset({_DECIDED, Outcome.TIE})
_SQL_PART: Final = re.compile(r"'[^']*+'|\"[^\"]*+\"|(--|/\*|;)|([()])")


@dataclass(frozen=True)
class PromptsRule(Rule):
    """How answers are read: `form`, and for it `pattern` (regex) or `fields` by name (json, sql)."""

    TASK: ClassVar[str] = TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(
        ("INPUT",), ("INPUT_ID", "OUTPUT", "STATEMENT", *STATEMENT_PLACEHOLDERS)
    )
    PARSER_VERSION: ClassVar[int] = 2

    form: Text = "regex"
    pattern: Text = ""
    fields: Mapping[str, Text] = field(default_factory=dict)
    words: Mapping[str, Text] = field(default_factory=dict)
    labels: Texts = ()
    score_min: Number = -NUMBER_MAX
    score_max: Number = NUMBER_MAX

    @property
    def expressions(self) -> Mapping[str, str]:
        """The SQL by field whose values `read_values` needs; none where `read` says it all."""
        return self.fields if self.form == "sql" else {}

    @cached_property
    def compiled(self) -> Pattern:
        """The pattern of the form `regex`; raises StudyError when it cannot be one."""
        return Pattern(self.pattern)

    @cached_property
    def meanings(self) -> dict[str, str]:
        """What a word found for the verdict means, by the word without case and outer white space."""
        words = self.words or {name: name for name in OUTCOMES}
        return {word.strip().casefold(): meaning for word, meaning in words.items()}

    @property
    def asked(self) -> tuple[str, ...]:
        """The fields that the pattern or the pointers give."""
        return tuple(self.compiled.groups) if self.form == "regex" else tuple(self.fields)

    @property
    def says(self) -> tuple[str, ...]:
        """The text, and each field that the study asks for."""
        return ("text", *self.asked)

    @cached_property
    def primary(self) -> tuple[str, ...]:
        """The fields of which none may be missing."""
        return tuple(name for name in self.asked if name in PRIMARY)

    @cached_property
    def known_labels(self) -> dict[str, str]:
        """The labels, by themselves without case."""
        return {name.casefold(): name for name in self.labels}

    def check(self, where: str) -> None:
        """Raise StudyError for a pattern, pointer, expression or word that could never be read."""
        if self.form not in FORMS:
            raise StudyError(f"{where}.form is {self.form!r}, not one of {', '.join(FORMS)}")
        if bool(self.pattern) == bool(self.fields) or bool(self.pattern) != (self.form == "regex"):
            needed = "`pattern`" if self.form == "regex" else "`fields`"
            raise StudyError(f"{where}: the form {self.form} needs {needed} and nothing else to read by")
        if self.form == "regex":
            self.compiled.check(f"{where}.pattern")
        unknown = [name for name in self.asked if name not in FIELDS]
        if unknown or not set(self.asked) & set(PRIMARY):
            problem = f"reads {unknown[0]!r}" if unknown else "reads neither verdict, label nor score"
            raise StudyError(f"{where} {problem}", hint=f"the fields, or named groups, are {', '.join(FIELDS)}")
        for name, text in self.fields.items():
            (_check_sql if self.form == "sql" else check_pointer)(text, f"{where}.fields.{name}")
        self._check_values(where)

    def _check_values(self, where: str) -> None:
        check_words(where, self.words, OUTCOMES, lambda word: word.strip().casefold())
        if not self.score_min < self.score_max:
            raise StudyError(f"{where}: score_min must be below score_max")
        if any(not name.strip() or name != name.strip() or len(name) > LABEL_MAX_CHARS for name in self.labels):
            raise StudyError(f"{where}.labels has one that is blank, padded or over {LABEL_MAX_CHARS} characters")

    def _found(self, text: str) -> Judgment | None:
        match self.form:
            case "regex":
                return base.agreed([_reading(found, self) for found in self.compiled.matches(text)])
            case "json":
                return base.agreed([_reading(found, self) for found in _objects(text, self)])
            case _:  # what SQL finds is read by `read_values`
                return None

    def read_values(self, response: Response, values: Mapping[str, str] | None) -> Judgment:
        """Return what the values of the SQL expressions say of a response; None where it has none.

        A blank text says nothing, whatever an expression makes of it.
        """
        return base.read(response, lambda text: _reading(values, self) if values and text.strip() else None)


def check_words(where: str, words: Mapping[str, str], known: Iterable[str], bare: Callable[[str], str]) -> None:
    """Raise StudyError for words that mean nothing known, or that are the same once they are bare."""
    for word, meaning in words.items():
        if not bare(word) or meaning not in known:
            raise StudyError(f"{where}.words: {word!r} = {meaning!r}", hint=f"a word means {', '.join(known)}")
    if len(set(map(bare, words))) < len(words):
        raise StudyError(f"{where}.words has one word twice (case does not count)")


def check_pointer(text: str, where: str) -> None:
    """Raise StudyError for what is no JSON pointer."""
    if not text.startswith("/") or re.search(r"~(?![01])", text):
        raise StudyError(f"{where} is {text!r}, which is no JSON pointer", hint='for example "/result/score"')


def _check_sql(text: str, where: str) -> None:
    depth = 0
    for stop, bracket in _SQL_PART.findall(text):
        depth += {"(": 1, ")": -1}.get(bracket, 0)
        if stop or depth < 0:
            raise StudyError(f"{where} must be one SQL expression: no comment, no semicolon, brackets in pairs")
    if depth or not text.strip() or text.count("'") % 2 or "\0" in text:
        raise StudyError(f"{where} is not a complete SQL expression")


def _objects(text: str, rule: PromptsRule) -> list[dict[str, Any]]:
    def wanted(value: structured.Object) -> list[structured.Object]:
        found = {name: pointed(value, pointer) for name, pointer in rule.fields.items()}
        return [] if all(found[name] is None for name in rule.primary) else [found]

    return structured.objects(text, wanted)


def _reading(found: Mapping[str, Any], rule: PromptsRule) -> Judgment:
    if structured.CONFLICT in found.values():
        return Judgment(None, Outcome.AMBIGUOUS)
    meaning = rule.meanings.get(word_of(found.get("verdict")).casefold())
    label, score = label_of(found.get("label"), rule.known_labels), base.number(found.get("score"))
    if score is not None and not rule.score_min <= score <= rule.score_max:
        score = None
    read = {"verdict": meaning, "label": label, "score": score}
    if any(read[name] is None for name in rule.primary):
        return Judgment(None, Outcome.UNPARSED)
    outcome = _DECIDED if meaning is None else OUTCOMES[meaning]
    reason = base.explanation(found.get("explanation"))
    if outcome not in RATED:
        return Judgment(None, outcome, label=label, explanation=reason)
    return Judgment(meaning, outcome, label, score, base.confidence(found.get("confidence")), reason)


def word_of(value: object) -> str:
    """Return a word of an answer, a JSON truth value as one."""
    text = str(value).casefold() if isinstance(value, bool) else value
    return text.strip() if isinstance(text, str) else ""


def label_of(value: object, known: Mapping[str, str]) -> str | None:
    """Return a label, of those `known` by themselves without case where there are any."""
    text = base.storable(word_of(value), LABEL_MAX_CHARS + 1)
    if text is None or len(text) > LABEL_MAX_CHARS:
        return None
    return known.get(text.casefold()) if known else text
