"""`demo`: the whole flow with a simulated provider, in half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from batchpond.cli import formats, output
from batchpond.cli.frame import Invocation, pond_command
from batchpond.model import CELL_COLUMNS

OUTCOME_HEADS = ("model", "all", "answered", "decided", "tie", "ambiguous", "unparsed", "refused", "other")
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
def command(invocation: Invocation, is_json: bool) -> None:
    """Judge 20 essays with a simulated model of each of three providers, over real HTTP on this machine."""
    from batchpond import demo
    from batchpond.views.read import rows

    report = demo.run(invocation.lake_path, invocation.diagnostics.note)
    lake = invocation.lake_path
    if is_json:
        completion = rows(lake, "metric_completion", order=ORDER, study=demo.STUDY)
        cells = rows(lake, "report_consistency", order=ORDER, study=demo.STUDY)
        counts = {"n_requests": report.n_requests, "n_batches": report.n_batches, "n_syncs": report.n_syncs}
        page = _report(invocation)
        output.document({**counts, "completion": completion, "consistency": cells, "report": page})
        return
    output.text("\n".join(tables(lake)))
    option = f"--lake {lake} " if invocation.is_lake_given else ""
    explore = "\n".join(f"  batchpond {option}{words}" for words in EXPLORE)
    shell = f"  duckdb -readonly {lake}/batchpond.duckdb"
    invocation.diagnostics.note(f"all of it is in {lake}; go on with\n{explore}\n{shell}")
    _report(invocation)


def _report(invocation: Invocation) -> Path | None:
    """Write the demo's report beside its lake, where the packages are there that draw it, and say where it is."""
    from batchpond import demo
    from batchpond.results.report import build

    if not build.is_extra_installed():
        hint = "pip install 'batchpond[report]'; `batchpond report` then writes all of it on one page"
        invocation.diagnostics.note("there is no report yet", hint=hint)
        return None
    path = invocation.lake_path.absolute().parent / REPORT
    content = build.text(build.build(invocation.lake_path, demo.STUDY), build.ReportFormat.HTML)
    build.write(content, path, force=True)
    invocation.diagnostics.note(f"the report, a page to open in a browser: {path}")
    return path


def tables(lake_path: Path) -> Iterator[str]:
    """Yield the demo's two tables: what came back, and what it says about the judges."""
    from batchpond import demo
    from batchpond.views.read import run_query

    def table(heads: tuple[str, ...], query: str) -> list[str]:
        found = run_query(lake_path, (demo.DATA / query).read_text("utf-8"))
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return formats.aligned(heads, rows, n_text_columns=1)

    yield "What came back (simulated)"
    yield from table(OUTCOME_HEADS, "came_back.sql")
    yield ""
    yield "Is the same winner named when the two essays swap places, and which place is favoured?"
    yield from table(CELL_HEADS, "favoured.sql")
    yield ""
    yield "log-odds: above 0, the essay shown first is favoured"
    yield "q: test of that for essays in general, corrected over the cells"
