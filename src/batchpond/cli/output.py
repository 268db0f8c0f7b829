"""Everything that is said: rows, JSON or text on stdout, and errors, hints, notes, progress and questions on stderr.

Nothing goes to stdout before it is complete, so a command that fails leaves it empty.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

import click

from batchpond.cli import formats
from batchpond.cli.formats import Format, Row, age, json_text
from batchpond.clock import BYTES, Work
from batchpond.errors import ExitCode, UsageError
from batchpond.text import escape

if TYPE_CHECKING:
    import pyarrow as pa

    from batchpond.run.session import Note
    from batchpond.views.read import Rows

SPOOL_BYTES = 8 << 20


class ReaderGoneError(Exception):
    """Whoever read stdout has seen enough."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be printed, complete, and how many rows a table had to leave out."""

    content: IO[bytes]
    n_left_out: int = 0


def show(prepared: Prepared) -> int:
    """Print it; returns how many rows were left out."""
    with prepared.content as content:
        content.seek(0)
        try:
            shutil.copyfileobj(content, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # as Python calls every EPIPE
            raise ReaderGoneError from None
    return prepared.n_left_out


def _emit(text: str) -> None:
    show(Prepared(_spooled([text])))


def _spooled(chunks: Iterable[str]) -> IO[bytes]:
    with _spool() as spool:
        for chunk in chunks:
            spool.write(chunk.encode())
    return spool


@contextmanager
def _spool() -> Iterator[IO[bytes]]:
    """Yield what is to be filled, and closed where that fails."""
    with ExitStack() as failed:
        yield failed.enter_context(tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES))
        failed.pop_all()


def is_terminal() -> bool:
    """Return whether a person is looking at stdout."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the columns of the terminal, or in a pipe those that COLUMNS says, 80 without it."""
    return shutil.get_terminal_size((80, 24)).columns


def room() -> int | None:
    """Return the columns of the terminal that text is for, None where nobody looks: there nothing is cut."""
    return width() if is_terminal() else None


def text(lines: str) -> None:
    """Print text for people."""
    _emit(escape(lines, keep_newlines=True).rstrip("\n") + "\n")


def script(source: str) -> None:
    """Print a program's text; bytes unchanged unless a terminal would obey them."""
    _emit((escape(source, keep_newlines=True) if is_terminal() else source).rstrip("\n") + "\n")


def document(value: Any) -> None:
    """Print one JSON document."""
    _emit(json_text(value, indent=True) + "\n")


def records(names: Sequence[str], rows: Iterable[Row], form: Format, *, has_color: bool = False) -> int:
    """Print Python rows; returns how many rows a table had to leave out."""
    return show(_records(names, rows, form, has_color=has_color))


def _records(names: Sequence[str], rows: Iterable[Row], form: Format, *, has_color: bool) -> Prepared:
    if form is Format.PARQUET:
        import pyarrow as pa

        table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
        return Prepared(_parquet(table.schema, table.to_batches()))
    names = formats.unique_names(names)
    if form is Format.TABLE:
        rest = iter(rows)
        shown = list(islice(rest, formats.TERMINAL_ROWS_MAX))
        n_left_out = sum(1 for _ in rest)
        return Prepared(_spooled(formats.terminal_lines(names, shown, width(), has_color=has_color)), n_left_out)
    return Prepared(_spooled(_chunks(names, rows, form)))


def table(data: Rows | pa.Table | pa.RecordBatchReader, form: Format, *, has_color: bool = False) -> int:
    """Print rows that a query returned; returns how many a table had to leave out."""
    return show(prepared(data, form, has_color=has_color))


def prepared(data: Rows | pa.Table | pa.RecordBatchReader, form: Format, *, has_color: bool = False) -> Prepared:
    """Take in all rows that a query returns, without printing any."""
    from batchpond.views.read import Rows  # loads DuckDB, which has made these rows

    if isinstance(data, Rows):
        return _records(data.names, chain.from_iterable(data.batches), form, has_color=has_color)
    import pyarrow as pa

    batches = data.to_batches(max_chunksize=10_000) if isinstance(data, pa.Table) else data
    if form is Format.PARQUET:
        return Prepared(_parquet(data.schema, batches))
    return _records(data.schema.names, formats.arrow_rows(batches), form, has_color=has_color)


