"""From an ask to its prompt and body: templates are split once, texts encoded once, bodies put together from both.

A body is canonical JSON. Where a provider puts the prompt into it once and unchanged, what stands before and after
the prompt is found once per model configuration and the prompt's JSON is put between; where that cannot be shown,
each body is built by the provider's module.

Estimated input tokens: one per four bytes of the prompt's UTF-8, rounded up, and eight for the frame of a chat
message. English prose comes out a little high, other scripts vary; it is a rough figure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from batchpond.errors import StudyError
from batchpond.model import Prompt, Role, Turn
from batchpond.plan.asks import Ask, SourceRow
from batchpond.plan.cells import ModelConfig, canonical
from batchpond.study.spec import StageSpec
from batchpond.tasks.templates import Rubric, Template

BYTES_PER_TOKEN: Final = 4
FRAME_TOKENS: Final = 8
_SENTINELS: Final = ("batchpond-sentinel-7d1", "another \u00e9 prompt \u2028 of batchpond, longer than the first")
_MORE_MAX: Final = 200
_CACHE_BYTES_MAX: Final = 8 << 20
_FORMS_MAX: Final = 10_000

_OF_ROW: Final[Mapping[str, Callable[[SourceRow], str]]] = {
    "ITEM_ID": lambda row: row.item_id,
    "TEXT": lambda row: row.text,
    "OUTPUT": lambda row: row.text,
    "INPUT": lambda row: row.text if row.input_text is None else row.input_text,
    "QUESTION": lambda row: row.text if row.input_text is None else row.input_text,
    "CANDIDATE": lambda row: row.candidate or "",
}
_FIRST: Final = frozenset({"SAMPLE_1", "OUTPUT_A"})
OF_PAIR: Final = _FIRST | {"SAMPLE_2", "OUTPUT_B"}


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


def value_of(name: str, ask: Ask, rule_values: Mapping[str, str]) -> str | None:
    """Return what a placeholder stands for in an ask, None where it has nothing by that name."""
    found = _value_of_ask(name, ask)
    if found is None:
        found = rubric_values(ask.rubric).get(name)
    return _value_of_row(name, ask.first, rule_values) if found is None else found


def _value_of_ask(name: str, ask: Ask) -> str | None:
    if ask.second is not None and name in OF_PAIR and name not in ask.values:
        return ask.first.text if name in _FIRST else ask.second.text
    return ask.values.get(name)


def _value_of_row(name: str, row: SourceRow, rule_values: Mapping[str, str]) -> str | None:
    of_row = _OF_ROW.get(name)
    if of_row is not None:
        return of_row(row)
    found = rule_values.get(name)
    for key, value in itertools.islice(row.more.items(), _MORE_MAX):
        if key.upper() == name and isinstance(value, str | int | float):
            found = str(value)
    return found


def prompt_of(stage: StageSpec, template: Template, ask: Ask) -> Prompt:
    """Return what is asked: the filled template or the ask's own text, after the conversation so far."""
    if ask.text is not None:
        return (*ask.history, Turn(Role.USER, ask.text)) if ask.history else ask.text
    placeholders, rule_values = stage.rule.placeholders, stage.rule.values()
    found = {name: value_of(name, ask, rule_values) for name in placeholders.required + placeholders.optional}
    try:
        return placeholders.fill(template.text, {name: value for name, value in found.items() if value is not None})
    except KeyError as error:
        raise _lacks(stage, template, ask, error.args[0]) from None


def _lacks(stage: StageSpec, template: Template, ask: Ask, name: str) -> StudyError:
    return StudyError(
        f"stage {stage.name}: template {template.template_id} asks for {{{name}}}, which"
        f" {ask.first.item_id!r} does not have",
        hint="name the column that holds it under [stages.items], or leave the placeholder out",
    )


def size_bytes(prompt: Prompt) -> int:
    """Return the size of all texts of a prompt, in UTF-8."""
    texts = [prompt] if isinstance(prompt, str) else [turn.text for turn in prompt]
    return sum(map(_n_bytes, texts))


