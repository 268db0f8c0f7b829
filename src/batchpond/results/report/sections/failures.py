"""What went wrong, how often, and what it looks like."""

from __future__ import annotations

from batchpond.results.report.cells import JUDGED_BY
from batchpond.results.report.declared import Chapter, Declared
from batchpond.results.report.parts import count, share, text

EXAMPLES_MAX = 40
_RATES = Declared(
    key="failures",
    title="Rates of failure",
    caption=(
        "n = {n_answered:total} answered requests of judges and templates with any failure. No answer: error, expired, "
        "cancelled or missing, of all of them. Not read (unparsed, ambiguous, truncated, empty) and refused or "
        "blocked: of the returned answers. None of these is a verdict. Wilson 95 % intervals."
    ),
    view="metric_failures",
    cells=JUDGED_BY,
    where="n_error + n_unparsed + n_refused > 0",
    columns=(
        count("n_answered", "answered"),
        share("error_rate", "no answer", has_ends=True),
        share("unparsed_rate", "not read", has_ends=True),
        share("refused_rate", "refused", has_ends=True),
    ),
    also="n_returned n_error n_unparsed n_refused",
)
_EXAMPLES = Declared(
    key="failure-examples",
    title="Kinds of failure, with an example",
    caption="Every kind of failure with one message or answer of it, cut to 300 characters, the most frequent first.",
    view="report_errors",
    order="n DESC, provider, request_model, level, outcome, error_class NULLS FIRST, error_code NULLS FIRST",
    limit=EXAMPLES_MAX,
    columns=(
        text("request_model", "model"),
        text("outcome", "outcome"),
        text("level", "of a"),
        text("error_code", "code"),
        count("n", "n"),
        text("example_message", "example"),
    ),
    also="provider error_class",
)
section = Chapter(key="failures", title="Failures", parts=(_RATES, _EXAMPLES))
