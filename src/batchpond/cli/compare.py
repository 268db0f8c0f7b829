"""`compare`: what two studies, cells or versions say of the same items, and a gate for CI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpond.cli import output
from batchpond.cli.formats import Format, aligned, folded
from batchpond.cli.frame import Invocation, pond_command
from batchpond.errors import ExitCode
from batchpond.text import shown

if TYPE_CHECKING:
    from batchpond.results.compare.verb import Compared

_TABLES = ("comparisons", "differences", "flips", "gates")
_FLIPS = ("comparison_no", "subject", "said_a", "said_b", "truth")
_HEADS = ("metric", "n", "a", "b", "b - a", "from", "to", "p", "q", "finds")
_NUMBERS = ("value_a", "value_b", "diff", "diff_lo", "diff_hi", "p_diff", "q_bh", "diff_mde")
_TESTS = ("p_diff", "q_bh")


@pond_command("compare")
def command(
    invocation: Invocation,
    a: str,
    b: str,
    gates: tuple[str, ...],
    is_margin: bool,
    n_flips: int,
    path: Path | None,
    force: bool,
    form: Format,
) -> ExitCode:
    """Compare what A and B say of the same items: b against a, paired."""
    from batchpond.results.compare.verb import compare

    found = compare(invocation.store().path, a, b, n_flips=n_flips, gates=gates, is_margin=is_margin)
    if path is not None:
        from batchpond.results.report import build

        build.write(build.text(build.paired(found, a, b), build.form_of(path)), path, force=force)
        invocation.diagnostics.note(f"wrote {shown(path)}")
    if form is Format.JSON:
        tables = {name: getattr(found, name).to_pylist() for name in _TABLES}
        output.document({"a": a, "b": b, **tables, "notes": found.notes})
    elif form is Format.TABLE:
        output.text("\n".join([f"a  {a}\nb  {b}", *_lines(found)]))
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


def _lines(found: Compared) -> Iterator[str]:
    differences = found.differences.to_pylist()
    for row in found.comparisons.to_pylist():
        yield ""
        for says in (f"{row['comparison_no']}. {row['task']}: {row['what']}", row["says"]):
            yield from folded(says, output.width())
        cells = [_cells(one) for one in differences if one["comparison_no"] == row["comparison_no"]]
        yield from aligned(_HEADS, cells, n_text_columns=1, width=output.width())
    flips = [[str(row[key] or "") for key in _FLIPS] for row in found.flips.to_pylist()]
    if flips:
        yield "\nsaid differently"
        yield from aligned(("in", "of", "a", "b", "people"), flips, n_text_columns=5, width=output.width())


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Return a difference in the columns of the terminal; money per 1,000 calls, as a call's is too small to read."""
    is_cost = row["metric"] == "cost_per_call_usd"
    numbers = [_number(row[key], 1000 if is_cost and key not in _TESTS else 1) for key in _NUMBERS]
    return ["$ per 1,000" if is_cost else row["metric"], f"{row['n']:,}", *numbers]


def _number(value: float | None, scale: int) -> str:
    shown = (value or 0) * scale
    few = "0" if not shown else f"{shown:.0e}"
    return "" if value is None else few if abs(shown) < 0.001 else f"{shown:.3f}"
