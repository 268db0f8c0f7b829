"""From an ask to its prompt and body: templates are split once, texts encoded once, bodies put together from both.

A body is canonical JSON. Where a provider puts what each turn says into it once and unchanged, what stands around the
turns is found once per model configuration and their JSON is put between; where that cannot be shown, each body is
built by the provider's module.

Estimated input tokens: one per four bytes of the prompt's UTF-8, rounded up, and eight for the frame of a chat
message. English prose comes out a little high, other scripts vary; it is a rough figure.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from batchpond.errors import StudyError
from batchpond.model import Media, Prompt, Role, Turn
from batchpond.plan.asks import Ask, Asks
from batchpond.plan.cells import ModelConfig, canonical
from batchpond.plan.rows import NOTHING, SourceRow, json_each, size_of
from batchpond.study.spec import StageSpec
from batchpond.tasks.templates import (
    ANSWERS,
    MEDIA,
    NOT_KNOWN,
    OF_STATEMENT,
    Rubric,
    Template,
    column_of,
    part_of,
    pattern_of,
)
from batchpond.text import BYTES

BYTES_PER_TOKEN: Final = 4
FRAME_TOKENS: Final = 8
_SENTINELS: Final = ("batchpond-sentinel-7d1", "another \u00e9 prompt \u2028 of batchpond, longer than the first")
# Longer than the context that is made for short prompts: Ollama's bodies say how large it is to be.
_LONG: Final = "." * 300_000
_MORE_MAX: Final = 200
_SHOWN_MAX: Final = 10
_OWN_TEXT: Final = ""
_FORMS_MAX: Final = 10_000

_OF_ROW: Final = {
    "ITEM_ID": "item_id", "TEXT": "text", "OUTPUT": "text", "INPUT": "input_text", "QUESTION": "input_text",
    "CANDIDATE": "candidate",
}  # fmt: skip
"""Which of a row's fields a placeholder shows; a row without an input is one itself."""
OF_INPUT: Final = frozenset({"INPUT", "QUESTION"})
_FIRST: Final = frozenset({"SAMPLE_1", "OUTPUT_A"})
OF_PAIR: Final = _FIRST | {"SAMPLE_2", "OUTPUT_B"}


class NoAnswer(StudyError):
    """A prompt would show what an earlier stage has not answered."""


def rubric_values(rubric: Rubric) -> dict[str, str]:
    """Return what a rubric fills in, by placeholder."""
    return {
        "TRAIT_NAME": rubric.name,
        "TRAIT_DESCRIPTION": rubric.description,
        "STATEMENT": rubric.description,
        "STATEMENT_ID": rubric.rubric_id,
        "STATEMENT_NAME": rubric.name,
        **dict(rubric.more),
    }


def value_of(
    name: str, stage: StageSpec, template: Template, ask: Ask, of_rubric: Mapping[str, str], of_rule: Mapping[str, str]
) -> str:
    """Return what a placeholder stands for in an ask: nothing for an optional one that has no value.

    Raises StudyError for any other.
    """
    if "." in name:
        return _value_of_column(name, stage, template, ask)
    found = ask.values.get(name)
    if ask.second is not None and name in OF_PAIR and name not in ask.values:
        found = ask.first.text if name in _FIRST else ask.second.text
    if found is None:
        found = of_rubric.get(name)
    # An answer is not its own question, where the study says that each row has one.
    is_unasked = name in OF_INPUT and ask.first.input_text is None and "input" in stage.rows.columns
    if found is None and not is_unasked:
        found = _value_of_row(name, ask.first, of_rule)
    if found is None and (is_unasked or name not in stage.rule.placeholders.optional):
        raise StudyError(
            f"stage {stage.name}: template {template.template_id} asks for {{{name}}}, which"
            f" {ask.first.item_id!r} does not have",
            hint="name the column that holds it under the items, or leave the placeholder out",
        )
    return found or ""


