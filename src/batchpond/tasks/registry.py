"""The tasks by name: their answer rules, their templates, and which parser reads the answers of which study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchpond.errors import LakeError, StudyError
from batchpond.tasks import compliance, generation, inputs, likert, pairwise, pressure, prompts, ranking, templates
from batchpond.tasks.base import Rule
from batchpond.tasks.templates import Template


@dataclass(frozen=True, slots=True)
class Task:
    """A task by name; the first of its readers, by name, is the one that a study has unless it says otherwise."""

    name: str
    readers: Mapping[str, type[Rule]]

    @property
    def templates(self) -> dict[str, Template]:
        """The templates that batchpond brings for it, by id."""
        return templates.builtin(self.name)

    def rule_of(self, spec: Mapping[str, Any]) -> Rule:
        """Return the answer rule of an entry of `studies.parsers`; raises LakeError when it is damaged."""
        reader = spec.get("reader", "")
        if not isinstance(reader, str) or reader not in self.readers:
            raise LakeError(f"the lake holds a study of the task {self.name!r} with the reader {reader!r}", hint=_NEWER)
        return self.readers[reader].from_spec(spec)


_NEWER: Final = "install a newer batchpond; nothing is lost, the answers stay in `raw`"
_READERS: Final[Mapping[str, tuple[type[Rule], ...]]] = {
    pairwise.TASK: (pairwise.PairwiseRule,),
    generation.TASK: (generation.GenerationRule,),
    ranking.TASK: (ranking.RankingRule,),
    compliance.TASK: (compliance.ComplianceRule,),
    likert.TASK: (likert.LikertRule,),
    pressure.TASK: (pressure.PressureRule, pressure.KeywordRule),
    prompts.TASK: (prompts.PromptsRule,),
    inputs.TASK: (inputs.InputsRule,),
}
TASKS: Final[Mapping[str, Task]] = {
    name: Task(name, {reader.READER: reader for reader in readers}) for name, readers in _READERS.items()
}
NAMES: Final = tuple(TASKS)


def task(name: str, where: str = "task") -> Task:
    """Return a task by name; raises StudyError when there is none."""
    if name not in TASKS:
        raise StudyError(f"{where} is {name!r}, not one of {', '.join(NAMES)}")
    return TASKS[name]


def rule_of(spec: Mapping[str, Any]) -> Rule:
    """Return the answer rule of one entry of a study's `parsers`; raises LakeError if unknown or damaged."""
    name = spec.get("task")
    if not isinstance(name, str) or name not in TASKS:
        raise LakeError(f"the lake holds a study of the task {name!r}, which this batchpond cannot read", hint=_NEWER)
    return TASKS[name].rule_of(spec)


def prompt(rule: Rule, template: Template, values: Mapping[str, str]) -> str:
    """Return a template filled in one pass with the rule's values and a request's own.

    Raises KeyError for a required placeholder that has no value; an optional one becomes nothing.
    """
    return rule.placeholders.fill(template.text, {**rule.values(), **values})
