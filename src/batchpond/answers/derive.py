"""Responses and judgments from raw lines: dropped and made again at will, never bought again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from batchpond import views
from batchpond.answers import live_lines
from batchpond.errors import StudyError
from batchpond.lake.jsonl import RawFile, part_paths, shard_lines
from batchpond.lake.schemas import JUDGMENTS, RESPONSES, STUDIES, Table
from batchpond.lake.store import StagedTable, Store, read_rows
from batchpond.model import FileRole, Match, Response, ResponseStatus
from batchpond.providers import registry
from batchpond.tasks import registry as tasks
from batchpond.tasks.base import Judgment, Rule
from batchpond.tasks.prompts import PromptsRule

Judge = Callable[[Sequence[Response]], list[Judgment]]

_NUMBERS: Final = frozenset({"score", "confidence"})
_HINT: Final = "one DuckDB expression over an answer's `text`, for example regexp_extract(text, 'Score: (\\d+)', 1)"


def judge_of(spec: Mapping[str, Any]) -> Judge:
    """Return what reads responses by one entry of a study's `parsers`; raises LakeError if it is unknown."""
    rule = tasks.rule_of(spec)
    if isinstance(rule, PromptsRule) and rule.expressions:
        return _by_sql(rule)
    return lambda responses: [rule.read(response) for response in responses]


def _by_sql(rule: PromptsRule) -> Judge:
    def judge(responses: Sequence[Response]) -> list[Judgment]:
        values = views.evaluate(rule.expressions, [response.text or "" for response in responses])
        return [rule.read_values(response, found) for response, found in zip(responses, values, strict=True)]

    return judge


def check(rule: Rule, where: str) -> None:
    """Raise StudyError for SQL in a rule that could read no answer; `where` names the rule's settings."""
    if not isinstance(rule, PromptsRule):
        return
    for name, expression in rule.expressions.items():
        problem = views.why_not(expression, is_number=name in _NUMBERS)
        if problem is not None:
            raise StudyError(f"{where}.fields.{name} {problem}", hint=_HINT)


READER_VERSION = 1
_ROWS_PER_BATCH = 5_000

PriceRow = Callable[[Response], float | None]


@dataclass(frozen=True, slots=True)
class Source:
    """An attempt's accepted files, output first, and what is needed to read them."""

    shard_id: str
    attempt_id: str
    provider: str
    origin: str
    files: tuple[RawFile, ...]


@dataclass(frozen=True, slots=True)
class Lack:
    """What has not been derived of an attempt: any responses, and the judgments of which rules."""

    is_unread: bool
    parser_ids: frozenset[str]

    @property
    def has_any(self) -> bool:
        """Whether anything may have to be derived."""
        return self.is_unread or bool(self.parser_ids)


@dataclass(slots=True)
class Tally:
    """How an attempt's lines relate to the requests it sent."""

    n_matched: int = 0
    n_succeeded: int = 0
    n_duplicate: int = 0
    n_conflict: int = 0
    n_unmatched: int = 0
    n_blank: int = 0