def _value_of_column(name: str, stage: StageSpec, template: Template, ask: Ask) -> str:
    """Return what an ask has in a column, or what a conditional part comes to; raises StudyError where it has none."""
    if part_of(name) is not None:
        found = _said(f"{{{name}}}", stage, template, ask)
        return "".join(part for part in found if isinstance(part, str))
    value, row = in_column(name, ask, rubric_values(ask.rubric)), row_of(name, ask)
    if BYTES in value:
        source = stage.rows.items.location if stage.rows.items else f"stage {stage.name}"
        why = f"{source}: {row.item_id!r} has bytes in {column_of(name)!r}, which template {template.template_id} shows"
        raise StudyError(f"{why} as text", hint=f"{{{name}{MEDIA}}} shows a picture or document")
    if value:
        return value
    if name in stage.answers:
        raise NoAnswer(f"stage {stage.name}: nothing is known of {{{name}}} about {ask.first.item_id!r}")
    columns = difflib.get_close_matches(column_of(name), row.more, _SHOWN_MAX, 0) or ["none"]
    raise StudyError(
        f"stage {stage.name}: template {template.template_id} asks for {{{name}}}, which {row.item_id!r} does not have",
        hint=f"its columns: {', '.join(columns)}; if only some items have it: {{#{name}}}...{{/{name}}}",
    )


def row_of(name: str, ask: Ask) -> SourceRow:
    """Return whose column a placeholder shows: of a pair, that of its side."""
    is_second = name.partition(".")[0] in OF_PAIR - _FIRST
    return ask.second if is_second and ask.second is not None else ask.first


def in_column(name: str, ask: Ask, of_rubric: Mapping[str, str]) -> str:
    """Return what an ask has in a column: text as it is, anything else as JSON; nothing where it has none."""
    side, column = name.partition(".")[0], column_of(name)
    if side == OF_STATEMENT:
        found = of_rubric.get(column.upper(), of_rubric.get(name, ""))
        return "" if found == NOT_KNOWN else found
    if side == ANSWERS or name in ask.values:
        return ask.values.get(name, "")
    row = row_of(name, ask)
    value = row.more.get(column)
    if name.endswith(MEDIA) and not (isinstance(value, dict) and "media_type" in value):
        return ""
    if value is None and (of_row := "ITEM_ID" if column == "id" else column.upper()) in _OF_ROW:
        return _of_row(of_row, row)
    return value if isinstance(value, str) else "" if value is None else canonical(value).decode()


def _of_row(name: str, row: SourceRow) -> str:
    value: str | None = getattr(row, _OF_ROW[name])
    return value if value is not None else row.text if name in OF_INPUT else ""


def _value_of_row(name: str, row: SourceRow, rule_values: Mapping[str, str]) -> str | None:
    if name in _OF_ROW:
        return _of_row(name, row)
    found = rule_values.get(name)
    for key, value in itertools.islice(row.more.items(), _MORE_MAX):
        if key.upper() == name and isinstance(value, str | int | float):
            found = str(value)
    return found


def prompt_of(stage: StageSpec, template: Template, ask: Ask) -> Prompt:
    """Return what is asked: the filled template, or the ask's own text after the conversation so far.

    Such a text is the last turn of its template: what stands before that comes first.
    """
    if ask.text is not None:
        return said([*template.turns[:-1], *ask.history, Turn(Role.USER, ask.text)])
    return said([_turn(turn.role, _said(turn.text, stage, template, ask)) for turn in template.turns])


def _turn(role: Role, found: Iterable[str | Media]) -> Turn:
    parts: list[str | Media] = [""]
    for part in found:
        if isinstance(part, str) and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    text = "".join(part for part in parts if isinstance(part, str))
    return Turn(role, text, tuple(filter(None, parts)) if len(parts) > 1 else ())


