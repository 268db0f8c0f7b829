"""Responses and judgments from raw lines: dropped and made again at will, never bought again.

The line of a live call is what came back, exactly, and whose answer it is. Such a call has no result file of a
provider's, so batchpond writes one of its own, a JSON object a line:

    {"custom_id":"...","asked_at":"...","answered_at":"...","n_tries":1,"status_code":200,
     "request_id":"req_...","body":"the answer's bytes as text"}

`body_base64` stands in for `body` where the bytes are not UTF-8. A call that was given up has
`failure` (`reason`, `message`) in place of a status and a body.
"""

from __future__ import annotations

import base64
import dataclasses
import gc
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa

from batchpond import answers, fields
from batchpond.clock import Work
from batchpond.errors import LakeError, StudyError
from batchpond.lake.disk import intact, read_rows
from batchpond.lake.jsonl import CUT, FORGOTTEN, LINE_END_BYTES, RawFile, named_in, part_paths, shard_lines
from batchpond.lake.schemas import JUDGMENTS, RAW, RESPONSES, Table
from batchpond.lake.store import Store
from batchpond.model import ErrorClass, FileRole, Match, Response, ResponseStatus, Take
from batchpond.providers import registry
from batchpond.providers.base import Answered
from batchpond.providers.shared.dialect import Dialect
from batchpond.providers.shared.lines import unreadable
from batchpond.tasks import expected
from batchpond.tasks import registry as tasks
from batchpond.tasks.base import READER, Judgment, Rule
from batchpond.tasks.prompts import PromptsRule
from batchpond.text import redact

_MESSAGE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request was given up without a final answer."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CallRecord:
    """When one request was last asked, and how often in all; the first keys of its line."""

    custom_id: str
    asked_at: datetime
    answered_at: datetime
    n_tries: int


def line_of(call: CallRecord, outcome: Answered | Failure) -> bytes:
    """Return a call's line, without its line feed."""
    found: dict[str, Any] = dataclasses.asdict(call)
    match outcome:
        case Answered():
            found["status_code"] = outcome.status_code
            found["request_id"] = outcome.provider_request_id
            found |= _body(outcome.body)
        case Failure():
            found["failure"] = {"reason": outcome.reason, "message": redact(outcome.message)[:_MESSAGE_CHARS]}
    return orjson.dumps(found, option=orjson.OPT_UTC_Z)


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def read_live_line(module: Dialect, line: bytes) -> Response:
    """Return a live call's line made uniform; total: any bytes give a Response."""
    found = fields.json_object(line)
    custom_id = fields.identifier(found.get("custom_id"))
    failure = fields.mapping(found.get("failure"))
    if failure:
        return Response(
            custom_id,
            ResponseStatus.ERRORED,
            error_class=ErrorClass.TRANSIENT,
            error_code=fields.text(failure.get("reason")),
            error_message=fields.text(failure.get("message")),
        )
    body, status_code = _bytes_of(found), found.get("status_code")
    if custom_id is None or body is None or not isinstance(status_code, int):
        return unreadable(custom_id, "not a line of a live call")
    answer = module.read_answer(status_code, body)
    request_id = answer.provider_request_id or fields.text(found.get("request_id"))
    return answer._replace(custom_id=custom_id, provider_request_id=request_id)


