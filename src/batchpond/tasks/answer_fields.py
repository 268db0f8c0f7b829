"""Many fields in one answer: each is read at a place of its own, and is a judgment of its own with its own outcome.

Each is a cell of its own that shares the request, its name the rubric: so every figure has a row for each. It stands at
a JSON pointer (`/name` if nothing is said), in a tag or where a pattern with the group `value` finds it:

- `verdict`: one of `words`, each of which means first, second or tie (both_good, both_bad) of two items, true or false
  of one, or not_applicable or unsure. A number after it is its strength, kept as `score`: `"A>>B" = "first 2"`.
- `graded`: a verdict on two items from A>>B to B>>A, of strength 2, 1 or 0
- `score`: a number within `range`; `label`: one of `labels`, or any word
- `text`: kept as `explanation`; `list`: its entries as a JSON array in `explanation`, their number in `score`

Two items are compared by `verdict` and `graded` alone. `explanation` points to the judge's reason, which fields may
share. What stands in two places and differs is ambiguous. Of a text that was cut, what is complete is read.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from batchpond.errors import StudyError
from batchpond.model import Outcome, Response
from batchpond.tasks import base, inputs, pairwise, prompts, ranking, structured
from batchpond.tasks.base import About, Judgment, Logprobs, Number, Rule, Text, Texts
from batchpond.tasks.likert import LikertRule
from batchpond.tasks.prompts import OUTCOMES, Pattern
from batchpond.tasks.templates import Placeholders

VALUE: Final = "value"
_WHY: Final = "why"
_ITEM: Final = {"true": "true", "false": "false"}
_PAIR: Final = {"SAMPLE_1": "first", "SAMPLE_2": "second", "tie": "tie"}
_CANDIDATES: Final = {"A": "first", "B": "second", "tie": "tie"}
_GRADED: Final = {"A>>B": "first 2", "A>B": "first 1", "A=B": "tie 0", "B>A": "second 1", "B>>A": "second 2"}
_VERDICTS: Final = ("verdict", "graded")
_TEXTS: Final = ("text", "list")
KINDS: Final = (*_VERDICTS, "score", "label", *_TEXTS)
_OF_KIND: Final = {"words": _VERDICTS, "range": ("score",), "is_whole": ("score",), "labels": ("label",),
          "logprobs": ("score",), "explanation": (*_VERDICTS, "score", "label")}  # fmt: skip
"""The settings that only some kinds have."""
_SAID: Final = dict(score="score", label="label", text="explanation", list="explanation")
_ASKED: Final = dict(label="one word", score="a number", text="a text", list="a list of texts, [] if there is none")
_REASON: Final = "your reason in one to three sentences"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STRENGTH: Final = re.compile(r" \d+(?:\.\d+)?$", re.ASCII)
_TAG: Final = re.compile(r"[A-Za-z][\w-]{0,63}")
_MARKUP: Final = "*_`#\"'()[]{}.!"
_AMBIGUOUS: Final = Judgment(None, Outcome.AMBIGUOUS)
_UNPARSED: Final = Judgment(None, Outcome.UNPARSED)


@dataclass(frozen=True, kw_only=True)
class Field(Rule):
    """One field of an answer: what it is, and where it stands."""

    TASK: ClassVar[str] = prompts.TASK
    READER: ClassVar[str] = "field"
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(())

    name: Text
    kind: Annotated[str, Meta(extra_json_schema={"enum": [*KINDS]})]
    description: Text = ""
    pointer: Text = ""
    tag: Text = ""
    regex: Text = ""
    explanation: Text = ""
    range: tuple[Number, ...] = ()
    is_whole: bool = True
    words: Mapping[str, Text] = field(default_factory=dict)
    labels: Texts = ()
    logprobs: Logprobs = False

    @property
    def says(self) -> tuple[str, ...]:
        """The column of `results` with its value."""
        return (_SAID.get(self.kind, "verdict"),)

    @property
    def allowed(self) -> Mapping[str, float]:
        """Each score by its digits, where the expected one is read."""
        return self.scale.allowed

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """What may be said of this field: nothing of a text or a list."""
        words: Iterable[str] = self.labels
        if self.kind == "verdict":
            words = dict.fromkeys(said for said in self.words.values() if said in {"true", "false"})
        elif self.kind == "score" and self.is_whole and self.range:
            low, high = map(int, self.range)
            words = map(str, range(low, min(high, low + base.SCALE_LISTED_MAX) + 1))
        return {f"{'score' if self.kind == 'score' else 'label'} {self.name}": tuple(words)}

    @property
    def has_tie_kinds(self) -> bool:
        """Whether one of its words means that both are good, or both are bad."""
        return any(said.partition(" ")[0] in base.TIE_KINDS for said in self.words.values())

    @property
    def place(self) -> str:
        """The JSON pointer to it; empty where it stands in no JSON."""
        return "" if self.tag or self.regex else self.pointer or f"/{self.name}"

    @property
    def reason(self) -> Field | None:
        """The text in which the judge says why, if there is one."""
        text = Field(name=self.name, kind="text", description=_REASON, pointer=self.explanation)
        return text if self.explanation else None

    @cached_property
    def pattern(self) -> Pattern:
        """What finds it outside JSON."""
        return Pattern(self.regex or rf"(?is)<\s*{self.tag}\s*>\s*(?P<{VALUE}>.*?)\s*<\s*/\s*{self.tag}\s*>")

    @cached_property
    def scale(self) -> LikertRule:
        """What reads a score."""
        low, high = self.range or (-base.NUMBER_MAX, base.NUMBER_MAX)
        is_whole = self.is_whole and bool(self.range)
        return LikertRule(minimum=low, maximum=high, is_whole=is_whole, logprobs=self.logprobs)

    @cached_property
    def _meanings(self) -> dict[str, str]:
        return {_bare(word): meaning for word, meaning in self.words.items()}

    @cached_property
    def _labels(self) -> dict[str, str]:
        return {label.casefold(): label for label in self.labels}

    @property
    def asked(self) -> str:
        """What a judge is told to write there."""
        words = self.words or self.labels
        one_of = f"one of {', '.join(json.dumps(word, ensure_ascii=False) for word in words)}" if words else ""
        said = one_of or (self.scale.number if self.range else _ASKED.get(self.kind, ""))
        said = f"A is shown first, B second, >> is much better: {said}" if self.words == _GRADED else said
        return f"{self.description.strip().rstrip('.:')}: {said}" if self.description.strip() else said

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its value."""
        of_kind: dict[str, dict[str, Any]] = {
            "score": {"type": "integer" if self.scale.is_whole else "number"},
            "list": {"type": "array", "items": {"type": "string"}},
        }
        choices = [*self.words] or [*self.labels]
        found = of_kind.get(self.kind, {"type": "string"})
        return {**found, **({"enum": choices} if choices else {}), "description": self.asked}

    def check(self, where: str) -> None:
        """Raise StudyError for a setting of another kind, or a place that cannot be read."""
        if not _NAME.fullmatch(self.name):
            raise StudyError(f"{where}.name is {self.name!r}, which does not have the form {_NAME.pattern}")
        usual = Field(name=self.name, kind=self.kind)
        for name, kinds in _OF_KIND.items():
            if self.kind not in kinds and getattr(self, name) != getattr(usual, name):
                raise StudyError(f"{where}.{name} has no meaning for the kind {self.kind}")
        if sum(map(bool, (self.pointer, self.tag, self.regex))) > 1:
            raise StudyError(f"{where} stands at more than one place", hint="give one of pointer, tag and regex")
        if self.range:
            if len(self.range) != 2:
                raise StudyError(f"{where}.range has {len(self.range)} entries, not the least and the largest score")
            self.scale.check(f"{where}.range")
        if self.logprobs:
            self.scale.check(where)
        if len({label.strip().casefold() for label in self.labels} - {""}) < len(self.labels):
            raise StudyError(f"{where}.labels has one that is blank, or twice (case does not count)")
        self._check_place(where)

    def _check_place(self, where: str) -> None:
        if self.tag and not _TAG.fullmatch(self.tag):
            raise StudyError(f"{where}.tag is {self.tag!r}, not the name of a tag such as CLARITY")
        if self.regex:
            self.pattern.check(f"{where}.regex")
            if VALUE not in self.pattern.groups:
                raise StudyError(
                    f"{where}.regex has no group {VALUE!r}", hint=f"for example Clarity: (?P<{VALUE}>[1-5])"
                )
        if self.explanation and not self.place:
            raise StudyError(f"{where}.explanation is a JSON pointer, and the field stands outside JSON")
        for name, pointer in (("pointer", self.place), ("explanation", self.explanation)):
            if pointer:
                prompts.check_pointer(pointer, f"{where}.{name}")
                structured.check_keys(f"{where}.{name}", *set(structured.steps(pointer)))
            if any(step.isdigit() for step in structured.steps(pointer)):
                raise StudyError(f"{where}.{name} leads into a list", hint="give each field a key of its own")

    def read_with_care(self, response: Response, _reader: int = base.READER) -> Judgment:
        """Return what a response says outside the thoughts that a model wrote into it."""
        return self.read(response._replace(text=base.said(response.text or "")))

    def _found(self, text: str) -> Judgment | None:
        readings = [self._reading(found[VALUE], found.get(_WHY)) for found in self._places(text)]
        said = {one.explanation for one in readings if self.kind in _TEXTS and one.outcome is Outcome.DECIDED}
        return _AMBIGUOUS if len(said) > 1 else base.agreed(readings)

    def _left_of_cut(self, text: str) -> str:
        return base.whole_lines(text) if self.regex else text

    def _places(self, text: str) -> Sequence[Mapping[str, object]]:
        if not self.place:
            return [found for found in self.pattern.matches(text) if VALUE in found]

        def wanted(one: structured.Object) -> list[structured.Object]:
            value = structured.pointed(one, self.place)
            reason = structured.pointed(one, self.explanation) if self.explanation else None
            return [] if value is None else [{VALUE: value, _WHY: reason}]

        return structured.objects(text, wanted)

    def _reading(self, value: object, why: object) -> Judgment:
        if value is structured.CONFLICT:
            return _AMBIGUOUS
        match self.kind:
            case "score":
                found = _decided(score=self.scale.rating(value))
            case "label":
                found = _decided(label=prompts.label_of(value, self._labels))
            case "text":
                found = _decided(explanation=base.explanation(value))
            case "list":
                found = _listed(value)
            case _:
                found = self._verdict(value)
        has_reason = self.explanation and found.outcome is not Outcome.UNPARSED
        return found._replace(explanation=base.explanation(why)) if has_reason else found

    def _verdict(self, value: object) -> Judgment:
        meaning, _, strength = self._meanings.get(_bare(prompts.word_of(value)), "").partition(" ")
        outcome = OUTCOMES.get(meaning, Outcome.UNPARSED)
        found = base.TIE_KINDS.get(meaning) or Judgment(meaning, outcome)
        if found.outcome not in prompts.RATED:
            return Judgment(None, outcome)
        return found._replace(score=float(strength) if strength else None)


