"""The SQL files, their order and headers, and the page about them."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from batchpond.errors import LakeError
from batchpond.lake.attempts import Phase
from batchpond.lake.schemas import TABLES
from batchpond.model import CELL_COLUMNS
from batchpond.views import database, refresh
from tests.rigs import sql_readme
from tests.rigs.sql import table, views_over

SCRIPTS = {script.name: script for script in refresh.scripts()}
METRICS = [name for name, script in SCRIPTS.items() if script.stage == sql_readme.METRICS]
CLAUSES = "between by exists is join macro materialized nulls over partition recursive rows"
# What takes a cell's columns from the lake's tables, or gives them other names.
LISTING = {
    "cell", "plan_current", "results", "result_attempts", "results_pairwisellm", "pair_judgments", "item_judgments",
    "calls", "coverage",
}  # fmt: skip
OF_A_COLUMN = ("_lo", "_hi", "_se")
VIEW_SCRIPTS = [script for script in SCRIPTS.values() if script.stage != "0_functions"]
by_name = pytest.mark.parametrize("script", VIEW_SCRIPTS, ids=lambda script: script.name)


@by_name
def test_a_view_file_holds_one_view_of_its_name_under_a_full_header(script: refresh.Script) -> None:
    """grain, question, source, then one CREATE OR REPLACE VIEW."""
    assert {"grain", "question", "source"} <= set(script.header)
    assert all(script.header.values())
    code = re.sub(r"--[^\n]*", "", script.text).strip()
    assert code.startswith(f"CREATE OR REPLACE VIEW {script.name} AS")
    assert code.count(";") == 1


# What a study claims stands in `studies.config`, which is JSON.
OF_JSON = frozenset({"report_claims"})


@by_name
def test_a_view_uses_no_json_and_joins_by_name(script: refresh.Script) -> None:
    """No JSON functions but in one that reads settings, and no comma joins or CTEs that hide what a file depends on."""
    code = re.sub(r"--[^\n]*", "", script.text)
    assert script.name in OF_JSON or not re.search(r"\bjson|->", code, re.IGNORECASE)
    ctes = {name.lower() for name in re.findall(r"(\w+) AS (?:MATERIALIZED )?\(\s*(?:SELECT|WITH)", code)}
    assert not re.search(r"\b(?:FROM|JOIN)\s+\w+(?:\s+AS\s+\w+)?\s*,", code)
    defined = {name for other in SCRIPTS.values() for name in other.views} | set(TABLES)
    assert not ctes & defined


def test_keywords_are_upper_case() -> None:
    """What DuckDB reserves, and the words that clauses are made of, stand in one case in every file."""
    reserved = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'").fetchall()
    keywords = {name for (name,) in reserved} | set(CLAUSES.split())
    for script in SCRIPTS.values():
        code = re.sub(r"--[^\n]*|'(?:[^']|'')*'", " ", script.text)
        assert not set(re.findall(r"(?<![\w.])[a-z]+(?![\w.])", code)) & keywords, script.name


# Equal ballots are counted once, as lists: joining judges to judges row by row would be quadratic in them.
# A jury's judges stand in a list beside its verdict: found anew, they would double the plan of whatever measures them.
# Where repeats differ, or people are split, a vote is several words.
PACKED = frozenset({
    "agreement_patterns", "agreement_pairs", "agreement_votes", "paired_counts", "jury_verdicts", "cascade_verdicts",
    "truths",
})  # fmt: skip


def test_counting_views_keep_to_the_portable_subset() -> None:
    """What Spark and the others do not know stays out of sql/1_core and sql/3_report."""
    foreign = re.compile(
        r"\b(QUALIFY|EXCLUDE|REPLACE\s*\(|COLUMNS\s*\(|LIST\s*\(|ARRAY_AGG|STRING_AGG|STRUCT_PACK|UNNEST|PIVOT|ANTI|SEMI"
        r"|POSITIONAL|ASOF|GROUP BY ALL|ORDER BY ALL|IS DISTINCT|IS NOT DISTINCT)\b|::|\[|\{|\blambda\b",
        re.IGNORECASE,
    )
    for script in VIEW_SCRIPTS:
        if script.stage in {"1_core", "3_report"} and script.name not in PACKED:
            found = foreign.search(re.sub(r"--[^\n]*", "", script.text))
            assert found is None, f"{script.name}: {found}"


def test_order_follows_from_what_a_file_reads(tmp_path: Path) -> None:
    """Whatever the names and folders, a file comes after those it needs."""
    files = {
        "1_a/a": 'CREATE OR REPLACE VIEW a AS SELECT f(x) AS x FROM c JOIN "b" ON true; -- FROM z',
        "1_a/b": "CREATE OR REPLACE VIEW b AS SELECT 'FROM a' AS x FROM plan;",
        "2_b/c": "create or replace view c as select * from (select * from b);",
        "3_c/f": "CREATE OR REPLACE MACRO f(x) AS x + 1;",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.sql").write_text(text)
    names = [script.name for script in refresh.load(tmp_path)]
    assert names.index("b") < names.index("c") < names.index("a")
    assert names.index("f") < names.index("a")


def test_a_circle_of_views_is_an_error_that_names_it(tmp_path: Path) -> None:
    """a reads b reads a."""
    (tmp_path / "1_a").mkdir()
    for one, other in (("a", "b"), ("b", "a")):
        (tmp_path / "1_a" / f"{one}.sql").write_text(f"CREATE OR REPLACE VIEW {one} AS SELECT * FROM {other};")
    with pytest.raises(LakeError, match=r"circle: (a -> b -> a|b -> a -> b)"):
        refresh.load(tmp_path)


def test_a_name_defined_twice_is_an_error(tmp_path: Path) -> None:
    """The second file would silently win."""
    for folder in ("1_a", "2_b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.sql").write_text("CREATE OR REPLACE VIEW x AS SELECT 1;")
    with pytest.raises(LakeError, match=r"1_a\.sql and 2_b\.sql"):
        refresh.load(tmp_path)


def test_the_words_of_a_grain_are_values_of_the_same_columns() -> None:
    """Whoever reads `cell` in a header, and whoever groups by the value, have the same columns in the same order."""
    with views_over({}) as connection:
        for word, names in database.WORDS.items():
            row = ", ".join(f"NULL AS {name}" for name in names)
            spelled = connection.execute(f"SELECT {word}.* FROM (SELECT {word}(t) AS {word} FROM (SELECT {row}) AS t)")
            assert tuple(column[0] for column in spelled.description) == names


def test_the_columns_of_a_cell_are_listed_where_they_come_from_alone() -> None:
    """A view that groups by cells or joins them says so in a word: another dimension is fewer than ten files' work."""
    code = {name: re.sub(r"--[^\n]*", "", script.text) for name, script in SCRIPTS.items()}
    assert {name for name, text in code.items() if re.search(rf"\b{CELL_COLUMNS[-1]}\b", text)} == LISTING
    assert len(LISTING) < 10


