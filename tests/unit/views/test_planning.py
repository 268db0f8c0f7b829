"""What DuckDB must plan, in counts: a view over views over views grows without anybody seeing it.

`python -m tests.bench.looks` has the seconds.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from batchpond.lake.schemas import TABLES
from batchpond.views import database, draft, refresh

# Operators of a plan that is not optimised. The lines of DuckDB differ by a few: 16,121 in 2.0.
OF_ONE_VIEW_MAX = 590
OF_ALL_VIEWS_MAX = 16_250
OF_MUCH_READ_VIEWS_MAX = {"attempts": 3, "request_attempts": 30, "responses_accepted": 30, "results": 85}


def _n_operators(node: dict[str, Any]) -> int:
    return 1 + sum(map(_n_operators, node.get("children", ())))


@cache
def _plans() -> dict[str, str]:
    """Return the plan of each view over the tables of an empty lens, not optimised, as JSON."""
    with database.empty() as connection:
        draft.as_tables(connection, dict.fromkeys(TABLES))
        connection.execute("PRAGMA disable_optimizer")
        return {
            script.name: connection.execute(f"EXPLAIN (FORMAT json) SELECT * FROM {script.name}").fetchall()[0][1]
            for script in refresh.scripts()
            if script.views
        }


@cache
def _sizes() -> dict[str, int]:
    """Return how many operators each view has."""
    return {name: sum(map(_n_operators, json.loads(plan))) for name, plan in _plans().items()}


def test_no_view_grows_past_what_is_planned_at_once() -> None:
    """The largest, and all together."""
    assert {name: size for name, size in _sizes().items() if size > OF_ONE_VIEW_MAX} == {}
    assert sum(_sizes().values()) <= OF_ALL_VIEWS_MAX


def test_views_that_many_others_read_stay_small() -> None:
    """Whatever they cost is paid as often as a view names them."""
    sizes = _sizes()
    assert {name: sizes[name] for name, most in OF_MUCH_READ_VIEWS_MAX.items() if sizes[name] > most} == {}


def test_what_has_a_row_per_answer_is_not_put_aside_for_a_second_reader() -> None:
    """It would be held with all its columns; of a million `costs` puts aside those alone that their study lacks."""
    kept = {name: re.findall(r'"CTE Name": "(\w+)"', _plans()[name]) for name in ("responses_accepted", "costs")}
    assert {name: {*found} for name, found in kept.items()} == {"responses_accepted": set(), "costs": {"apart"}}


def test_no_macro_stands_in_the_argument_of_a_macro() -> None:
    """An argument is copied wherever the macro names it: nested calls multiply. A column or LAMBDA binds it once."""
    macros = {name for script in refresh.scripts() for name in script.macros}
    assert [found for script in refresh.scripts() for found in _nested(script.text, macros)] == []


def test_a_macro_in_the_argument_of_a_macro_is_found() -> None:
    """However deep it stands; beside it is not in it, and neither is what a comment says."""
    macros = {"f", "g"}
    assert _nested("SELECT f(1 + (2 * g(x)), y)", macros) == ["f(... g(...) ...)"]
    assert _nested("SELECT f(x) + g(y), h(g(z)) -- f(g(x))", macros) == []
    assert _nested("CREATE OR REPLACE MACRO f(x) AS g(x) + 1", macros) == []


def _nested(text: str, macros: set[str]) -> list[str]:
    """Return the calls of macros whose arguments call one."""
    code = re.sub(r"--[^\n]*|'(?:[^']|'')*'|\bMACRO\s+\w+", " ", text)
    call = re.compile(rf"\b({'|'.join(sorted(macros))})\s*\(")
    return [
        f"{outer[1]}(... {inner[1]}(...) ...)"
        for outer in call.finditer(code)
        for inner in call.finditer(code, outer.end(), _end(code, outer.end()))
    ]


def _end(code: str, start: int) -> int:
    """Return where the parenthesis that was opened before `start` is closed."""
    depth = 1
    for at in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if not depth:
            return at
    return len(code)
