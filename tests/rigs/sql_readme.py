"""The page `sql/README.md`, made from the headers of the SQL files: `python -m tests.rigs.sql_readme` writes it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

from batchpond import views
from batchpond.views import scripts

_HEAD: Final = """\
# The views

This page is made from the headers of the files in this folder by `python -m tests.rigs.sql_readme`; do not edit it.

A file is a view of the same name, and the folder is its stage; the files in `0_functions` define macros. The order in
which they run is derived from what they read. `batchpond views` lists them, `batchpond views --ddl` prints one script
that plain DuckDB runs, and `duckdb -readonly lake/batchpond.duckdb` opens the same views beside a running `sync`.

The *grain* is what names one row. A *cell* is study, template_id, rubric_id, provider, request_model, thinking.
"""
_STAGES: Final = {
    "0_functions": "macros: intervals, exact tests, distributions",
    "1_core": "what was planned, sent, answered, read and paid",
    "2_metrics": "one question per file; the grain says what a row is",
    "3_report": "what `status` and the reports print",
}


def render() -> str:
    """Return the page."""
    columns = views.columns()
    parts = [_HEAD, _tables()]
    for stage, group in groupby(sorted(scripts.scripts(), key=lambda s: (s.stage, s.name)), key=lambda s: s.stage):
        parts.append(f"## {stage}: {_STAGES.get(stage, '')}".rstrip(": ") + "\n")
        parts.extend(_section(script, columns) for script in group)
    return "\n".join(parts)


def write(path: Path | None = None) -> Path:
    """Write the page into the folder of SQL files and return its path."""
    target = path or scripts.sql_folder() / "README.md"
    target.write_text(render(), encoding="utf-8")
    return target


def _tables() -> str:
    rows = [
        f"| `{view.name}` | {view.grain} | {view.question} |"
        for view in views.views()
        if view.stage == views.TABLE_STAGE
    ]
    head = ["## The tables, as they stand on disk", "", "| table | grain | question |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


def _section(script: scripts.Script, columns: dict[str, list[str]]) -> str:
    if not script.views:
        return _macros(script)
    lines = [f"### {script.name}", "", f"**{script.header.get('question', '')}**", ""]
    if grain := script.header.get("grain"):
        lines.append(f"- grain: {grain}")
    lines += [f"- {field}: {text}" for field, text in script.header.items() if field not in {"question", "grain"}]
    lines.append(f"- columns: {', '.join(columns[script.name])}")
    return "\n".join([*lines, ""])


def _macros(script: scripts.Script) -> str:
    lines = [f"### {script.name}", ""]
    lines += [f"- {field}: {text}" for field, text in script.header.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    write()
