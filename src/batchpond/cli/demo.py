"""`demo`: the whole flow with a simulated provider, in half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchpond.cli import formats, output
from batchpond.cli.frame import Invocation, json_option, pond_command
from batchpond.model import CELL_COLUMNS

Rows = list[dict[str, Any]]

OUTCOMES = ("decided", "tie", "ambiguous", "unparsed", "refused")
OUTCOME_HEADS = ("model", "all", "answered", *OUTCOMES, "other")
CELL_HEADS = ("", "pairs", "consistent", "95 %", "log-odds", "95 %", "q")
ORDER = ("request_model", *(name for name in CELL_COLUMNS if name != "request_model"))
REPORT = "demo-report.html"
EXPLORE = (
    "status",
    "results --limit 10",
    'query "from report_consistency"',
    'query "select outcome, count(*) as n from results group by all"',
    "views",
    "audit",
)


@pond_command("demo")
@json_option
def command(invocation: Invocation, is_json: bool) -> None:
    """Judge 20 essays with a simulated model of each of three providers, over real HTTP on this machine."""
    from batchpond import demo
    from batchpond.views.read import rows

    report = demo.run(invocation.lake_path, invocation.diagnostics.note)
    lake = invocation.lake_path
    completion = rows(lake, "metric_completion", order=ORDER, study=demo.STUDY)
    cells = rows(lake, "report_consistency", order=ORDER, study=demo.STUDY)
    if is_json:
        counts = {"n_requests": report.n_requests, "n_batches": report.n_batches, "n_syncs": report.n_syncs}
        page = _report(invocation)
        output.document({**counts, "completion": completion, "consistency": cells, "report": page})
        return
    output.text("\n".join(tables(completion, cells)))
    option = f"--lake {lake} " if invocation.is_lake_given else ""
    explore = "\n".join(f"  batchpond {option}{words}" for words in EXPLORE)
    shell = f"  duckdb -readonly {lake}/batchpond.duckdb"
    invocation.diagnostics.note(f"all of it is in {lake}; go on with\n{explore}\n{shell}")
    _report(invocation)


def _report(invocation: Invocation) -> Path | None:
    """Write the demo's report beside its lake, where the packages are there that draw it, and say where it is."""
    from batchpond import demo
    from batchpond.results.report import build
    from batchpond.results.report import build as files

    if not files.is_extra_installed():
        hint = "pip install 'batchpond[report]'; `batchpond report` then writes all of it on one page"
        invocation.diagnostics.note("there is no report yet", hint=hint)
        return None
    path = invocation.lake_path.absolute().parent / REPORT
    content = files.text(build.build(invocation.lake_path, demo.STUDY), files.ReportFormat.HTML)
    files.write(content, path, force=True)
    invocation.diagnostics.note(f"the report, a page to open in a browser: {path}")
    return path


def tables(completion: Rows, cells: Rows) -> Iterator[str]:
    """Yield the demo's two tables: what came back, and what it says about the judges."""
    yield "What came back (simulated)"
    yield from formats.aligned(OUTCOME_HEADS, list(_outcome_rows(completion)), n_text_columns=1)
    yield ""
    yield "Is the same winner named when the two essays swap places, and which place is favoured?"
    yield from formats.aligned(CELL_HEADS, list(_cell_rows(cells)), n_text_columns=1)
    yield ""
    yield "log-odds: above 0, the essay shown first is favoured"
    yield "q: test of that for essays in general, corrected over the cells"


def _outcome_rows(completion: Rows) -> Iterator[tuple[str, ...]]:
    columns = ("n_planned", "n_answered", *(f"n_{outcome}" for outcome in OUTCOMES))
    for model in _models(completion):
        cells = [row for row in completion if row["request_model"] == model]
        n_planned, n_answered, *n_known = [sum(cell[column] for cell in cells) for column in columns]
        counts = (n_planned, n_answered, *n_known, n_answered - sum(n_known))
        yield (model, *(f"{count:,}" for count in counts))


def _cell_rows(cells: Rows) -> Iterator[tuple[str, ...]]:
    for model in _models(cells):
        yield (model, *("" for _ in CELL_HEADS[1:]))
        yield from (_cell_row(row) for row in cells if row["request_model"] == model)


def _models(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["request_model"] for row in rows))


def _cell_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"  {row['template_id']}",
        f"{row['n_pairs']:,}",
        _number(row["consistency_decided"], 3),
        _interval(row["consistency_decided_lo"], row["consistency_decided_hi"]),
        _number(row["position_logodds"], 2),
        _interval(row["position_logodds_lo"], row["position_logodds_hi"]),
        "-" if row["q_bh"] is None else f"{row['q_bh']:.2g}",
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.2f} to {high:.2f}"
