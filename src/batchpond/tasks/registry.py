"""Which parser reads the answers of which task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batchpond.errors import LakeError
from batchpond.model import Response
from batchpond.tasks import pairwise
from batchpond.tasks.base import Judgment


def parser(spec: Mapping[str, Any]) -> Callable[[Response], Judgment]:
    """Return the reader of responses for one entry of a study's `parsers`; raises LakeError if unknown."""
    task = spec.get("task")
    if task != pairwise.TASK:
        raise LakeError(
            f"the lake holds a study of the task {task!r}, which this batchpond cannot read",
            hint="install a newer batchpond; nothing is lost, the answers stay in `raw`",
        )
    rule = pairwise.AnswerRule.from_spec(spec)
    return lambda response: pairwise.parse(response, rule)