def test_cells_that_lack_the_same_columns_are_one_cell() -> None:
    """However they are brought together: what was imported may have no template, or no thinking."""
    with views_over(
        {"calls": table([{"provider": "p"}, {"provider": "p"}, {"provider": "p", "thinking": "low"}])}
    ) as c:
        c.execute("CREATE OR REPLACE TEMP VIEW own AS SELECT cell(calls) AS cell FROM calls")
        for sql, n in {
            "FROM (SELECT cell, count(*) FROM own GROUP BY cell)": 2,
            "FROM (SELECT DISTINCT cell FROM own)": 2,
            "FROM own JOIN (SELECT DISTINCT cell FROM own) AS other USING (cell)": 3,
            "FROM own WHERE cell IN (SELECT cell FROM own WHERE cell.thinking IS NULL)": 2,
            "FROM own WHERE EXISTS (FROM own AS other WHERE other.cell = own.cell AND other.cell.thinking IS NULL)": 2,
            "FROM (SELECT count(*) OVER (PARTITION BY cell) AS n FROM own) WHERE n = 2": 2,
        }.items():
            assert c.execute(f"SELECT count(*) {sql}").fetchall() == [(n,)], sql


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_header_has_the_keys_of_its_stage(name: str) -> None:
    """Views say grain, question and source; metrics and macros their estimators, reference and nulls too."""
    assert sql_readme.lacking(SCRIPTS[name]) == []


@pytest.mark.parametrize("key", sql_readme.KEYS[sql_readme.METRICS])
def test_a_metric_without_a_key_is_refused(key: str) -> None:
    """Each key by itself, and an estimator that is prose."""
    full = SCRIPTS["metric_consistency"].text
    kept = re.sub(rf"-- {key}:.*\n(--  .*\n)*", "", full)
    assert kept != full
    assert sql_readme.lacking(refresh.parse("metric_x", sql_readme.METRICS, kept)) == [f"metric_x has no {key}:"]