def _decided(**said: Any) -> Judgment:
    return _UNPARSED if None in said.values() else Judgment(None, Outcome.DECIDED, **said)


def _bare(word: str) -> str:
    """Return a word as a judge may write it in other form: `**A >> B**`, `[[A&gt;&gt;B]]`."""
    return "".join(base.plain(word).split()).casefold().strip(_MARKUP)


def _listed(value: object) -> Judgment:
    if isinstance(value, str):
        value = [] if value.strip() == "[]" else list(inputs.entries(value, inputs.InputsRule())) or None
    if not isinstance(value, list) or not all(isinstance(entry, str | float) for entry in value):
        return _UNPARSED
    texts = [entry if isinstance(entry, str) else f"{entry:.15g}" for entry in value]
    said = base.storable(json.dumps([text for text in texts if text.strip()], ensure_ascii=False))
    return Judgment(None, Outcome.DECIDED, score=float(sum(bool(text.strip()) for text in texts)), explanation=said)


@dataclass(frozen=True)
class FieldsRule(Rule):
    """Many fields in one answer; `parts` reads each, and this rule itself reads none."""

    READER: ClassVar[str] = "fields"
    KINDS: ClassVar[Sequence[str]]
    WORDS: ClassVar[Mapping[str, Mapping[str, str]]]
    """By kind of verdict: the words that are read where a field names none."""
    TIES: ClassVar[Sequence[str]] = ()

    fields: tuple[Field, ...] = ()

    @cached_property
    def parts(self) -> Mapping[str, Field]:
        """What reads each field, by its name."""
        words = (one.words or self.WORDS.get(one.kind, {}) for one in self.fields)
        return {one.name: replace(one, words=said) for one, said in zip(self.fields, words, strict=True)}

    def values(self) -> dict[str, str]:
        """Return how all fields are asked for that stand in JSON or tags; a regex is told by the template itself."""
        tree = _tree(self.parts.values())
        lines = [_form(tree)] if tree else []
        lines += [f"<{one.tag}>{one.asked}</{one.tag}>" for one in self.parts.values() if one.tag]
        return {"ANSWER_FORMAT": "\n".join(lines)}

    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of an answer, in the order of the fields; none where one stands outside its JSON."""
        return _schema(_tree(self.parts.values())) if all(one.place for one in self.fields) else None

    def check(self, where: str) -> None:
        """Raise StudyError where fields could not be told apart, or words mean what the task's verdicts never do."""
        if not self.fields:
            raise StudyError(f"{where}.fields is empty", hint="each is a table [[answer.fields]]")
        names = [one.name.casefold() for one in self.fields]
        if len(set(names)) < len(names):
            raise StudyError(f"{where}.fields has one name twice (case does not count)", hint="a name is a rubric")
        places: list[tuple[str, ...]] = []
        for number, one in enumerate(self.parts.values(), 1):
            at = f"{where}.fields[{number}]"
            self._check_kind(one, at)
            one.check(at)
            places.append(structured.steps(one.place) if one.place else ("", one.tag.casefold(), one.regex))
        places += {structured.steps(one.explanation) for one in self.fields if one.explanation}
        for before, place in itertools.combinations(places, 2):
            if place[: len(before)] == before[: len(place)]:
                shown = "/".join(place).strip("/")
                raise StudyError(f"{where}.fields has two at the place of {shown}", hint="each has a place of its own")

    def _check_kind(self, one: Field, where: str) -> None:
        if one.kind not in self.KINDS:
            other = 'one item alone is told by `task = "prompts"`, two are compared by `task = "pairwise"`'
            raise StudyError(f"{where}.kind is {one.kind!r}, not one of {', '.join(self.KINDS)}", hint=other)
        known = (*dict.fromkeys(self.WORDS["verdict"].values()), *self.TIES, "not_applicable", "unsure")
        prompts.check_words(where, {word: _STRENGTH.sub("", said) for word, said in one.words.items()}, known, _bare)

    def _fields(self) -> dict[str, Any]:
        return {"fields": [one._fields() for one in self.fields]}


