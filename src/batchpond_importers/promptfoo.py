"""Reading what promptfoo writes with `--output FILE.json`: what providers answered, and what each assertion made of it.

Shapes: promptfoo 0.123 `types/index.ts` (EvaluateSummary version 3), and `tests/golden/promptfoo`, which it wrote. An
assertion that asks a model is a judge, and so is one that is a rule. Where a judge's answer could not be read promptfoo
counts a failed test, with a reason that says so; here that is no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from batchpond import fields
from batchpond.interop.foreign import Defaults, Doubt, Findings, Record, SourceFile, shortened
from batchpond.model import Outcome
from batchpond.tasks import base
from batchpond.tasks.base import Judgment
from batchpond_importers.reading import NO, YES, Scored, json_documents, model_of, objects, unit_of

_VERSION: Final = 3
_LABEL_MAX_CHARS: Final = 60
# Assertions that ask a model, by promptfoo's page "model-graded metrics".
_GRADED: Final = re.compile(
    r"(?:not-)?(?:llm-rubric|search-rubric|agent-rubric|factuality|model-graded-.*|g-eval|answer-relevance|context-.*"
    r"|conversation-relevance|trajectory:.*|select-best)"
)
# The reasons of `matchers.ts` for an answer of the grader's that it could not use.
_UNREAD: Final = re.compile(
    r"could not extract json|malformed response|^no output$|^grader failed|^grading failed", re.I
)


def read(files: Sequence[SourceFile], defaults: Defaults, findings: Findings) -> Iterator[Record]:
    """Yield what JSON results of promptfoo hold."""
    for file in files:
        if file.path.suffix.lower() != ".json":
            findings.skip(file.shown, "not .json")
            continue
        for found in json_documents(file, findings):
            summary = fields.mapping(fields.mapping(found).get("results"))
            if summary.get("version") != _VERSION:
                findings.skip(file.shown, f"no results of promptfoo, version {_VERSION}, by its keys")
                continue
            config = fields.mapping(found.get("config"))
            suite = fields.identifier(config.get("description")) or file.path.stem
            said = Defaults(defaults.study or f"promptfoo-{file.path.stem}")
            is_one_prompt = len(fields.sequence(config.get("prompts"), 1_000)) < 2
            for place, row in objects(summary.get("results"), f"{file.shown}#/results/results", findings):
                scored = _scored(place, row, suite, said, is_one_prompt=is_one_prompt)
                yield from _row(scored, row, findings)


def _scored(place: str, row: Mapping[str, Any], suite: str, said: Defaults, *, is_one_prompt: bool) -> Scored:
    """Return an answer: of a provider and, where there are several prompts, to one of them."""
    provider, prompt = fields.mapping(row.get("provider")), fields.mapping(row.get("prompt"))
    candidate = fields.identifier(provider.get("label")) or fields.identifier(provider.get("id")) or "unknown"
    label = fields.text(prompt.get("label")) or ""
    if not is_one_prompt:
        number = fields.count(row.get("promptIdx"))
        candidate += f" / {label if 0 < len(label) <= _LABEL_MAX_CHARS else f'prompt {number}'}"
    asked = fields.mapping(row.get("vars"))
    question = "\n".join(f"{name}: {value}" for name, value in asked.items()) or (fields.text(prompt.get("raw")) or "")
    unit = unit_of(suite, f"test {fields.count(row.get('testIdx'))}", question)
    output = fields.mapping(row.get("response")).get("output")
    text = output if isinstance(output, str) else orjson.dumps(output).decode() if output is not None else ""
    more = {"prompt": fields.text(prompt.get("raw")), "vars": asked}
    return Scored(place, unit, question, candidate, text, said, more)


def _row(scored: Scored, row: Mapping[str, Any], findings: Findings) -> Iterator[Record]:
    yield from scored.texts(findings)
    grading = fields.mapping(row.get("gradingResult"))
    if not (grading and scored.is_answer):
        return
    options = fields.mapping(fields.mapping(row.get("testCase")).get("options"))
    for place, part in objects(grading.get("componentResults") or [], f"{scored.place}/gradingResult", findings):
        assertion = fields.mapping(part.get("assertion"))
        kind = fields.text(assertion.get("type"))
        if kind is None:
            findings.problem(place, "has no assertion with a type")
            continue
        judge = _judge(kind, assertion.get("provider") or options.get("provider"))
        said = Defaults(template_id=kind, rubric_id=_criterion(kind, assertion)).or_else(judge)
        yield scored.judged(place, said, _reading(place, part, findings), part.get("reason"))


def _criterion(kind: str, assertion: Mapping[str, Any]) -> str:
    """Return the name of what was asked: the metric that the author named, or the assertion in words."""
    value = fields.text(assertion.get("value"))
    return fields.text(assertion.get("metric")) or (f"{kind}: {value[:_LABEL_MAX_CHARS]}" if value else kind)


def _judge(kind: str, provider: object) -> Defaults:
    """Return who judged: the model that an assertion asks, where the file names it, or the assertion itself."""
    if not _GRADED.fullmatch(kind):
        return Defaults(provider="promptfoo", request_model=kind)
    named = fields.identifier(provider) or fields.identifier(fields.mapping(provider).get("id"))
    if named is None:
        return Defaults(provider="promptfoo", request_model="default grader")
    is_file = "://" in named
    return Defaults(provider="promptfoo", request_model=named) if is_file else model_of(named, ":")


def _reading(place: str, part: Mapping[str, Any], findings: Findings) -> Judgment:
    reason = fields.text(part.get("reason")) or ""
    if not isinstance(part.get("pass"), bool):
        return findings.unbelieved(Doubt.UNSCORED, place, f"has pass {shortened(part.get('pass'))}")
    if part["pass"] is False and _UNREAD.search(reason.strip()):
        return findings.unbelieved(Doubt.ERROR_AS_VERDICT, place, f"failed for {shortened(reason)}")
    return Judgment(YES if part["pass"] else NO, Outcome.DECIDED, score=base.number(part.get("score")))
