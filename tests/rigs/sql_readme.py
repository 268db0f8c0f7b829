"""The page `sql/README.md`, made from the SQL files and the enums in code: `python -m tests.rigs.sql_readme`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final

from batchpond.lake.attempts import Phase
from batchpond.model import (
    BatchState,
    Direction,
    ErrorClass,
    FileRole,
    Finish,
    Match,
    Mode,
    Origin,
    Outcome,
    ResponseStatus,
    ShardKind,
)  # fmt: skip
from batchpond.plan.rounds.adaptive import Purpose
from batchpond.views import database, refresh
from batchpond.views.refresh import Script

FUNCTIONS: Final = "0_functions"
METRICS: Final = "2_metrics"
_VIEW_KEYS: Final = ("grain", "question", "source")
_FORMULA_KEYS: Final = ("estimators", "reference", "nulls")
# What a file's header must say, in this order; `note` and, of macros, `accuracy` may follow.
KEYS: Final = {
    FUNCTIONS: ("question", "macros", *_FORMULA_KEYS),
    "1_core": _VIEW_KEYS,
    METRICS: (*_VIEW_KEYS, *_FORMULA_KEYS),
    "3_report": _VIEW_KEYS,
}
_STAGES: Final = {
    database.TABLE_STAGE: "the tables, as they stand on disk",
    FUNCTIONS: "macros: intervals, exact tests, distributions",
    "1_core": "what was planned, sent, answered, read and paid",
    METRICS: "one question per file; the grain says what a row is",
    "3_report": "what `status` and the reports print",
}
ENUMS: Final[Mapping[str, type[StrEnum]]] = {
    "outcome": Outcome,
    "attempt_state": Phase,
    "batch_state": BatchState,
    "error_class": ErrorClass,
    "status of `responses`": ResponseStatus,
    "match": Match,
    "finish": Finish,
    "origin": Origin,
    "mode": Mode,
    "shard_kind": ShardKind,
    "file_role": FileRole,
    "direction": Direction,
    "purpose": Purpose,
}
# Columns whose words stand only in the CASE of the view that makes them.
_CASES: Final = (
    ("request_states", "request_state"),
    ("pair_status", "status"),
    ("item_status", "status"),
    ("candidate_pairs", "winner"),
)

_HEAD: Final = """\
# The views

This page is made from the files in this folder by `python -m tests.rigs.sql_readme`; do not edit it.

A file is a view of the same name, and the folder is its stage; the files in `0_functions` define macros. The order in
which they run is derived from what they read. `batchpond views` lists them, `batchpond views --ddl` prints one script
that plain DuckDB runs, and `duckdb -readonly lake/batchpond.duckdb` opens the same views beside a running `sync`.

The *grain* is what names one row. In it a word stands for the columns of a cell, or of a judge:

{words}

