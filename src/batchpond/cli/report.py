"""What a study found: `report`, on one page; `compare`, two of them item by item; `rank`, what is better than what."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpond.cli import linear_algebra, output
from batchpond.cli.formats import Figure, Format, aligned, folded, short_cell
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import ExitCode, UsageError
from batchpond.model import CELL_COLUMNS
from batchpond.text import address, plural, shown

if TYPE_CHECKING:
    from batchpond.results.compare.verb import Compared
    from batchpond_report.parts import Report


@pond_command("report")
def command(
    invocation: Invocation,
    study: str | None,
    path: Path | None,
    form: str | None,
    folder: Path | None,
    beside: tuple[str, ...],
    is_methods: bool,
    is_shown: bool,
    force: bool,
    is_json: bool,
) -> None:
    """Write all that a study found as one HTML file: no script, no network, readable for years."""
    # Before the store, which would hold linear algebra to one thread.
    from batchpond.lake.disk import refuse_existing
    from batchpond_report import build, markdown

    if is_methods and (path or form or folder or beside or is_shown or is_json):
        raise UsageError("--claims prints the methods alone", hint="leave the other options out")
    if is_methods:
        return output.text(markdown.methods(build.build(invocation.store().path, study)))
    chosen = build.ReportFormat(form or ("md" if path is not None and path.suffix.lower() == ".md" else "html"))
    is_page = chosen is build.ReportFormat.HTML
    if is_page or folder is not None:
        build.require_extra()
    if is_shown and (not is_page or (path is not None and address(path) is not None)):
        raise UsageError("--open shows a page of this machine, and Markdown is none", hint="leave --open out")
    if is_json and path is None and not is_page:
        raise UsageError("Markdown and --json cannot both be printed", hint="write the report to a file: -o report.md")
    path = path or (Path("report.html") if is_page else None)
    if path is not None and not force:
        refuse_existing(path)
    found = build.build(invocation.store().path, study, beside)
    content = build.text(found, chosen)
    written = [] if folder is None else build.write_figures(found, folder, force=force)
    if path is None:
        output.text(content)
    else:
        build.write(content, path, force=force)
    _say(invocation, found, path, written, folder, is_json=is_json)
    if is_shown and path is not None:
        import webbrowser

        if not webbrowser.open(path.absolute().as_uri()):
            invocation.diagnostics.warning("no browser could be started", hint=f"open {path} yourself")


def _say(
    invocation: Invocation, found: Report, path: Path | None, written: list[Path], folder: Path | None, *, is_json: bool
) -> None:
    if is_json:
        output.document(
            {"study": found.study, "path": path, "sections": [section.key for section in found.sections],
             "fingerprint": found.fingerprint, "figures": written}
        )  # fmt: skip
    if folder is not None:
        invocation.diagnostics.note(f"wrote {plural(len(written), 'file')} of figures: {shown(folder)}")
    if path is not None:
        invocation.diagnostics.note(f"wrote the report on {found.study}: {shown(path)}")


_TABLES = ("comparisons", "differences", "flips", "gates")
_FLIPS = ("comparison_no", "subject", "said_a", "said_b", "truth")
_HEADS = ("metric", "n", "a", "b", "b - a", "from", "to", "p", "q", "finds")
_NUMBERS = ("value_a", "value_b", "diff", "diff_lo", "diff_hi", "p_diff", "q_bh", "diff_mde")
_TESTS = ("p_diff", "q_bh")


@pond_command("compare")
def compare(
    invocation: Invocation,
    a: str,
    others: tuple[str, ...],
    gates: tuple[str, ...],
    is_margin: bool,
    n_flips: int,
    path: Path | None,
    force: bool,
    form: Format,
) -> ExitCode:
    """Compare what A and B, or more, say of the same items: each against a, paired."""
    from batchpond.results.compare import verb

    sides = verb.named(a, *others)
    found = verb.compare(invocation.store().path, a, *others, n_flips=n_flips, gates=gates, is_margin=is_margin)
    if path is not None:
        from batchpond_report import build

        build.write(build.text(build.paired(found, *sides.values()), build.form_of(path)), path, force=force)
        invocation.diagnostics.note(f"wrote {shown(path)}")
    if form is Format.JSON:
        tables = {name: getattr(found, name).to_pylist() for name in _TABLES}
        output.document({**sides, **tables, "notes": found.notes})
    elif form is Format.TABLE:
        output.text("\n".join([*(f"{name}  {side}" for name, side in sides.items()), *_compared(found)]))
    else:
        output.table(found.differences, form)
    for note in found.notes:
        invocation.diagnostics.note(note)
    speak = {True: invocation.diagnostics.problem, None: invocation.diagnostics.warning}
    verdicts = set()
    for row in found.gates.to_pylist():
        verdicts.add(row["is_worse"])
        speak.get(row["is_worse"], invocation.diagnostics.note)(row["says"])
    return ExitCode.WORSE if True in verdicts else ExitCode.ATTENTION if None in verdicts else ExitCode.DONE


def _compared(found: Compared) -> Iterator[str]:
    differences = found.differences.to_pylist()
    for row in found.comparisons.to_pylist():
        yield ""
        for says in (f"{row['comparison_no']}. {row['task']}: {row['what']}", row["says"]):
            yield from folded(says, output.width())
        cells = [_difference(one) for one in differences if one["comparison_no"] == row["comparison_no"]]
        yield from aligned(_HEADS, cells, n_text_columns=1, width=output.width())
    flips = [[str(row[key] or "") for key in _FLIPS] for row in found.flips.to_pylist()]
    if flips:
        yield "\nsaid differently"
        yield from aligned(("in", "of", "a", "b", "people"), flips, n_text_columns=5, width=output.width())


def _difference(row: Mapping[str, Any]) -> list[str]:
    """Return a difference in the columns of the terminal; money per 1,000 calls, as a call's is too small to read."""
    is_cost = row["metric"] == "cost_per_call_usd"
    numbers = [_number(row[key], 1000 if is_cost and key not in _TESTS else 1) for key in _NUMBERS]
    return ["$ per 1,000" if is_cost else row["metric"], f"{row['n']:,}", *numbers]