def _n_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def tokens_of(n_bytes: int) -> int:
    """Return the estimated tokens of a prompt."""
    return -(-n_bytes // BYTES_PER_TOKEN) + FRAME_TOKENS


class Encoded(NamedTuple):
    """A text as it stands inside a JSON string, and its size in UTF-8."""

    json: bytes
    n_bytes: int


def encoded(text: str) -> Encoded:
    """Return a text as JSON has it, without the quotation marks."""
    return Encoded(canonical(text)[1:-1], _n_bytes(text))


@dataclass(frozen=True, slots=True)
class Form:
    """A template with all that does not depend on the row filled in: texts, and between them the names of what does."""

    texts: tuple[Encoded, ...]
    names: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """The size of its own texts, in UTF-8."""
        return sum(text.n_bytes for text in self.texts)


def form_of(stage: StageSpec, template: Template, values: Mapping[str, str], of_asks: Collection[str]) -> Form:
    """Return a template with `values` filled in; the names of other placeholders stay, and those `of_asks`."""
    pieces = stage.rule.placeholders.pattern.split(template.text)  # text and name by turns
    texts, names = [pieces[0]], []
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if name in values and name not in of_asks:
            texts[-1] += values[name] + text
        else:
            names.append(name)
            texts.append(text)
    return Form(tuple(map(encoded, texts)), tuple(names))


class Prompts:
    """The prompts of a stage's asks as JSON; asks that are near each other share what they show."""

    def __init__(self, stage: StageSpec) -> None:
        self._stage = stage
        self._rule_values = stage.rule.values()
        self._forms: dict[tuple[str, Rubric, bool, tuple[str, ...]], Form] = {}
        self._encoded: dict[str, Encoded] = {}
        self._n_encoded_bytes = 0

    def of(self, template: Template, ask: Ask) -> Encoded | None:
        """Return the prompt of an ask, None where it is a conversation; raises StudyError for a lacking value."""
        if ask.text is not None:
            return None if ask.history else encoded(ask.text)
        form = self._form(template, ask)
        first, *rest = form.texts
        parts, n_bytes = [first.json], first.n_bytes
        for name, text in zip(form.names, rest, strict=True):
            value = self._value(name, template, ask)
            parts += (value.json, text.json)
            n_bytes += value.n_bytes + text.n_bytes
        return Encoded(b"".join(parts), n_bytes)

    def _form(self, template: Template, ask: Ask) -> Form:
        is_pair = ask.second is not None
        key = (template.template_id, ask.rubric, is_pair, tuple(ask.values))
        found = self._forms.get(key)
        if found is None:
            of_asks = OF_PAIR.union(ask.values) if is_pair else ask.values.keys()
            found = form_of(self._stage, template, rubric_values(ask.rubric), of_asks)
            if len(self._forms) >= _FORMS_MAX:
                self._forms.clear()
            self._forms[key] = found
        return found

    def _value(self, name: str, template: Template, ask: Ask) -> Encoded:
        # What a rubric says stands in the form already.
        text = _value_of_ask(name, ask)
        if text is None:
            text = _value_of_row(name, ask.first, self._rule_values)
        if text is None:
            if name not in self._stage.rule.placeholders.optional:
                raise _lacks(self._stage, template, ask, name)
            text = ""
        found = self._encoded.get(text)
        if found is None:
            found = encoded(text)
            self._keep(text, found)
        return found

    def _keep(self, text: str, found: Encoded) -> None:
        self._n_encoded_bytes += len(found.json)
        if self._n_encoded_bytes > _CACHE_BYTES_MAX:
            self._encoded.clear()
            self._n_encoded_bytes = len(found.json)
        self._encoded[text] = found


class Bodies:
    """The bodies of one model configuration, whatever is asked."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._is_spliced: dict[str, bool] = {}

    def built(self, prompt: Prompt) -> bytes:
        """Return a body made by the provider's module itself."""
        return canonical(self._config.module.build_body(prompt, self._config.settings).body)

    @cached_property
    def frame(self) -> tuple[bytes, bytes] | None:
        """What stands before and after the prompt's JSON in every body, or None where that varies."""
        frames = set()
        for sentinel in _SENTINELS:
            pieces = self.built(sentinel).split(canonical(sentinel)[1:-1])
            if len(pieces) != 2:
                return None
            frames.add((pieces[0], pieces[1]))
        return frames.pop() if len(frames) == 1 else None

    def frame_for(self, name: str, prompt_json: bytes, prompt: Callable[[], Prompt]) -> tuple[bytes, bytes] | None:
        """Return the frame where it gives the module's own bytes for the first prompt of that name, None elsewhere."""
        if name not in self._is_spliced:
            frame = self.frame
            self._is_spliced[name] = frame is not None and prompt_json.join(frame) == self.built(prompt())
        return self.frame if self._is_spliced[name] else None
