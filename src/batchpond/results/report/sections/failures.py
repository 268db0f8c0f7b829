"""What went wrong, how often, and what it looks like."""

from __future__ import annotations

from typing import Final

from batchpond.results.report.cells import cells
from batchpond.results.report.numbers import Kind
from batchpond.results.report.parts import Column, Exhibit, Section
from batchpond.results.report.sections.common import cut, exhibit, sentences, total
from batchpond.results.report.source import Source

EXAMPLES_MAX: Final = 40
_JUDGE: Final = "template_id, provider, request_model, thinking"


def failures(source: Source) -> Section | None:
    """Show rates of failure per judge, and one message of each kind."""
    parts = [part for part in (_rates(source), _examples(source)) if part]
    return Section("failures", "Failures", (), parts) if parts else None


def _rates(source: Source) -> Exhibit | None:
    rates = (f"{name}_rate, {name}_rate_lo, {name}_rate_hi" for name in ("error", "unparsed", "refused"))
    rows = source.of_study(
        f"{_JUDGE}, n_answered, n_returned, n_error, n_unparsed, n_refused,\n  " + ",\n  ".join(rates),
        "metric_failures",
        _JUDGE,
        where="n_error + n_unparsed + n_refused > 0",
    )
    if not len(rows):
        return None
    found = cells(rows.frame, ("template_id", "provider", "request_model", "thinking"))
    caption = sentences(
        f"n = {total(rows.frame, 'n_answered'):,} answered requests of judges and templates with any failure. "
        "No answer: error, expired, cancelled or missing, of all of them. Not read (unparsed, ambiguous, truncated, "
        "empty) and refused or blocked: of the returned answers. None of these is a verdict. Wilson 95 % intervals.",
        found.said(),
        cut(rows),
    )
    columns = (
        *found.columns,
        Column("n_answered", "answered"),
        Column("error_rate", "no answer", Kind.SHARE, "error_rate_lo", "error_rate_hi"),
        Column("unparsed_rate", "not read", Kind.SHARE, "unparsed_rate_lo", "unparsed_rate_hi"),
        Column("refused_rate", "refused", Kind.SHARE, "refused_rate_lo", "refused_rate_hi"),
    )
    return exhibit(rows, "failures", "Rates of failure", caption, columns, frame=found.frame)


def _examples(source: Source) -> Exhibit | None:
    order = "n DESC, provider, request_model, level, outcome, error_class NULLS FIRST, error_code NULLS FIRST"
    rows = source.of_study(
        "provider, request_model, level, outcome, error_class, error_code, n, example_message", "report_errors", order,
        limit=EXAMPLES_MAX,
    )  # fmt: skip
    if not len(rows):
        return None
    caption = sentences(
        "Every kind of failure with one message or answer of it, cut to 300 characters, the most frequent first.",
        cut(rows),
    )
    columns = (
        Column("request_model", "model", Kind.TEXT),
        Column("outcome", "outcome", Kind.TEXT),
        Column("level", "of a", Kind.TEXT),
        Column("error_code", "code", Kind.TEXT),
        Column("n", "n"),
        Column("example_message", "example", Kind.TEXT),
    )
    return exhibit(rows, "failure-examples", "Kinds of failure, with an example", caption, columns)
