"""The tasks by name: their answer rules, and which of them reads the answers of which study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from batchpond.errors import LakeError
from batchpond.tasks import answer_fields, compliance, generation, inputs, likert, pairwise, pressure, prompts, ranking
from batchpond.tasks.base import Rule

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
TASKS: Final = {name: {reader.READER: reader for reader in readers} for name, readers in _READERS.items()}
"""The readers of each task by name; the first is the one that a study has unless it says otherwise."""
NAMES: Final = tuple(TASKS)
MANY: Final = {rule.TASK: rule for rule in (answer_fields.PairFields, answer_fields.ItemFields)}
"""What reads an answer of many fields, by the tasks that can have one."""


def rule_of(spec: Mapping[str, Any]) -> Rule:
    """Return the answer rule of one entry of a study's `parsers`; raises LakeError if unknown or damaged."""
    name, reader = spec.get("task"), spec.get("reader", "")
    if not isinstance(name, str) or name not in TASKS:
        raise LakeError(f"the lake holds a study of the task {name!r}, which this batchpond cannot read", hint=_NEWER)
    many: tuple[type[Rule], ...] = (answer_fields.Field, *([MANY[name]] if name in MANY else []))
    readers = TASKS[name] | {rule.READER: rule for rule in many}
    if not isinstance(reader, str) or reader not in readers:
        raise LakeError(f"the lake holds a study of the task {name!r} with the reader {reader!r}", hint=_NEWER)
    return readers[reader].from_spec(spec)