def _said(text: str, stage: StageSpec, template: Template, ask: Ask) -> Iterator[str | Media]:
    """Yield what a text with placeholders says and shows, in order."""
    of_rubric, of_rule = rubric_values(ask.rubric), stage.rule.values()
    first, *pieces = pattern_of(stage.rule.placeholders, template.columns).split(text)
    yield first
    for name, after in zip(pieces[::2], pieces[1::2], strict=True):
        if (part := part_of(name)) is not None:
            mark, column, inner = part
            if bool(in_column(column, ask, of_rubric)) is (mark == "#"):
                yield from _said(inner, stage, template, ask)
        elif name.endswith(MEDIA) and in_column(name, ask, of_rubric):
            yield Media(**row_of(name, ask).more[column_of(name)])
        else:
            yield value_of(name, stage, template, ask, of_rubric, of_rule)
        yield after


def check_prompts(stage: StageSpec, ask: Ask) -> None:
    """Raise StudyError where a template of a stage shows what an ask does not have, NoAnswer if that is an answer."""
    for template in stage.templates:
        prompt_of(stage, template, ask)


def said(turns: Sequence[Turn]) -> Prompt:
    """Return turns as a prompt: a text where the user alone speaks, and shows nothing."""
    return turns[0].text if len(turns) == 1 and not turns[0].parts else tuple(turns)


def size_bytes(prompt: Prompt, config: ModelConfig | None = None) -> int:
    """Return the size of all texts of a prompt, in UTF-8; with what a model is shown, as if its tokens were text."""
    if isinstance(prompt, str):
        return size_of(prompt)
    shown = (part for turn in prompt for part in turn.parts if isinstance(part, Media))
    n_tokens = sum(config.module.sight.tokens(config.spec.model, one)[0] for one in shown if config)
    return sum(size_of(turn.text) for turn in prompt) + BYTES_PER_TOKEN * n_tokens


_Sizes = TypeVar("_Sizes", int, "NDArray[np.int64]")


