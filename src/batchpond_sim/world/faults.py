"""The fault language: `<operation>@<calls>:<kind>[=argument]`, one fault a text.

    batches.create@1:reset_after       the first create works, its answer is lost
    files.content@1-3:status=503       the first three downloads answer 503
    batches.list@*:stale_list=30       batches younger than 30 s are never listed
    lines@2:drop=5                     the second batch loses five output rows
    live@100-200:status=529            a storm: live calls 100 to 200 are refused
    live@7-/10:reset_after             live calls 7, 17, 27 ... are answered and billed, but nobody hears it

Calls are counted per operation from 1 over the life of the world; for `lines` the count is the
batch's, in order of creation. Without `@`, every call is meant. What spoils rows spoils a live answer too.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum

from batchpond_sim import SimulatorError


class Op(StrEnum):
    """What a fault is aimed at; ANY is every provider call, LINES the rows of a batch."""

    ANY = "*"
    FILES_CREATE = "files.create"
    FILES_UPLOAD = "files.upload"
    FILES_LIST = "files.list"
    FILES_GET = "files.get"
    FILES_DELETE = "files.delete"
    FILES_CONTENT = "files.content"
    BATCHES_CREATE = "batches.create"
    BATCHES_LIST = "batches.list"
    BATCHES_GET = "batches.get"
    BATCHES_CANCEL = "batches.cancel"
    BATCHES_DELETE = "batches.delete"
    MODELS_LIST = "models.list"
    LIVE = "live"
    LINES = "lines"


class Stage(StrEnum):
    """When a fault takes hold."""

    BEFORE = "before"  # in place of the operation
    AFTER = "after"  # after the operation, in place of its answer
    EFFECT = "effect"  # on the object the call creates, for its whole life
    VIEW = "view"  # on what one answer shows
    DELIVERY = "delivery"  # on how a download's bytes arrive
    LINES = "lines"  # on the rows of the result files, or on a live answer


class Arg(StrEnum):
    """What stands after `=`."""

    NONE = "none"
    SECONDS = "seconds"
    COUNT = "count"
    FRACTION = "fraction"
    WORD = "word"


Value = float | int | str | None


def number(value: Value, default: float = 0.0) -> float:
    """Return a fault's argument as a number, `default` for none."""
    return float(value) if isinstance(value, int | float) else default


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault; `default` None with an argument type means that one must be given."""

    name: str
    stages: tuple[Stage, ...]
    ops: tuple[Op, ...]
    arg: Arg
    default: Value
    help: str


_HTTP = tuple(op for op in Op if op is not Op.LINES)
_CREATE = (Op.BATCHES_CREATE,)
_LIST = (Op.BATCHES_LIST, Op.FILES_LIST)
_SEEN = (Op.BATCHES_CREATE, Op.BATCHES_GET, Op.BATCHES_LIST)
_CONTENT = (Op.FILES_CONTENT,)
_BYTES = (Op.FILES_CONTENT, Op.LIVE)
_LINES = (Op.LINES,)
_SAID = (Op.LINES, Op.LIVE)
_LIVE = (Op.LIVE,)
_B, _A, _E, _V, _D, _L = ((stage,) for stage in Stage)
_EV = (Stage.EFFECT, Stage.VIEW)

_KINDS = (
    Kind("reset_before", _B, _HTTP, Arg.NONE, None, "connection reset, nothing executed"),
    Kind("reset_after", _A, _HTTP, Arg.NONE, None, "executed, then connection reset"),
    Kind("refuse", _B, _HTTP, Arg.NONE, None, "connection refused (over loopback: reset)"),
    Kind("hang_before", _B, _HTTP, Arg.SECONDS, 600.0, "silent for s seconds, then reset; nothing executed"),
    Kind("hang_after", _A, _HTTP, Arg.SECONDS, 600.0, "executed, then silent for s seconds, then reset"),
    Kind("status", _B, _HTTP, Arg.COUNT, 500, "this HTTP status in place of executing"),
    Kind("status_after", _A, _HTTP, Arg.COUNT, 500, "executed, answered with this HTTP status"),
    Kind("html", _B, _HTTP, Arg.COUNT, 502, "a proxy's HTML page (502 or 200) in place of executing"),
    Kind("html_after", _A, _HTTP, Arg.COUNT, 502, "executed, answered with a proxy's HTML page"),
    Kind("retry_after", _B, _HTTP, Arg.WORD, None, "429 with this Retry-After header, verbatim"),
    Kind("redirect", _B, _HTTP, Arg.WORD, None, "307 to this URL"),
    Kind("billing", _B, _HTTP, Arg.COUNT, 429, "out of quota or money, with this HTTP status"),
    Kind("file_not_ready", _B, _CREATE, Arg.NONE, None, "400: the input file is not there yet"),
    Kind("enqueued", _E, _CREATE, Arg.NONE, None, "the queue is full: created, then failed (OpenAI), or 429 (others)"),
    Kind("delay_exec", _E, _CREATE, Arg.SECONDS, None, "reset; the batch comes to be s seconds later"),
    Kind("stale_list", _EV, (*_CREATE, Op.FILES_CREATE, *_LIST), Arg.SECONDS, None, "hidden while under s seconds old"),
    Kind("notfound_after_create", _E, _CREATE, Arg.COUNT, 1, "404 for the first k gets"),
    Kind("results_404", _E, _CREATE, Arg.COUNT, 1, "404 for the first k downloads of each result file"),
    Kind("empty_output", _E, _CREATE, Arg.NONE, None, "completed, but no result file is named"),
    Kind("error_file_empty_string", _EV, _SEEN, Arg.NONE, None, 'absent result file ids are "" instead of null'),
    Kind("expire", _E, _CREATE, Arg.FRACTION, 0.0, "ends expired with this share of rows done"),
    Kind("expire_bare", _E, _CREATE, Arg.NONE, None, "ends expired with no file at all"),
    Kind("fail", _E, _CREATE, Arg.WORD, "invalid_request", "ends failed with this error code, or with it in every row"),
    Kind("stuck", _E, _CREATE, Arg.WORD, "in_progress", "stays validating, in_progress or finalizing"),
    Kind("cancel_race", _E, (*_CREATE, Op.BATCHES_CANCEL), Arg.WORD, "lost",
         "cancel: lost (finished rows vanish), full (completes), conflict (409)"),
    Kind("clock_skew", _E, _CREATE, Arg.SECONDS, None, "created_at and expires_at shifted by s seconds"),
    Kind("store", _E, (Op.FILES_CREATE,), Arg.FRACTION, 0.5, "only this share of the upload is stored, answered 200"),
    Kind("cut_upload", _E, (Op.FILES_UPLOAD,), Arg.COUNT, 0, "reset once k bytes of this piece are kept (Gemini)"),
    Kind("inline_results", _E, _CREATE, Arg.WORD, "in_order",
         "answers within the batch object: in_order, reordered, no_metadata or words joined by + (Gemini)"),
    Kind("output_at", _EV, _SEEN, Arg.WORD, "response", "the output only in response or only in metadata (Gemini)"),
    Kind("job_state", _EV, _SEEN, Arg.NONE, None, "JOB_STATE_ words in place of BATCH_STATE_ (Gemini)"),
    Kind("shards", _E, _CREATE, Arg.COUNT, 2, "the result rows in k files (Vertex AI)"),
    Kind("no_input_config", _EV, _SEEN, Arg.NONE, None, "the input file's name is not shown (Gemini)"),
    Kind("counts_wrong", _EV, _SEEN, Arg.NONE, None, "request_counts that do not add up"),
    Kind("counts_null", _EV, _SEEN, Arg.NONE, None, "request_counts null"),
    Kind("counts_late", _EV, _SEEN, Arg.NONE, None, "request_counts stand still until the batch has ended"),
    Kind("counts_text", _EV, _SEEN, Arg.NONE, None, "request_counts as JSON strings"),
    Kind("status_word", _EV, _SEEN, Arg.WORD, "archiving", "this word as status"),
    Kind("regress", _V, (Op.BATCHES_GET, Op.BATCHES_LIST), Arg.NONE, None, "ended batches shown as in_progress"),
    Kind("list_error_page", _V, _LIST, Arg.COUNT, 2, "page k of a listing answers 500"),
    Kind("cursor_loop", _V, _LIST, Arg.NONE, None, "every page is the first page, has_more true"),
    Kind("has_more_lies", _V, _LIST, Arg.WORD, "false", "has_more has this value, true or false"),
    Kind("empty_page", _V, _LIST, Arg.NONE, None, "an empty page with has_more true"),
    Kind("truncate", _D, _BYTES, Arg.FRACTION, 0.5, "clean end at a line border after this share of bytes"),
    Kind("truncate_mid", _D, _BYTES, Arg.FRACTION, 0.5, "connection-close body cut inside a line"),
    Kind("reset_at", _D, _BYTES, Arg.COUNT, None, "reset after this many bytes"),
    Kind("slow", _D, _BYTES, Arg.COUNT, 2, "this many bytes a second"),
    Kind("gzip", _D, _BYTES, Arg.WORD, "marked", "gzip body, marked as such in the headers or unmarked"),
    Kind("content_type", _D, _BYTES, Arg.WORD, "none", "a download with this Content-Type, or none"),
    Kind("changed", _D, _CONTENT, Arg.NONE, None, "other bytes than the file's: every row has a new row id"),
    Kind("garbage", _D, _CONTENT, Arg.NONE, None, "as many lines as the file's, and none of them a row"),
    Kind("in_order", _L, _LINES, Arg.NONE, None, "rows in input order (they are shuffled otherwise)"),
    Kind("reorder", _L, _LINES, Arg.NONE, None, "rows in another order than without this fault"),
    Kind("drop", _L, _LINES, Arg.COUNT, 1, "k output rows are missing"),
    Kind("duplicate", _L, _LINES, Arg.COUNT, 1, "k output rows come twice, byte for byte"),
    Kind("duplicate_differs", _L, _LINES, Arg.COUNT, 1, "k custom_ids come twice with different answers"),
    Kind("malformed", _L, _SAID, Arg.COUNT, 1, "k output rows are cut in half"),
    Kind("unknown_id", _L, _LINES, Arg.COUNT, 1, "k more rows with custom_ids that nobody sent"),
    Kind("missing_id", _L, _LINES, Arg.COUNT, 1, "k output rows have custom_id null"),
    Kind("duplicate_key", _L, _LINES, Arg.COUNT, 1, "k output rows hold the key custom_id twice"),
    Kind("swapped_bodies", _L, _LINES, Arg.NONE, None, "each two neighbouring rows have each other's answers"),
    Kind("both_files", _L, _LINES, Arg.COUNT, 1, "k ids come twice: answered and, in the error file if any, not run"),
    Kind("bom", _L, _LINES, Arg.NONE, None, "output starts with a UTF-8 byte order mark"),
    Kind("crlf", _L, _LINES, Arg.NONE, None, "output lines end in CR LF"),
    Kind("blank_lines", _L, _LINES, Arg.COUNT, 1, "a blank line after each of k rows and one at the end"),
    Kind("no_final_lf", _L, _LINES, Arg.NONE, None, "output's last line has no line feed"),
    Kind("u2028", _L, _SAID, Arg.COUNT, 1, "k answers hold U+2028, U+2029 and U+0085"),
    Kind("lone_surrogate", _L, _SAID, Arg.COUNT, 1, "k answers hold half a surrogate pair"),
    Kind("nan", _L, _SAID, Arg.COUNT, 1, "k rows hold a bare NaN"),
    Kind("no_usage", _L, _SAID, Arg.COUNT, 1, "k rows have no usage"),
    Kind("status_code_0", _L, _LINES, Arg.COUNT, 1, "k rows of the output file have status_code 0 (OpenAI)"),
    Kind("status_in_output", _L, _LINES, Arg.COUNT, 1, "k error rows stand in the output file"),
    Kind("error_rows", _L, _LINES, Arg.COUNT, 3, "k requests end as 429, 500, 400 rows in turn"),
    Kind("billing_rows", _L, _LINES, Arg.COUNT, 1, "k requests end as insufficient_quota rows"),
    Kind("filtered_rows", _L, _LINES, Arg.COUNT, 1, "k requests end as errors of a filter (OpenAI, Anthropic, xAI)"),
    Kind("empty_text", _L, _SAID, Arg.COUNT, 1, "k answers are empty"),
    Kind("truncated_text", _L, _SAID, Arg.COUNT, 1, "k answers are cut off, finish reason length"),
    Kind("finish", _L, _SAID, Arg.WORD, "SAFETY", "an answer with this finishReason (Gemini; any live one)"),
    Kind("blocked", _L, _SAID, Arg.WORD, "SAFETY", "a prompt is blocked for this reason (Gemini)"),
    Kind("status_rows", _L, _LINES, Arg.NONE, None, "error rows have status in place of error (Gemini)"),
    Kind("refusal", _L, _SAID, Arg.COUNT, 1, "k answers are refusals"),
    Kind("delay", _D, _LIVE, Arg.SECONDS, 1.0, "answered s seconds late"),
    Kind("keepalive", _D, _LIVE, Arg.SECONDS, 1.0, "blank lines for s seconds before the answer (DeepSeek)"),
    Kind("short", _D, _LIVE, Arg.FRACTION, 0.5, "closed after this share of the promised content-length"),
    Kind("empty_body", _D, _LIVE, Arg.NONE, None, "HTTP 200 with no body at all"),
    Kind("stream_error", _L, _LIVE, Arg.NONE, None, "a streamed answer ends in an error line"),
    Kind("no_choices", _L, _LIVE, Arg.NONE, None, "an answer without choices, output, content or candidates"),
    Kind("null_content", _L, _LIVE, Arg.NONE, None, "an answer whose content is null"),
    Kind("think", _L, _LIVE, Arg.WORD, "closed", "thoughts in the text behind a <think>, closed or unclosed (chat)"),
    Kind("other_model", _L, _LIVE, Arg.WORD, "another-model", "an answer that says it is from this model"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _KINDS}

_SPEC = re.compile(
    r"(?P<op>[^@:\s]+)(?:@(?P<calls>\*|\d+(?:-\d*)?)(?:/(?P<every>\d{1,9}))?)?:(?P<kind>\w+)(?:=(?P<arg>.*))?"
)
_GRAMMAR = "write <operation>@<n, n-m or *>[/every]:<kind>[=argument], such as batches.create@1:reset_after"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: which calls of which operation it hits, and how."""

    op: Op
    first: int
    last: int | None
    kind: str
    value: Value
    spec: str
    every: int = 1

    def hits(self, op: Op, call: int, any_call: int) -> bool:
        """Return whether the `call`-th call of `op`, the `any_call`-th of all, is hit."""
        if self.op is Op.ANY:
            call = any_call
        elif self.op is not op:
            return False
        is_within = self.first <= call and (self.last is None or call <= self.last)
        return is_within and (call - self.first) % self.every == 0

    def is_at(self, stage: Stage) -> bool:
        """Return whether this kind can take hold at `stage`."""
        return stage in KINDS[self.kind].stages

    def shifted(self, calls: int) -> Fault:
        """Return the same fault counting from the call after the `calls`-th."""
        last = None if self.last is None else self.last + calls
        return replace(self, first=self.first + calls, last=last)


