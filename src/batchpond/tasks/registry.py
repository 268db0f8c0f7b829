"""The tasks by name: their answer rules, and which of them reads the answers of which study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from batchpond.errors import LakeError
from batchpond.tasks import answer_fields, compliance, generation, inputs, likert, pairwise, pressure, prompts, ranking
from batchpond.tasks.base import Gives, Rule
from batchpond.tasks.listwise import BestRule, OrderRule

_NEWER: Final = "install a newer batchpond; nothing is lost, the answers stay in `raw`"
_READERS: Final[Mapping[str, tuple[type[Rule], ...]]] = {
    pairwise.TASK: (pairwise.PairwiseRule, answer_fields.PairFields),
    generation.TASK: (generation.GenerationRule,),
    ranking.TASK: (ranking.RankingRule, answer_fields.CandidateFields),
    compliance.TASK: (compliance.ComplianceRule,),
    likert.TASK: (likert.LikertRule,),
    OrderRule.TASK: (OrderRule, BestRule),
    pressure.TASK: (pressure.PressureRule, pressure.KeywordRule),
    prompts.TASK: (prompts.PromptsRule, answer_fields.ItemFields, answer_fields.Field),
    inputs.TASK: (inputs.InputsRule,),
}
TASKS: Final = {name: {reader.READER: reader for reader in readers} for name, readers in _READERS.items()}
"""The readers of each task by name; the first is the one that a study has unless it says otherwise."""
NAMES: Final = tuple(TASKS)
JUDGING: Final = tuple(name for name, readers in _READERS.items() if readers[0].GIVES is Gives.JUDGMENT)
"""The tasks whose answers say something of what they are about; those of others are what later stages are about."""


def rule_of(spec: Mapping[str, Any]) -> Rule:
    """Return the answer rule of one entry of a study's `parsers`; raises LakeError if unknown or damaged."""
    name, reader = spec.get("task"), spec.get("reader", "")
    if not isinstance(name, str) or name not in TASKS:
        raise LakeError(f"the lake holds a study of the task {name!r}, which this batchpond cannot read", hint=_NEWER)
    if not isinstance(reader, str) or reader not in TASKS[name]:
        raise LakeError(f"the lake holds a study of the task {name!r} with the reader {reader!r}", hint=_NEWER)
    return TASKS[name][reader].from_spec(spec)