In the SQL each is one value, by the macros of [cell](#cell): `GROUP BY study, cell`. A view has the columns.

Beside a rate, `_min` and `_max` are what it would be if answers that are unread or missing all spoke against it, or all
for it. Some rates have none, and the counts of what they leave out instead:

- `accuracy`, `survival`, `regressive_rate`, `progressive_rate`, `explicit_flip_rate` and `monotone_violation_rate` of
  pressure: an answer without a stance leaves open which conversations count, and not only how; `flip_rate` and
  `ever_flip_rate` have bounds
- [metric_repeat](#metric_repeat): how far votes agree that were read; one that was not is no vote
- [metric_length_candidates](#metric_length_candidates): the wins of [metric_win_matrix](#metric_win_matrix), which has
  bounds, in two parts
- [metric_agreement_categories](#metric_agreement_categories): of units by what was said, and an open one is in none
- `decided_share` of [metric_cascade](#metric_cascade), in which a unit without a verdict counts as that, and
  `confirmed_share`, of audits that were answered
- `mean_rank` of [metric_place_bias](#metric_place_bias), of lists that were put in order as a whole
"""
_ADD: Final = """\
## How to add a metric

1. Write `sql/2_metrics/metric_ties.sql`: one view, named as the file. The header above it has, in this order, the keys
   {keys}; `note` may follow. Each estimator names columns of
   the view, and every number that is no count has one; `_lo`, `_hi` and `_se` go with the column before them.

   ```sql
   -- grain: study, provider, request_model
   -- question: How often does a judge call two items equal?
   -- source: pair_judgments, every verdict by itself.
   -- estimators:
   --   - tie_rate: n_ties / n_verdicts, Wilson
   -- reference: own definition; wilson.
   -- nulls: tie_rate is NULL without a verdict.

   CREATE OR REPLACE VIEW metric_ties AS
   WITH counts AS (
     SELECT
       study, provider, request_model,
       count(verdict) AS n_verdicts,
       count(*) FILTER (WHERE verdict = 'tie') AS n_ties
     FROM pair_judgments
     GROUP BY study, provider, request_model
   )
   SELECT
     *,
     n_ties / nullif(n_verdicts, 0) AS tie_rate,
     wilson_lo(n_ties, n_verdicts) AS tie_rate_lo,
     wilson_hi(n_ties, n_verdicts) AS tie_rate_hi
   FROM counts;
   ```

2. Write `tests/cases/metric_ties.yaml`: rows in, rows out. Columns that a row leaves out have a default.

   ```yaml
   view: metric_ties
   cases:
     - description: one verdict of four is a tie, and what was not parsed is none
       input:
         pair_judgments: |
           item_first,item_second,verdict
           A,B,first
           B,A,tie
           A,C,second
           C,A,second
           B,C,unparsed
       expect:
         - {{n_verdicts: 4, n_ties: 1, tie_rate: 0.25}}
   ```

3. Run `python -m tests.rigs.sql_readme`, which writes this page again, and
   `python -m pytest tests/unit/views/test_sql_cases.py tests/unit/views/test_sql_files.py`, which says what is missing.
"""


def lacking(script: Script) -> list[str]:
    """Return what is wrong with a file's header: its keys, their order, its estimators."""
    header, keys = script.header, KEYS[script.stage]
    wrong = [f"{script.name} has no {key}:" for key in keys if not header.get(key)]
    if [key for key in header if key in keys] != [key for key in keys if key in header]:
        wrong.append(f"{script.name} has its keys in another order than {', '.join(keys)}")
    if "estimators" in keys:
        lines = header.get("estimators", "").splitlines()
        wrong += [f"{script.name}: {line!r} is no `- column: formula`" for line in lines if not _ESTIMATOR.match(line)]
    return wrong


_ESTIMATOR: Final = re.compile(r"- (?P<names>\w+(?:, \w+)*): (?P<formula>\S.*)")


def estimators(script: Script) -> dict[str, str]:
    """Return the formula of each column, or macro, that a file's header explains."""
    found = (_ESTIMATOR.match(line) for line in script.header.get("estimators", "").splitlines())
    return {name: match["formula"] for match in found if match for name in match["names"].split(", ")}


@cache
def render() -> str:
    """Return the page."""
    by_stage = {
        stage: list(group)
        for stage, group in groupby(sorted(refresh.scripts(), key=lambda s: (s.stage, s.name)), key=lambda s: s.stage)
    }
    columns = _columns()
    head = _HEAD.format(words="\n".join(f"- `{word}`: {', '.join(names)}" for word, names in database.WORDS.items()))
    parts = [head, *_overview(by_stage), *_graphs(by_stage), _words(by_stage)]
    parts.append(_ADD.format(keys=", ".join(f"`{key}`" for key in KEYS[METRICS])))
    for stage, group in by_stage.items():
        parts.append(_title("##", stage))
        parts += [_section(script, columns) for script in group]
    return "\n".join(parts)


def write(path: Path | None = None) -> Path:
    """Write the page into the folder of SQL files and return its path."""
    target = path or refresh.sql_folder() / "README.md"
    target.write_text(render(), encoding="utf-8")
    return target


def _columns() -> dict[str, list[str]]:
    """Return the column names of every table and view."""
    with database.empty() as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns ORDER BY table_name, ordinal_position"
        ).fetchall()
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return found


def _title(level: str, stage: str) -> str:
    return f"{level} {stage}: {_STAGES.get(stage, '')}".rstrip(": ") + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), ""])


def _overview(by_stage: Mapping[str, Sequence[Script]]) -> list[str]:
    tables = [
        (f"`{view.name}`", view.grain, view.question) for view in database.views() if view.stage == database.TABLE_STAGE
    ]
    parts = [
        "## One line each\n",
        _title("###", f"{database.TABLE_STAGE}/"),
        table(("table", "grain", "question"), tables),
    ]
    for stage, group in by_stage.items():
        keys = ("question",) if stage == FUNCTIONS else ("grain", "question")
        rows = [(f"[{script.name}](#{script.name})", *(script.header[key] for key in keys)) for script in group]
        first = "macros" if stage == FUNCTIONS else "view"
        parts += [f"### {stage}/\n", table((first, *keys), rows)]
    return parts


def _graphs(by_stage: Mapping[str, Sequence[Script]]) -> list[str]:
    """Return a graph of each stage of views: what its views read, by what their SQL names."""
    tables = {view.name for view in database.views() if view.stage == database.TABLE_STAGE}
    stage_of = {name: stage for stage, group in by_stage.items() for script in group for name in script.views}
    stage_of |= dict.fromkeys(tables, database.TABLE_STAGE)
    parts = ["## What reads what\n", "An arrow goes from what is read to the view that reads it; `lake` is round.\n"]
    for stage, group in by_stage.items():
        reads = {script.name: sorted(script.needs & set(stage_of)) for script in group if script.views}
        if not reads:
            continue
        others = sorted({name for names in reads.values() for name in names} - set(reads))
        lines = ["```mermaid", "flowchart LR"]
        lines += [f"  {name}([{name}])" for name in others if name in tables]
        lines += [f'  subgraph stage ["{stage}"]', *(f"    {name}" for name in reads), "  end"]
        lines += [f"  {' & '.join(names)} --> {name}" for name, names in reads.items()]
        parts += [f"### Into {stage}\n", "\n".join([*lines, "```", ""])]
    return parts


def _words(by_stage: Mapping[str, Sequence[Script]]) -> str:
    texts = {script.name: script.text for group in by_stage.values() for script in group}
    rows = [
        (f"{column} of `{view}`", ", ".join(words(texts[view], column)), f"[{view}](#{view})")
        for view, column in _CASES
    ]
    rows += [
        (column, ", ".join(kind), (kind.__doc__ or "").splitlines()[0].rstrip(".")) for column, kind in ENUMS.items()
    ]
    told = "What these columns hold, in whichever view they stand; `origin` is `mixed` where a row adds up several.\n"
    return f"## Words\n\n{told}\n" + table(("column", "words", "what it says"), rows)


def words(text: str, column: str) -> list[str]:
    """Return the words that the CASE which makes a column can give, in order."""
    end = re.search(rf"\bEND AS {column}\b", text)
    if end is None:
        raise ValueError(f"no CASE gives {column}")
    depth, start = 0, end.start()
    for mark in reversed(list(re.finditer(r"\b(CASE|END)\b", text[: end.end()]))):
        depth += 1 if mark[0] == "END" else -1
        if depth == 0:
            start = mark.start()
            break
    return list(dict.fromkeys(re.findall(r"\b(?:THEN|ELSE)\s+'(\w+)'", text[start : end.end()])))


def _section(script: Script, columns: Mapping[str, Sequence[str]]) -> str:
    lines = [f"### {script.name}", ""]
    if script.views:
        lines += [f"**{script.header['question']}**", ""]
    lines += [_field(key, text) for key, text in script.header.items() if not (script.views and key == "question")]
    if script.views:
        lines.append(f"- columns: {', '.join(columns[script.name])}")
    return "\n".join([*lines, ""])


def _field(key: str, text: str) -> str:
    if key != "estimators":
        return f"- {key}: {text}"
    found = (_ESTIMATOR.match(line) for line in text.splitlines())
    named = [(", ".join(f"`{name}`" for name in m["names"].split(", ")), m["formula"]) for m in found if m]
    return "\n".join([f"- {key}:", *(f"  - {names}: {formula}" for names, formula in named)])


if __name__ == "__main__":
    write()