@dataclass(frozen=True)
class PairFields(FieldsRule):
    """Many fields of an answer about two items."""

    TASK: ClassVar[str] = pairwise.TASK
    ABOUT: ClassVar[About] = About.PAIR
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(("SAMPLE_1", "SAMPLE_2"), ("ANSWER_FORMAT",))
    KINDS: ClassVar[Sequence[str]] = _VERDICTS
    WORDS: ClassVar[Mapping[str, Mapping[str, str]]] = {"verdict": _PAIR, "graded": _GRADED}
    TIES: ClassVar[Sequence[str]] = tuple(base.TIE_KINDS)


@dataclass(frozen=True)
class CandidateFields(FieldsRule):
    """Many fields of an answer about two candidates' outputs."""

    TASK: ClassVar[str] = ranking.TASK
    ABOUT: ClassVar[About] = About.CANDIDATES
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(("INPUT", "OUTPUT_A", "OUTPUT_B"), ("ANSWER_FORMAT",))
    KINDS: ClassVar[Sequence[str]] = _VERDICTS
    WORDS: ClassVar[Mapping[str, Mapping[str, str]]] = {"verdict": _CANDIDATES, "graded": _GRADED}
    TIES: ClassVar[Sequence[str]] = tuple(base.TIE_KINDS)