def _number(value: float | None, scale: int) -> str:
    scaled = (value or 0) * scale
    few = "0" if not scaled else f"{scaled:.0e}"
    return "" if value is None else few if abs(scaled) < 0.001 else f"{scaled:.3f}"


# What matters first, since a terminal may not have room for the rest; every other form has all columns.
TERMINAL_COLUMNS = ("item", "rank [lo, hi]", "theta [lo, hi]", "tied_group", "n_comparisons", "win_rate", "flags")
SUMMARY_COLUMNS = ("component_id", "n_items", "n_comparisons", "reliability", "eta", "eta_p", "n_cyclic")


@pond_command("rank")
def rank(
    invocation: Invocation,
    studies: tuple[str, ...],
    by: tuple[str, ...],
    ties: str,
    position: bool | None,
    what: str,
    extras: tuple[str, ...],
    shown: str | None,
    seed: int,
    form: Format,
) -> None:
    """Rank items, or models, by pair judgments, with intervals and tied groups."""
    # Before the store, which holds linear algebra to one thread. Half the CPUs: the two of a core gain nothing over
    # one, and on a busy machine threads that wait for each other take several times as long as one alone.
    with linear_algebra(threads=max(1, (os.cpu_count() or 1) // 2)):
        from batchpond.results.rank import verb

    if shown in {"judges", "units"}:
        if len(studies) > 1:
            raise UsageError("a jury is of one study", hint=f"`batchpond rank {studies[0]} --{shown}`")
        found = verb.jury(invocation.store().path, *studies)[shown]
        return invocation.note_left_out(output.table(found, form, has_color=invocation.color_stdout()))
    options = verb.options(ties=ties, position=position, extras=extras, seed=seed, is_full=shown == "summary")
    request = verb.Request(study=studies, by=by or CELL_COLUMNS, what=verb.What(what), options=options)
    report = verb.rank(invocation.store().path, request)
    table = report.rankings if shown else report.items
    if form is Format.TABLE:
        rows = table.to_pylist()
        names = (*_apart(rows), *(SUMMARY_COLUMNS if shown else TERMINAL_COLUMNS))
        cells = [[_cell(row, name) for name in names] for row in rows]
        invocation.diagnostics.note(f"`--format csv` has all {table.num_columns} columns")
        invocation.note_left_out(output.records(names, cells, form, has_color=invocation.color_stdout()))
    else:
        invocation.note_left_out(output.table(table, form, has_color=invocation.color_stdout()))
    for note in report.notes:
        invocation.diagnostics.note(note)


def _apart(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Yield what tells the rankings apart; provider and thinking only where the rest of the cell does not."""
    kept = [name for name in ("study", *CELL_COLUMNS) if len({row[name] for row in rows}) > 1]
    for name in ("provider", "thinking"):
        rest = [other for other in kept if other != name]
        n_apart, n_without = (len({tuple(row[one] for one in names) for row in rows}) for names in (kept, rest))
        kept = rest if n_apart == n_without else kept
    return kept


def _cell(row: dict[str, Any], name: str) -> Any:
    """Return a figure to three digits, or one with the ends of its interval, which an open one lacks."""
    name, *with_ends = name.split(maxsplit=1)
    if not with_ends or row[name] is None:
        return float(f"{row[name]:.3g}") if isinstance(row[name], float) else row[name]
    ends = (row[f"{name}{end}"] for end in ("", "_lo", "_hi"))
    spelt = (f"{round(one, 2) + 0.0:.2f}" if isinstance(one, float) else short_cell(one) for one in ends)
    return Figure("{} [{}, {}]".format(*spelt))