@dataclass(frozen=True, slots=True)
class Call:
    """One counted request with the faults that hit it."""

    n: int
    op: Op
    op_n: int
    faults: tuple[Fault, ...]

    def at(self, stage: Stage) -> tuple[Fault, ...]:
        """Return the faults that take hold at `stage`."""
        return tuple(fault for fault in self.faults if fault.is_at(stage))

    def values(self, stage: Stage) -> dict[str, Value]:
        """Return the arguments of the faults that take hold at `stage`, by their kinds."""
        return {fault.kind: fault.value for fault in self.at(stage)}

    def value(self, stage: Stage, kind: str) -> tuple[bool, Value]:
        """Return whether a fault of `kind` hits at `stage`, and its argument."""
        for fault in self.at(stage):
            if fault.kind == kind:
                return True, fault.value
        return False, None

    def has(self, stage: Stage, kind: str) -> bool:
        """Return whether a fault of `kind` hits at `stage`."""
        return self.value(stage, kind)[0]


def parse_fault(spec: str) -> Fault:
    """Return the fault that a text such as `batches.create@1:reset_after` names.

    Raises SimulatorError naming the part that is wrong and what is closest to it.
    """
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise SimulatorError(f"--fault {spec!r} cannot be read", hint=_GRAMMAR)
    if match["op"] not in set(Op):
        raise SimulatorError(
            f"--fault {spec!r}: no operation {match['op']!r}", hint=_closest(match["op"], [str(op) for op in Op])
        )
    kind = KINDS.get(match["kind"])
    if kind is None:
        raise SimulatorError(
            f"--fault {spec!r}: no fault kind {match['kind']!r}", hint=_closest(match["kind"], list(KINDS))
        )
    op = Op(match["op"])
    if op not in kind.ops:
        raise SimulatorError(
            f"--fault {spec!r}: {kind.name} cannot be aimed at {op}",
            hint=f"it can be aimed at {', '.join(kind.ops)}",
        )
    first, last = _calls(spec, match["calls"] or "*")
    every = int(match["every"] or 1)
    if every < 1:
        raise SimulatorError(f"--fault {spec!r}: every 0th call is none", hint=_GRAMMAR)
    return Fault(op, first, last, kind.name, _value(spec, kind, match["arg"]), spec.strip(), every)