@dataclass(frozen=True)
class ItemFields(FieldsRule):
    """Many fields of an answer about one item."""

    TASK: ClassVar[str] = prompts.TASK
    PLACEHOLDERS: ClassVar[Placeholders] = Placeholders(("INPUT",), ("OUTPUT", "ANSWER_FORMAT"))
    KINDS: ClassVar[Sequence[str]] = tuple(kind for kind in KINDS if kind != "graded")
    WORDS: ClassVar[Mapping[str, Mapping[str, str]]] = {"verdict": _ITEM}


_Tree = dict[str, Any]


def _tree(found: Iterable[Field]) -> _Tree:
    """Return the JSON of an answer with the fields at their places."""
    whole: _Tree = {}
    for leaf in (leaf for one in found for leaf in (one.reason, one) if leaf is not None and leaf.place):
        *above, last = structured.steps(leaf.place, is_written=True)
        inside = whole
        for step in above:
            inside = inside.setdefault(step, {})
        inside.setdefault(last, leaf)
    return whole


def _form(tree: _Tree) -> str:
    parts = (f'"{key}": {one.asked if isinstance(one, Field) else _form(one)}' for key, one in tree.items())
    return "{" + ", ".join(parts) + "}"


def _schema(tree: _Tree) -> dict[str, Any]:
    parts = {key: one.schema if isinstance(one, Field) else _schema(one) for key, one in tree.items()}
    return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}