def test_an_estimator_that_is_prose_is_refused() -> None:
    """A line of `estimators` names its columns, and keys stand in one order."""
    full = SCRIPTS["metric_consistency"].text
    prose = full.replace("- consistency_decided: ", "- the rate of consistent wins, ")
    assert prose != full
    assert sql_readme.lacking(refresh.parse("metric_x", sql_readme.METRICS, prose))
    grain, question, *rest = full.splitlines(keepends=True)
    swapped = refresh.parse("metric_x", sql_readme.METRICS, "".join([question, grain, *rest]))
    assert sql_readme.lacking(swapped)


@pytest.mark.parametrize("name", METRICS)
def test_each_number_of_a_metric_has_an_estimator(name: str) -> None:
    """Estimators name columns that exist, and each rate, interval and p value is one of them."""
    with views_over({}) as connection:
        columns = {column[0]: column[1] for column in connection.execute(f"DESCRIBE {name}").fetchall()}
    explained = set(sql_readme.estimators(SCRIPTS[name]))
    stems = {column.removesuffix(suffix) for column in columns for suffix in OF_A_COLUMN}
    assert explained <= set(columns) | stems
    told = {column for column in columns for suffix in ("", *OF_A_COLUMN) if column.removesuffix(suffix) in explained}
    assert {column for column, kind in columns.items() if kind in {"DOUBLE", "BOOLEAN"}} <= told


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if script.stage == sql_readme.FUNCTIONS])
def test_estimators_of_a_function_file_name_its_macros(name: str) -> None:
    """Every macro that the header offers has its formula."""
    script = SCRIPTS[name]
    offered = set(re.findall(r"\b([a-z_0-9]+)\(", script.header["macros"])) & set(script.macros)
    assert offered
    assert offered <= set(sql_readme.estimators(script)) <= set(script.macros)


def test_a_list_in_a_header_keeps_its_lines() -> None:
    """A line indented further continues the item above it; a line that only looks like a key is not one."""
    lists = "-- estimators:\n--   - a: one\n--     more: of it\n--   - b: two\n"
    text = f"-- question: What?\n{lists}-- nulls: none.\n\nSELECT"
    header = refresh.parse("x", sql_readme.METRICS, text).header
    assert header == {"question": "What?", "estimators": "- a: one more: of it\n- b: two", "nulls": "none."}


# --- the page -------------------------------------------------------------------------------------


def test_words_of_a_case_are_all_that_it_can_give() -> None:
    """A CASE within the CASE counts, one beside it does not."""
    text = "CASE a WHEN 1 THEN 'no' END AS b, CASE WHEN c THEN CASE d WHEN 'e' THEN 'f' ELSE 'g' END ELSE 'h' END AS i"
    assert sql_readme.words(text, "i") == ["f", "g", "h"]
    assert sql_readme.words(text, "b") == ["no"]


def test_the_states_of_attempts_are_those_of_the_fold() -> None:
    """The page lists the enum's words: the view has no other."""
    assert set(sql_readme.words(SCRIPTS["attempts"].text, "attempt_state")) == set(Phase)


def test_the_page_about_the_views_is_up_to_date() -> None:
    """`python -m tests.rigs.sql_readme` was run after the last change."""
    assert (refresh.sql_folder() / "README.md").read_text("utf-8") == sql_readme.render()


def test_the_page_opens_with_one_line_for_each_view() -> None:
    """Every table and view, each once, before anything else is told."""
    page = sql_readme.render()
    listed = re.findall(r"^\| [`[](\w+)[`\]]\S* \|", page.partition("## What reads what")[0], re.MULTILINE)
    macros = [script.name for script in SCRIPTS.values() if not script.views]
    assert sorted(listed) == sorted([*(view.name for view in database.views()), *macros])


def test_the_graph_has_every_view_and_leads_only_forward() -> None:
    """Every arrow of the graphs goes from something earlier in running order to a view that names it."""
    lines = re.findall(r"^  (\w+(?: & \w+)*) --> (\w+)$", sql_readme.render(), re.MULTILINE)
    arrows = [(one, other) for many, other in lines for one in many.split(" & ")]
    order = [view.name for view in database.views()]
    assert {name for _, name in arrows} == {name for name, script in SCRIPTS.items() if script.views}
    assert all(order.index(one) < order.index(other) and one in SCRIPTS[other].needs for one, other in arrows)