def _chunks(names: Sequence[str], rows: Iterable[Row], form: Format) -> Iterator[str]:
    made: dict[Format, Callable[[Sequence[str], Iterable[Row]], Iterator[str]]] = {
        Format.JSON: formats.json_array,
        Format.JSONL: formats.json_lines,
        Format.CSV: partial(formats.csv_lines, is_terminal=is_terminal()),
        Format.MARKDOWN: formats.markdown_lines,
        Format.TSV: formats.tab_lines,
    }
    return made[form](names, rows)


def _parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> IO[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if is_terminal():
        raise UsageError(
            "Parquet is not for a terminal", hint="send it to a file: `... --format parquet > out.parquet`"
        )
    names = formats.unique_names(schema.names)
    renamed = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    with _spool() as spool:
        try:
            with pq.ParquetWriter(spool, renamed, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.rename_columns(names))
        except pa.ArrowNotImplementedError as error:
            raise UsageError(
                f"Parquet cannot hold a column of this result: {error}", hint="cast it to VARCHAR in the query"
            ) from None
    return spool


HEARTBEAT_S = 60.0
METER_FROM_S = 1.0
METER_EVERY_S = 0.2
METER_LOG_EVERY_S = 30.0
_COLORS = {"error": "red", "warning": "yellow", "hint": "cyan", "note": "green", "safe": "green"}


@dataclass
class Diagnostics:
    """One command's voice on stderr; text from outside is escaped before it is shown."""

    is_quiet: bool = False
    is_verbose: bool = False
    is_json: bool = False
    is_without_progress: bool = False
    color: str = "auto"
    _last_progress: str = field(default="", init=False)
    _last_progress_s: float = field(default=float("-inf"), init=False)
    _has_open_line: bool = field(default=False, init=False)

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking at stderr."""
        return sys.stderr.isatty()

    def error(self, message: str, hint: str | None, code: ExitCode) -> None:
        """Say what went wrong and what to do; a JSON object when the caller asked for JSON."""
        self.end_progress()
        if self.is_json:
            document = {"error": code.name.lower(), "exit_code": int(code), "message": message, "hint": hint}
            self._write(json_text(document))
        else:
            self._pair("error", message, hint)

    def problem(self, message: str, *, hint: str | None = None) -> None:
        """Say that a part failed while the command goes on."""
        self._pair("error", message, hint)

    def warning(self, message: str, *, hint: str | None = None) -> None:
        """Say what may surprise; shown even when quiet."""
        self._pair("warning", message, hint)

    def note(self, message: str, *, hint: str | None = None) -> None:
        """Say what was done, and perhaps the next command."""
        if not self.is_quiet:
            self._pair("note", message, hint)

    def told(self, note: Note) -> None:
        """Say one note of a pass when it comes up."""
        from batchpond.run.session import Severity

        speak = {Severity.INFO: self.note, Severity.WARNING: self.warning, Severity.ERROR: self.problem}
        speak[note.severity](note.message, hint=note.hint)

    def trace(self, error: BaseException) -> None:
        """Print the traceback of an unexpected error when `-v` asks for it."""
        if self.is_verbose:
            self.say("".join(traceback.format_exception(error)))

    def progress(self, text: str) -> None:
        """Show where a long step stands: one living line on a terminal, else a line per change.

        An unchanged text is repeated once a minute, so that a log shows the process is alive.
        """
        if self.is_quiet or self.is_without_progress:
            return
        now_s = time.monotonic()
        if text == self._last_progress and now_s - self._last_progress_s < HEARTBEAT_S:
            return
        self._last_progress, self._last_progress_s = text, now_s
        if not self.is_terminal:
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._write(f"{stamp} {escape(text)}")
            return
        columns = shutil.get_terminal_size().columns
        self._put("\r\x1b[2K" + escape(text)[: max(1, columns - 1)])
        self._has_open_line = True

    def end_progress(self) -> None:
        """Leave the living line, so that what follows starts on a line of its own."""
        if self._has_open_line:
            self._put("\r\x1b[2K")
            self._has_open_line = False

    def say(self, text: str) -> None:
        """Show lines that a person needs to answer a question that follows."""
        self.end_progress()
        self._write(escape(text, keep_newlines=True))

    def confirm(self, question: str, *, is_yes: bool) -> bool:
        """Ask yes or no, unless `--yes` said it; raises UsageError that names that option when nobody can answer."""
        if is_yes:
            return True
        if not (sys.stdin.isatty() and self.is_terminal):
            raise UsageError(
                "this needs a yes, and there is no terminal to ask on", hint="add `--yes`; nothing was sent"
            )
        self.end_progress()
        return click.confirm(escape(question), default=False, err=True)

    def choose(self, question: str, words: Sequence[str]) -> str:
        """Ask for one of some words; the first of them where there is nobody to ask."""
        if not (sys.stdin.isatty() and self.is_terminal):
            return words[0]
        self.end_progress()
        chosen: str = click.prompt(escape(question), type=click.Choice(words), default=words[0], err=True)
        return chosen

    def insist(self, question: str, *, is_yes: bool, otherwise: str) -> None:
        """Ask for a yes without which the command cannot go on; raises UsageError that says what did not happen."""
        if not self.confirm(question, is_yes=is_yes):
            raise UsageError(f"not confirmed; {otherwise}")

    def has_color(self, stream_is_terminal: bool) -> bool:
        """Return whether to colour a stream: `--color`, then NO_COLOR and TERM, then the stream."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return False
        return stream_is_terminal or bool(os.environ.get("FORCE_COLOR"))

    def _pair(self, label: str, message: str, hint: str | None) -> None:
        self.end_progress()
        self._say(label, message)
        if hint:
            self._say("hint", hint)

    def _say(self, label: str, message: str) -> None:
        text = f"{label}: {escape(message, keep_newlines=True)}"
        if self.is_terminal:
            text = "\n".join(part for line in text.split("\n") for part in formats.folded(line, width()))
        if self.has_color(self.is_terminal):
            text = click.style(f"{label}:", fg=_COLORS[label], bold=True) + text.removeprefix(f"{label}:")
        self._write(text)

    def _write(self, line: str) -> None:
        self._put(line.rstrip("\n") + "\n")

    @staticmethod
    def _put(text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            # A log on a full disk or a terminal that is gone must not stop a pass that has things to record.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@dataclass
class Meter:
    """Says how far work is that takes longer than a moment: a living line on a terminal, a line now and then elsewhere.

    Of works within works it is the innermost that is shown.
    """

    diagnostics: Diagnostics
    _since_s: dict[Work, float] = field(default_factory=dict, init=False)
    _shown_s: float = field(default=float("-inf"), init=False)

    def moved(self, work: Work) -> None:
        """Show it, unless that was just now."""
        now_s = time.monotonic()
        took_s = now_s - self._since_s.setdefault(work, now_s)
        is_terminal = self.diagnostics.is_terminal
        every_s, from_s = (METER_EVERY_S, METER_FROM_S) if is_terminal else (METER_LOG_EVERY_S, METER_LOG_EVERY_S)
        if took_s >= from_s and now_s - self._shown_s >= every_s:
            self._shown_s = now_s
            self.diagnostics.progress(meter_text(work, took_s))

    def ended(self, work: Work) -> None:
        """Take its line away."""
        self._since_s.pop(work, None)
        self.diagnostics.end_progress()


def meter_text(work: Work, took_s: float) -> str:
    """Return one line on work under way: done of total, rate, time left."""
    unit, size = ("MB", 1e6) if work.unit == BYTES else (work.unit, 1)
    digits = 0 if size == 1 else 1
    of = "" if work.n_total is None else f" of {work.n_total / size:,.{digits}f}"
    per_s = work.n_done / max(took_s, 1e-9)
    rate = f"{per_s / size:,.{0 if per_s >= 10 * size else 1}f}/s"
    text = f"{work.what}: {work.n_done / size:,.{digits}f}{of} {unit}, {rate}"
    if work.n_total is None or not work.n_done:
        return text
    return f"{text}, {age(max(0, work.n_total - work.n_done) / per_s)} left"