def tokens_of(n_bytes: _Sizes) -> _Sizes:
    """Return the estimated tokens of a prompt, or of many."""
    return -(-n_bytes // BYTES_PER_TOKEN) + FRAME_TOKENS


class Encoded(NamedTuple):
    """A text as it stands inside a JSON string, and its size in UTF-8."""

    json: bytes
    n_bytes: int


def encoded(text: str) -> Encoded:
    """Return a text as JSON has it, without the quotation marks."""
    return Encoded(canonical(text)[1:-1], size_of(text))


@dataclass(frozen=True, slots=True)
class Form:
    """A template's turn with all that depends on no row filled in: texts, and between them the names of what does."""

    texts: tuple[Encoded, ...]
    names: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """The size of its own texts, in UTF-8."""
        return sum(text.n_bytes for text in self.texts)


def forms_of(
    stage: StageSpec, template: Template, values: Mapping[str, str], of_asks: Collection[str]
) -> tuple[Form, ...]:
    """Return a template's turns with `values` filled in; the names of other placeholders stay, and those `of_asks`."""
    pattern = pattern_of(stage.rule.placeholders, template.columns)
    return tuple(_form_of(pattern.split(turn.text), values, of_asks) for turn in template.turns)


def _form_of(pieces: Sequence[str], values: Mapping[str, str], of_asks: Collection[str]) -> Form:
    texts, names = [pieces[0]], []
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if name in values and name not in of_asks:
            texts[-1] += values[name] + text
        else:
            names.append(name)
            texts.append(text)
    return Form(tuple(map(encoded, texts)), tuple(names))


class Said(NamedTuple):
    """What like asks say in each turn: the turn's texts, what stands between them by ask, and all sizes in UTF-8."""

    forms: tuple[Form, ...]
    between: list[list[list[bytes]]]
    n_bytes: NDArray[np.int64]


Column = tuple[list[bytes], NDArray[np.int64]]
"""Texts as JSON has them, and their sizes in UTF-8."""


class Prompts:
    """The prompts of a stage's asks as JSON: of many asks that are alike at once, which share what they show."""

    def __init__(self, stage: StageSpec) -> None:
        self._stage = stage
        self._rule_values = stage.rule.values()
        self._usual = dict.fromkeys(stage.rule.placeholders.optional, "") | self._rule_values
        self._forms: dict[tuple[str, Rubric, bool, tuple[str, ...], frozenset[str]], tuple[Form, ...]] = {}

    def of(self, template: Template, asks: Asks, known: dict[str, Column]) -> Said | None:
        """Return the prompts of asks of one kind, None where they show pictures or go on with a conversation.

        `known` is theirs to keep. One kind: by one rubric, about one row or about two, with the same placeholders that
        they fill by themselves. Raises StudyError for a lacking value.
        """
        if asks.of_first("history") or template.media:
            return None
        shown = asks.rows.shown
        if "more" not in shown:  # all kinds of a block share its rows
            columns = {name for more in asks.rows.column("more") if more for name in itertools.islice(more, _MORE_MAX)}
            shown["more"] = {name.upper() for name in columns}
        forms = self._turns(template, asks, frozenset(self._usual.keys() & shown["more"]))
        between: list[list[list[bytes]]] = []
        n_bytes = np.full(len(asks), sum(form.n_bytes for form in forms), np.int64)
        for form in forms:
            between.append([])
            for name in form.names:
                json, sizes = self._column(name, template, asks, known)
                between[-1].append(json)
                n_bytes += sizes
        return Said(forms, between, n_bytes)

    def _turns(self, template: Template, asks: Asks, own: frozenset[str]) -> tuple[Form, ...]:
        """Return a template's turns as asks of one kind say them, which have their `own` in place of what is usual."""
        if asks.of_first("text") is not None:
            before = (Form((encoded(turn.text),), ()) for turn in template.turns[:-1])
            return (*before, Form((encoded(""), encoded("")), (_OWN_TEXT,)))
        rubric, is_pair, values = asks.rubrics[0], asks.second is not None, asks.of_first("values", NOTHING).keys()
        key = (template.template_id, rubric, is_pair, tuple(values), own)
        found = self._forms.get(key)
        if found is None:
            usual = {name: self._usual[name] for name in self._usual.keys() - own - _OF_ROW.keys()}
            of_asks = values | OF_PAIR if is_pair else values
            found = forms_of(self._stage, template, usual | rubric_values(rubric), of_asks)
            if len(self._forms) >= _FORMS_MAX:
                self._forms.clear()
            self._forms[key] = found
        return found

    def _column(self, name: str, template: Template, asks: Asks, known: dict[str, Column]) -> Column:
        """Return what a placeholder stands for in each ask, as JSON and as sizes."""
        found = known.get(name)
        if found is None:
            found = self._of_rows(name, asks) or columns_of(self._texts(name, template, asks))
            if "." not in name:  # what stands in a conditional part depends on its template
                known[name] = found
        return found

    def _of_rows(self, name: str, asks: Asks) -> Column | None:
        """Return what rows say that stands there as it is, made once for all asks about them."""
        is_of_pair = asks.second is not None and name in OF_PAIR
        field = "text" if is_of_pair else _OF_ROW.get(name)
        if field is None or name in asks.of_first("values", NOTHING):
            return None
        texts, shown = asks.rows.column(field), asks.rows.shown
        if field not in shown:
            if None in texts:
                if name in OF_INPUT and "input" in self._stage.rows.columns:
                    return None
                instead = asks.rows.column("text") if name in OF_INPUT else itertools.repeat("")
                texts = [other if text is None else text for text, other in zip(texts, instead, strict=False)]
            shown[field] = columns_of(texts)
        json, sizes = shown[field]
        places = asks.second if is_of_pair and name not in _FIRST else asks.first
        if places is None or (len(places) == len(json) and bool((np.diff(places) == 1).all())):
            return json, sizes
        return [json[place] for place in places.tolist()], sizes[places]

    def _texts(self, name: str, template: Template, asks: Asks) -> list[str]:
        if name == _OWN_TEXT:
            return [text or "" for text in asks.others["text"]]
        # What a rubric says stands in the form already.
        return [value_of(name, self._stage, template, ask, {}, self._rule_values) for ask in asks]


def columns_of(texts: Sequence[str]) -> Column:
    """Return texts as JSON has them and their sizes, what many share encoded once."""
    shared = {id(text): text for text in texts}
    said = [*shared.values()]
    json, sizes = json_each(said), np.array([*map(size_of, said)], np.int64)
    if len(said) == len(texts):
        return json, sizes
    numbers = {key: number for number, key in enumerate(shared)}
    places = [numbers[id(text)] for text in texts]
    return [json[place] for place in places], sizes[places]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands in every body around what the turns say: `pieces`, and between them the turns in this `order`."""

    pieces: tuple[bytes, ...]
    order: tuple[int, ...]

    def around(self, forms: Sequence[Form]) -> tuple[bytes, ...]:
        """Return what stands around the values of these turns in every body: one piece more than there are names."""
        found = [self.pieces[0]]
        for place, piece in zip(self.order, self.pieces[1:], strict=True):
            first, *others = (text.json for text in forms[place].texts)
            found[-1] += first
            found += others
            found[-1] += piece
        return tuple(found)


def filled(pieces: tuple[bytes, ...], columns: Sequence[Sequence[bytes]], n: int) -> list[bytes]:
    """Return `n` bodies: the pieces, and between them the values of each column."""
    if not columns:
        return list(pieces) * n
    if len(columns) == 1:
        return [value.join(pieces) for value in columns[0]]
    parts = [piece for both in zip(pieces, pieces, strict=True) for piece in both][:-1]
    found = []
    for values in zip(*columns, strict=True):
        parts[1::2] = values
        found.append(b"".join(parts))
    return found


class Bodies:
    """The bodies of one model configuration, whatever is asked."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._frames: dict[tuple[Role, ...], Frame | None] = {}
        self._proven: dict[str, Frame | None] = {}

    def built(self, prompt: Prompt) -> bytes:
        """Return a body made by the provider's module itself."""
        return canonical(self._config.module.build_body(prompt, self._config.settings).body)

    def frame(self, template: Template) -> Frame | None:
        """What stands around a template's turns in every body, or None where that varies."""
        roles = tuple(turn.role for turn in template.turns)
        if roles not in self._frames:
            found = {self._cut(roles, *texts) for texts in zip(_SENTINELS, ("", _LONG), strict=True)}
            self._frames[roles] = found.pop() if len(found) == 1 else None
        return self._frames[roles]

    def _cut(self, roles: Sequence[Role], sentinel: str, last: str) -> Frame | None:
        texts = [f"{sentinel} {number};" for number in range(len(roles))]
        texts[-1] += last
        marks = [encoded(text).json for text in texts]
        body = self.built(said([Turn(role, text) for role, text in zip(roles, texts, strict=True)]))
        before = [parts[0] for parts in (body.split(mark, 2) for mark in marks) if len(parts) == 2]
        if len(before) < len(marks):
            return None
        order = sorted(range(len(marks)), key=lambda number: len(before[number]))
        starts = [len(before[number]) for number in order]
        ends = [start + len(marks[number]) for start, number in zip(starts, order, strict=True)]
        pieces = tuple(body[end:start] for end, start in zip([0, *ends], [*starts, len(body)], strict=True))
        return Frame(pieces, tuple(order))

    def of(self, template: Template, said: Said | None, n: int, prompt: Callable[[int], Prompt]) -> list[bytes]:
        """Return the bodies of `n` asks: spliced, where that gives the module's own bytes for a template's first."""
        name = template.template_id
        frame = None if said is None else self._proven.get(name, self.frame(template))
        if frame is not None and said is not None:
            found = filled(frame.around(said.forms), [one for at in frame.order for one in said.between[at]], n)
            if name in self._proven or found[0] == self.built(prompt(0)):
                self._proven[name] = frame
                return found
        if said is not None:
            self._proven[name] = None
        return [self.built(prompt(number)) for number in range(n)]