def _bytes_of(found: dict[str, Any]) -> bytes | None:
    if isinstance(text := found.get("body"), str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(coded := found.get("body_base64"), str):
        try:
            return base64.b64decode(coded, validate=True)
        except ValueError:
            return None
    return None


Judge = Callable[[Sequence[Response]], list[Judgment]]

_TAKES_BLOCKS_FOR_ERRORS: Final = 2  # the last reader to whom what a provider's filter withheld was an error
_NUMBERS: Final = frozenset({"score", "confidence"})
_HINT: Final = "one DuckDB expression over an answer's `text`, for example regexp_extract(text, 'Score: (\\d+)', 1)"

LINE_BYTES_MAX: Final = 32 << 20
_CUT: Final = re.compile(re.escape(CUT).replace(rb"%d", rb"(\d+)").replace(rb"%b", rb"[0-9a-f]{64}"))
TOKENS_MAX: Final = 100_000_000
"""More tokens than any model takes or gives in one answer."""
_COUNTS: Final = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens")
_counts: Final = attrgetter(*_COUNTS)


def judge_of(spec: Mapping[str, Any]) -> Judge:
    """Return what reads responses by one entry of a study's `parsers` and a reader; raises LakeError if unknown."""
    rule, reader = tasks.rule_of(spec), spec.get("read_by", 1)
    if reader > READER:
        raise LakeError(f"a study in this lake is read by reader {reader}", hint="install a newer batchpond")
    if isinstance(rule, PromptsRule) and rule.expressions:
        judge = _by_sql(rule)
    else:
        read = rule.read if reader == 1 else lambda one: rule.read_with_care(one, reader)
        judge = partial(_each_once, partial(expected.read, rule, read) if rule.allowed else read)
    if reader > _TAKES_BLOCKS_FOR_ERRORS:
        return judge
    errored = ResponseStatus.ERRORED
    return lambda found: judge([one._replace(finish=None) if one.status is errored else one for one in found])


def _each_once(read: Callable[[Response], Judgment], responses: Sequence[Response]) -> list[Judgment]:
    found: dict[tuple[Any, ...], Judgment] = {}
    judged = []
    for response in responses:
        says = response.text, response.finish, response.status, response.refusal, response.logprobs
        judgment = found.get(says)
        if judgment is None:
            judgment = found[says] = read(response)
        judged.append(judgment)
    return judged


def _by_sql(rule: PromptsRule) -> Judge:
    from batchpond.views import expressions

    def judge(responses: Sequence[Response]) -> list[Judgment]:
        values = expressions.evaluate(rule.expressions, [response.text or "" for response in responses])
        return [rule.read_values(response, found) for response, found in zip(responses, values, strict=True)]

    return judge


def check(rule: Rule, where: str) -> None:
    """Raise StudyError for SQL in a rule that could read no answer; `where` names the rule's settings."""
    if not isinstance(rule, PromptsRule):
        return
    from batchpond.views import expressions

    for name, expression in rule.expressions.items():
        problem = expressions.why_not(expression, is_number=name in _NUMBERS)
        if problem is not None:
            raise StudyError(f"{where}.fields.{name} {problem}", hint=_HINT)


_ROWS_PER_BATCH = 5_000

_MATCHED: Final = Match.MATCHED

PriceRow = Callable[[Response], float | None]
_Line = tuple[int, Response, Match, str | None]  # where it stands, what it says, how it counts, and for which request


@dataclass(frozen=True, slots=True)
class Source:
    """All downloads of an attempt's files, output before error and earlier before later, and how to read them.

    `take` is what a person said of answers that differ; without it the first stands, and the others are conflicts.
    `sender_id` is the attempt that the custom_ids name.
    """

    shard_id: str
    attempt_id: str
    sender_id: str
    provider: str
    origin: str
    files: tuple[RawFile, ...]
    take: Take | None = None


@dataclass(slots=True)
class Tally:
    """How an attempt's lines relate to the requests it sent; `n_set_aside` requests have answers that do not count."""

    n_matched: int = 0
    n_succeeded: int = 0
    n_duplicate: int = 0
    n_conflict: int = 0
    n_unmatched: int = 0
    n_blank: int = 0
    n_set_aside: int = 0

    def add(self, lines: Iterable[_Line]) -> None:
        """Count lines."""
        for (match, status), n in Counter((match, response.status) for _, response, match, _ in lines).items():
            name = f"n_{match}"
            setattr(self, name, getattr(self, name) + n)
            self.n_succeeded += n * (match is Match.MATCHED and status is ResponseStatus.SUCCEEDED)


class Offer(NamedTuple):
    """A line that answers a request: which download holds it and where, and a digest of what it says."""

    download: int
    line_number: int
    digest: bytes
    is_answer: bool


@dataclass(slots=True)
class _Once:
    """Joins lines to requests by custom_id alone, each request once, for as long as no two lines of one differ."""

    expected: Mapping[str | None, str]
    seen: dict[str, int] = field(default_factory=dict)
    has_differing: bool = False

    def match(self, request_id: str, line: bytes, _: tuple[int, int]) -> Match:
        digest = hash(line)
        if request_id not in self.seen:
            self.seen[request_id] = digest
            return _MATCHED
        self.has_differing |= self.seen[request_id] != digest
        return Match.DUPLICATE


class _Union:
    """What counts of lines of which several answer one request, each in any download of any file.

    An answer counts before an error. Of answers that differ as they were read the first counts, unless a person took
    another. Downloads that add nothing to the fullest ones are left out, whatever else they hold.
    """

    def __init__(self, expected: Mapping[str | None, str], files: Sequence[RawFile], take: Take | None) -> None:
        self.expected = expected
        self._files = files
        self._take = take
        self._offers: dict[str, list[Offer]] = {}
        self._chosen: dict[str, tuple[int, int]] = {}
        self._conflicts: set[tuple[int, int]] = set()
        self.used: set[int] = set()
        self.n_set_aside = 0

    def offer(self, response: Response, place: tuple[int, int]) -> None:
        """Take note of a line."""
        request_id = self.expected.get(response.custom_id)
        if request_id is not None:
            is_answer = response.status is ResponseStatus.SUCCEEDED
            self._offers.setdefault(request_id, []).append(Offer(*place, _as_read(response), is_answer))

    def decide(self) -> None:
        """Choose the line that counts of each request, once all are offered."""
        n_answered = Counter(place for offers in self._offers.values() for place in {o.download for o in offers})
        for request_id, offers in self._offers.items():
            best = [offer for offer in offers if offer.is_answer] or offers
            differing = [offer for offer in best if offer.digest != best[0].digest]
            if not differing or self._take is None:
                self._conflicts.update(offer[:2] for offer in differing)
            elif self._take is Take.NONE:
                self.n_set_aside += 1
                continue
            digest = differing[0].digest if differing and self._take is Take.SECOND else best[0].digest
            same = (offer for offer in best if offer.digest == digest)
            self._chosen[request_id] = max(same, key=lambda offer: n_answered[offer.download])[:2]
        self.used = {place[0] for place in (*self._chosen.values(), *self._conflicts)}
        read = {self._files[at].file_id for at in self.used}
        for at, file in enumerate(self._files):
            if file.file_id not in read:  # what a file holds that answers nothing is told all the same
                read.add(file.file_id)
                self.used.add(at)
        self._offers.clear()

    def match(self, request_id: str, _: bytes, place: tuple[int, int]) -> Match:
        if self._chosen.get(request_id) == place:
            return Match.MATCHED
        return Match.CONFLICT if place in self._conflicts else Match.DUPLICATE


def _matched(
    matcher: _Once | _Union, line: bytes, response: Response, place: tuple[int, int]
) -> tuple[Match, str | None]:
    """Return how a line relates to the requests that were sent, and the one that it answers."""
    if not line.strip():
        return Match.BLANK, None
    request_id = matcher.expected.get(response.custom_id)
    return (Match.UNMATCHED, None) if request_id is None else (matcher.match(request_id, line, place), request_id)


def _as_read(response: Response) -> bytes:
    """Return a digest of what a line says: the same for two that say the same in other bytes."""
    said = response._replace(provider_request_id=None)
    return hashlib.blake2b(repr(said).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def is_unread(published: Collection[str], source: Source) -> bool:
    """Return whether some responses stand in no file yet.

    `published` are the files of raw lines, responses and judgments, as `table/name.parquet`.
    """
    names = (_responses_name(source.provider, stem) for stem in _stems(published, source))
    return any(_path(RESPONSES, name) not in published for name in names)


def unjudged(published: Collection[str], source: Source, parser_ids: Iterable[str]) -> list[str]:
    """Return the rules by which some judgments stand in no file yet."""
    stems = [*_stems(published, source)]
    return [
        parser_id
        for parser_id in parser_ids
        if any(_path(JUDGMENTS, f"p_parser={parser_id}/{stem}") not in published for stem in stems)
    ]


def _stems(published: Collection[str], source: Source) -> Iterator[str]:
    """Yield what the files made from each part of an attempt's files are named by."""
    for file in source.files:
        for part in itertools.count():
            name = file.part_name(part)
            if _path(RAW, name) not in published:
                break
            yield name.rpartition("/")[2]


def _path(table: Table, name: str) -> str:
    return f"{table.name}/{name}.parquet"


def is_costed(store: Store, source: Source, price: PriceRow) -> bool:
    """Return whether responses that stand in files cost what they would if they were read now."""
    names = (_responses_name(source.provider, one.stem) for file in source.files for one in part_paths(store, file))
    columns = ["cost_usd", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"]
    rows = (row for one in names for row in read_rows(store.final_path(RESPONSES, one), columns).to_pylist())
    return all(row.pop("cost_usd") == price(Response(None, ResponseStatus.SUCCEEDED, **row)) for row in rows)


def derive(store: Store, source: Source, specs: Mapping[str, dict[str, Any]], price: PriceRow) -> Tally:
    """Publish an attempt's responses, and a judgment per response and answer rule.

    What counts is the union of all downloads, request by request; those that add nothing have no rows.
    """
    lines = shard_lines(store, source.provider, source.shard_id)
    expected: dict[str | None, str] = dict(zip(lines.custom_ids_of(source.sender_id), lines.request_ids, strict=True))
    if len({file.file_id for file in source.files}) == len(source.files):
        once = _Once(expected)
        tally = _derive_all(store, source, once, specs, price)
        if not once.has_differing:
            return tally
    union = _union(store, source, expected)
    tally = _derive_all(store, source, union, specs, price)
    tally.n_set_aside = union.n_set_aside
    return tally


def _union(store: Store, source: Source, expected: Mapping[str | None, str]) -> _Union:
    union = _Union(expected, source.files, source.take)
    for at, file in enumerate(source.files):
        read_line = line_reader(source.provider, file.role)
        for part in part_paths(store, file):
            for lines, first_line_number in _raw_lines(part):
                for line_number, line in enumerate(lines, first_line_number):
                    union.offer(read_line(line), (at, line_number))
    union.decide()
    return union


def _derive_all(
    store: Store, source: Source, matcher: _Once | _Union, specs: Mapping[str, dict[str, Any]], price: PriceRow
) -> Tally:
    tally = Tally()
    with _without_collector():
        for at in range(len(source.files)):
            for part in part_paths(store, source.files[at]):
                _derive_part(store, source, at, part, matcher, specs, price, tally)
    return tally


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the collector of cycles away from rows: none is in a cycle, and it would look at each of them many times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _derive_part(
    store: Store, source: Source, at: int, part: Path, matcher: _Once | _Union,
    specs: Mapping[str, dict[str, Any]], price: PriceRow, tally: Tally,
) -> None:  # fmt: skip
    file = source.files[at]
    name = _responses_name(source.provider, part.stem)
    read_line = line_reader(source.provider, file.role)
    judges = {parser_id: judge_of(spec) for parser_id, spec in specs.items()}
    is_left_out = isinstance(matcher, _Union) and at not in matcher.used
    with ExitStack() as stack:
        responses = stack.enter_context(store.staging(RESPONSES))
        judgments = {parser_id: stack.enter_context(store.staging(JUDGMENTS)) for parser_id in judges}
        for lines, first_line_number in () if is_left_out else _raw_lines(part):
            found = [
                (number, response, *_matched(matcher, line, response, (at, number)))
                for number, line, response in zip(itertools.count(first_line_number), lines, map(read_line, lines))
            ]
            tally.add(found)
            responses.write(_response_rows(source, file, found, price))
            if answered := [one for one in found if one[2] is _MATCHED]:
                for parser_id, judge in judges.items():
                    judgments[parser_id].write(_judgment_rows(source, file, answered, parser_id, judge))
    for version in range(1, answers.READER_VERSION):
        _empty(store, RESPONSES, _responses_name(source.provider, part.stem, version))
    store.replace_file(RESPONSES, name, responses.path)
    for parser_id, staged in judgments.items():
        store.replace_file(JUDGMENTS, f"p_parser={parser_id}/{part.stem}", staged.path)


def line_reader(provider: str, role: FileRole) -> Callable[[bytes], Response]:
    """Return what reads the lines of a provider's files of one role."""
    module = registry.module(provider)
    is_live = role is FileRole.LIVE
    read = partial(read_live_line, module) if is_live else module.read_line
    return lambda line: line.response() if isinstance(line, _LongLine) else _with_sense(read(line), line)


class _LongLine(bytes):
    """The beginning and the end of a line that is longer than any answer: it is not read, only whose it is."""

    n_bytes: int
    kept: str

    @classmethod
    def of(cls, line: memoryview, cut: re.Match[bytes] | None = None) -> _LongLine:
        """Return what is looked at of a line, which raw may have cut."""
        shown = cls(bytes(line[:LINE_END_BYTES]) + b"\n" + bytes(line[-LINE_END_BYTES:]))
        shown.n_bytes, shown.kept = (int(cut[1]), "its ends and its sha256") if cut else (len(line), "it")
        return shown

    def response(self) -> Response:
        """Return the failure of the request that the line names, if it can be seen."""
        message = f"the line has {self.n_bytes:,} bytes, more than the {LINE_BYTES_MAX:,} that are read"
        return unreadable(named_in(self), f"{message}; raw keeps {self.kept}")


def _with_sense(response: Response, line: bytes) -> Response:
    """Return a response whose token counts are unknown where no answer can have so many: they would be billed.

    What is left of a forgotten answer is none.
    """
    if line.endswith(FORGOTTEN) and response.status is ResponseStatus.SUCCEEDED:
        response = response._replace(status=ResponseStatus.UNREADABLE, error_class=ErrorClass.FORGOTTEN, finish=None)
    given, made, reasoning, cached, written = _counts(response)
    if max(given or 0, made or 0, reasoning or 0, cached or 0, written or 0) <= TOKENS_MAX:
        return response
    beyond: dict[str, Any] = {name: None for name in _COUNTS if (getattr(response, name) or 0) > TOKENS_MAX}
    return response._replace(**beyond)


def _empty(store: Store, table: Table, name: str) -> None:
    if store.has(table, name):
        with store.staging(table) as staged:
            pass
        store.replace_file(table, name, staged.path)


def _responses_name(provider: str, stem: str, version: int | None = None) -> str:
    return f"p_reader={provider}-{answers.READER_VERSION if version is None else version}/{stem}"


def _raw_lines(part: Path) -> Iterable[tuple[list[bytes], int]]:
    with intact(part) as file, Work("reading answers", "lines", file.metadata.num_rows) as work:
        # Lines with log probabilities are a hundred times as long as others: as many bytes at once, not as many lines.
        n_bytes = sum(file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups))
        n_rows = min(_ROWS_PER_BATCH, 1 + LINE_BYTES_MAX * file.metadata.num_rows // max(1, n_bytes))
        for batch in file.iter_batches(n_rows, None, ["line_number", "line", "line_bytes"], use_threads=False):
            yield _lines(batch.column(1), batch.column(2)), batch.column(0)[0].as_py()
            work.add(batch.num_rows)


def _lines(texts: pa.Array, odds: pa.Array) -> list[bytes]:
    if max(texts.nbytes, odds.nbytes) > LINE_BYTES_MAX:
        # One by one, so that of a line that is too long no copy is made.
        return [_looked_at(text if text.is_valid else odd) for text, odd in zip(texts, odds, strict=True)]
    pairs = zip(texts.view(pa.binary()).to_pylist(), odds.to_pylist(), strict=True)
    return [line if line is not None else _odd(odd) for line, odd in pairs]


def _odd(line: bytes) -> bytes:
    cut = _CUT.search(line) if b"\n" in line else None
    return _LongLine.of(memoryview(line), cut) if cut else line


def _looked_at(value: pa.Scalar[Any]) -> bytes:
    line = memoryview(value.as_buffer())
    return _LongLine.of(line) if len(line) > LINE_BYTES_MAX else bytes(line)


def _response_rows(source: Source, file: RawFile, lines: Sequence[_Line], price: PriceRow) -> pa.Table:
    line_numbers, responses, matches, request_ids = zip(*lines, strict=True)
    return _rows(
        RESPONSES,
        source,
        file,
        {"file_role": file.role, "origin": source.origin},
        line_number=line_numbers,
        match=matches,
        request_id=request_ids,
        cost_usd=list(map(price, responses)),
        **_columns(Response._fields, responses),
    )


def _judgment_rows(source: Source, file: RawFile, lines: Sequence[_Line], parser_id: str, judge: Judge) -> pa.Table:
    line_numbers, responses, _, request_ids = zip(*lines, strict=True)
    judged = _columns(Judgment._fields, judge(responses))
    of_all = {"parser_id": parser_id}
    return _rows(JUDGMENTS, source, file, of_all, line_number=line_numbers, request_id=request_ids, **judged)


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _rows(
    table: Table, source: Source, file: RawFile, of_all: dict[str, str], line_number: Sequence[int], **columns: Any
) -> pa.Table:
    """Return rows of a table by its columns: whose they are and what else is the same of all, and the others."""
    of_all = of_all | {
        "provider": source.provider, "batch_id": file.batch_id, "attempt_id": source.attempt_id,
        "file_id": file.file_id,
    }  # fmt: skip
    same = {name: pa.repeat(pa.scalar(value, pa.string()), len(line_number)) for name, value in of_all.items()}
    return pa.table({**same, "line_number": line_number, **columns}, table.schema)