def describe_faults() -> list[tuple[str, str, str, str]]:
    """Return name, argument, operations and meaning of every fault kind, for help texts."""
    rows = []
    for kind in _KINDS:
        arg = "" if kind.arg is Arg.NONE else f"={kind.arg}"
        if kind.default is not None:
            arg += f" ({kind.default:g})" if isinstance(kind.default, int | float) else f" ({kind.default})"
        ops = "any call" if kind.ops == _HTTP else ", ".join(kind.ops)
        rows.append((kind.name, arg, ops, kind.help))
    return rows


def _closest(word: str, words: list[str]) -> str:
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.4)
    listed = ", ".join(words)
    return f"did you mean {close[0]!r}? There are: {listed}" if close else f"there are: {listed}"


def _calls(spec: str, calls: str) -> tuple[int, int | None]:
    if calls == "*":
        return 1, None
    first, dash, last = calls.partition("-")
    low = int(first)
    high = (int(last) if last else None) if dash else low
    if low < 1 or (high is not None and high < low):
        raise SimulatorError(f"--fault {spec!r}: calls are counted from 1 upwards", hint=_GRAMMAR)
    return low, high


def _value(spec: str, kind: Kind, text: str | None) -> Value:
    if kind.arg is Arg.NONE:
        if text:
            raise SimulatorError(f"--fault {spec!r}: {kind.name} takes no argument", hint=f"write {kind.name} alone")
        return None
    if text is None or text == "":
        if kind.default is None:
            raise SimulatorError(f"--fault {spec!r}: {kind.name} needs an argument", hint=f"{kind.name}=<{kind.arg}>")
        return kind.default
    if kind.arg is Arg.WORD:
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if kind.arg is Arg.SECONDS and math.isfinite(number):
        return number
    if kind.arg is Arg.COUNT and number >= 0 and number.is_integer():
        return int(number)
    if kind.arg is Arg.FRACTION and 0 <= number <= 1:
        return number
    raise SimulatorError(f"--fault {spec!r}: {text!r} is not a {kind.arg}", hint=f"{kind.name}: {kind.help}")