@dataclass(slots=True)
class _Matcher:
    """Joins lines to requests by custom_id alone, each request once."""

    expected: Mapping[str, str]
    seen: dict[str, tuple[bytes, bool]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def match(self, line: bytes, response: Response) -> tuple[Match, str | None]:
        if not line.strip():
            self.tally.n_blank += 1
            return Match.BLANK, None
        request_id = self.expected.get(response.custom_id or "")
        if request_id is None:
            self.tally.n_unmatched += 1
            return Match.UNMATCHED, None
        digest = hashlib.blake2b(line, digest_size=8).digest()
        succeeded = response.status is ResponseStatus.SUCCEEDED
        earlier = self.seen.get(request_id)
        if earlier is not None:
            return self._again(earlier, digest, response), request_id
        self.seen[request_id] = (digest, succeeded)
        self.tally.n_matched += 1
        self.tally.n_succeeded += succeeded
        return Match.MATCHED, request_id

    def _again(self, earlier: tuple[bytes, bool], digest: bytes, response: Response) -> Match:
        not_executed = response.status in {ResponseStatus.EXPIRED, ResponseStatus.CANCELLED}
        if earlier[0] == digest or (earlier[1] and not_executed):
            self.tally.n_duplicate += 1
            return Match.DUPLICATE
        self.tally.n_conflict += 1
        return Match.CONFLICT


def parsers(store: Store) -> dict[str, dict[str, Any]]:
    """Return the answer rules of all planned studies, by parser id."""
    specs: dict[str, dict[str, Any]] = {}
    for path in store.files(STUDIES.name):
        for text in read_rows(path, ["parsers"]).column(0).to_pylist():
            specs.update(json.loads(text))
    return specs


def lacking(store: Store, source: Source, parser_ids: Iterable[str]) -> Lack:
    """Return what stands in no file yet, whether or not the attempt's requests have those rules."""
    parts = [part for file in source.files for part in part_paths(store, file)]
    is_unread = any(not store.has(RESPONSES, _responses_name(source.provider, part)) for part in parts)
    missing = [
        parser_id
        for parser_id in parser_ids
        if any(not store.has(JUDGMENTS, _judgments_name(parser_id, part)) for part in parts)
    ]
    return Lack(is_unread, frozenset(missing))


def derive(store: Store, source: Source, specs: Mapping[str, dict[str, Any]], price: PriceRow) -> Tally:
    """Publish an attempt's responses, and a judgment per response and answer rule."""
    lines = shard_lines(store, source.provider, source.shard_id)
    expected = dict(zip(lines.custom_ids_of(source.attempt_id), lines.request_ids, strict=True))
    matcher = _Matcher(expected)
    for file in source.files:
        for part in part_paths(store, file):
            _derive_part(store, source, file, part, matcher, specs, price)
    return matcher.tally


def _derive_part(
    store: Store, source: Source, file: RawFile, part: Path, matcher: _Matcher,
    specs: Mapping[str, dict[str, Any]], price: PriceRow,
) -> None:  # fmt: skip
    name = _responses_name(source.provider, part)
    read_line = _reader(source.provider, file.role)
    judges = {parser_id: judge_of(spec) for parser_id, spec in specs.items()}
    with ExitStack() as stack:
        responses = stack.enter_context(store.staging(RESPONSES))
        judgments = {parser_id: stack.enter_context(store.staging(JUDGMENTS)) for parser_id in judges}
        for lines, first_line_number in _raw_lines(part):
            rows, answered = [], []
            for offset, line in enumerate(lines):
                response = read_line(line)
                match, request_id = matcher.match(line, response)
                line_number = first_line_number + offset
                rows.append(_response_row(source, file, line_number, response, match, request_id, price))
                if match is Match.MATCHED:
                    answered.append((line_number, request_id, response))
            responses.write(rows)
            for parser_id, judge in judges.items():
                _write_judgments(judgments[parser_id], source, file, parser_id, answered, judge)
    for version in range(1, READER_VERSION):
        _empty(store, RESPONSES, _responses_name(source.provider, part, version))
    store.replace_file(RESPONSES, name, responses.path)
    for parser_id, staged in judgments.items():
        store.replace_file(JUDGMENTS, _judgments_name(parser_id, part), staged.path)


def _reader(provider: str, role: FileRole) -> Callable[[bytes], Response]:
    module = registry.module(provider)
    if role is FileRole.LIVE:
        return partial(live_lines.read_line, module)
    return partial(module.read_line, role=role)


def withdraw(store: Store, provider: str, files: Sequence[RawFile], specs: Iterable[str]) -> None:
    """Empty what was derived from files that fuller downloads replaced: each request counts once.

    The files stay, without rows, so that a reader who listed them still finds them.
    """
    for file in files:
        for part in part_paths(store, file):
            _empty(store, RESPONSES, _responses_name(provider, part))
            for parser_id in specs:
                _empty(store, JUDGMENTS, _judgments_name(parser_id, part))


def _empty(store: Store, table: Table, name: str) -> None:
    if store.has(table, name):
        with store.staging(table) as staged:
            pass
        store.replace_file(table, name, staged.path)


def _responses_name(provider: str, part: Path, version: int | None = None) -> str:
    return f"p_reader={provider}-{READER_VERSION if version is None else version}/{part.stem}"


def _judgments_name(parser_id: str, part: Path) -> str:
    return f"p_parser={parser_id}/{part.stem}"


def _raw_lines(part: Path) -> Iterable[tuple[list[bytes], int]]:
    with pq.ParquetFile(part) as file:
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=["line_number", "line", "line_bytes"]):
            text = batch.column(1).to_pylist()
            odd = batch.column(2).to_pylist()
            lines = [t.encode("utf-8") if t is not None else o for t, o in zip(text, odd, strict=True)]
            yield lines, batch.column(0)[0].as_py()


def _response_row(
    source: Source, file: RawFile, line_number: int, response: Response, match: Match, request_id: str | None,
    price: PriceRow,
) -> dict[str, Any]:  # fmt: skip
    return {
        "provider": source.provider,
        "batch_id": file.batch_id,
        "attempt_id": source.attempt_id,
        "file_id": file.file_id,
        "file_role": file.role,
        "line_number": line_number,
        "custom_id": response.custom_id,
        "request_id": request_id,
        "match": match,
        "status": response.status,
        "status_code": response.status_code,
        "response_model": response.response_model,
        "finish_reason": response.finish_reason,
        "finish": response.finish,
        "text": response.text,
        "thoughts": response.thoughts,
        "refusal": response.refusal,
        "input_tokens": response.input_tokens,
        "output_tokens": response.output_tokens,
        "reasoning_tokens": response.reasoning_tokens,
        "cached_tokens": response.cached_tokens,
        "cache_write_tokens": response.cache_write_tokens,
        "cost_usd": price(response),
        "error_class": response.error_class,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "provider_request_id": response.provider_request_id,
        "origin": source.origin,
    }


def _write_judgments(
    staged: StagedTable, source: Source, file: RawFile, parser_id: str,
    answered: Sequence[tuple[int, str | None, Response]], judge: Judge,
) -> None:  # fmt: skip
    n = len(answered)
    judged = judge([response for _, _, response in answered])

    def constant(value: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, pa.string()), n)

    columns = [
        constant(source.provider), constant(file.batch_id), constant(source.attempt_id), constant(file.file_id),
        pa.array([line_number for line_number, _, _ in answered], pa.int32()),
        pa.array([request_id for _, request_id, _ in answered], pa.string()), constant(parser_id),
        pa.array([judgment.verdict for judgment in judged], pa.string()),
        pa.array([judgment.outcome for judgment in judged], pa.string()),
        pa.array([judgment.label for judgment in judged], pa.string()),
        pa.array([judgment.score for judgment in judged], pa.float64()),
        pa.array([judgment.confidence for judgment in judged], pa.float64()),
        pa.array([judgment.explanation for judgment in judged], pa.string()),
    ]  # fmt: skip
    staged.write(pa.Table.from_arrays(columns, schema=JUDGMENTS.schema))
