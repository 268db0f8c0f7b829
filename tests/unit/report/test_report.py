"""The report: what is in it follows the data, its bytes follow the facts, and nothing in it acts."""

# ruff: noqa: RUF001 - a dash, a minus and a times sign are what is meant
from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result
from statsmodels.stats.multitest import multipletests

from batchpond.cli.frame import Invocation, root
from batchpond.errors import UsageError
from batchpond.lake.schemas import ITEMS
from batchpond.lake.store import Store
from batchpond.text import UNSAFE_BUT_NEWLINE
from batchpond.views import read
from batchpond_report import build, markdown, page
from batchpond_report.numbers import Kind, interval, shown
from batchpond_report.parts import Exhibit, Facts, Report
from batchpond_report.sections.answers import title_of
from tests.rigs import swept
from tests.rigs.findings import Told
from tests.rigs.lakes import LakeBuilder
from tests.rigs.report import ATTACK, Page
from tests.rigs.report import build as build_lake

HOSTILE = "hostile"
EVERYWHERE = {"study", "coverage", "cost"}
OF_PAIRS = {"consistency", "position", "ranking", "matrix", "disagreements"}
OF_SINGLES = {"repeats", "agreement", "compliance", "ratings", "calibration", "pressure"}
INERT = {
    "html", "head", "meta", "title", "style", "body", "a", "header", "main", "nav", "section", "article", "footer",
    "h1", "h2", "h3", "h4", "p", "ol", "li", "span", "div", "dl", "dt", "dd", "figure", "figcaption", "details",
    "summary",
    "pre", "code", "table", "caption", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "line", "rect", "text",
    "tspan",
}  # fmt: skip


@dataclass
class Made:
    """A report with its page."""

    report: Report
    html: str
    page: Page


def made(lake: Path, study: str) -> Made:
    report = build.build(lake, study)
    html = page.render(report)
    return Made(report, html, Page(html))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_lake(tmp_path_factory.mktemp("report") / "lake")


@pytest.fixture(scope="module")
def every(lake: Path) -> Made:
    return made(lake, "every")


@pytest.fixture(scope="module")
def hostile(lake: Path) -> Made:
    return made(lake, HOSTILE)


def call(lake: Path, *arguments: str) -> Result:
    """Run `report` in this process."""
    return CliRunner().invoke(
        root, ["--lake", str(lake), "report", *arguments], obj=Invocation(), standalone_mode=False
    )


def test_sections_appear_only_where_the_study_has_the_data(every: Made, hostile: Made) -> None:
    """A study of all tasks has every chapter that needs no rounds or failures; one of pairs has none of the others'."""
    assert {section.key for section in every.report.sections} >= (EVERYWHERE | OF_PAIRS | OF_SINGLES) - {"adaptive"}
    found = {section.key for section in hostile.report.sections}
    assert found >= EVERYWHERE | OF_PAIRS | {"failures"}
    assert not found & OF_SINGLES
    more = {"compliance-corrected", "matrix-corrected", "length", "length-candidates"}
    assert more <= {exhibit.key for exhibit in every.report.exhibits()}
    assert not more & {exhibit.key for exhibit in hostile.report.exhibits()}


@pytest.mark.parametrize("name", ["every", "hostile"])
def test_nothing_on_a_page_acts(name: str, request: pytest.FixtureRequest) -> None:
    """No element that runs, loads or embeds, no handler, no address but fragments and data, no hidden characters."""
    found: Made = request.getfixturevalue(name)
    assert {tag for tag, _ in found.page.elements} <= INERT
    for tag, attributes in found.page.elements:
        assert not [
            key for key in attributes if key.startswith("on") or key in {"src", "srcset", "action", "background"}
        ]
        address = attributes.get("href")
        assert address is None or address.startswith(("#", "data:text/csv;")), tag
        assert "url(" not in (attributes.get("style") or "")
    assert not UNSAFE_BUT_NEWLINE.search(found.html)
    (policy,) = [meta["content"] for meta in found.page.all("meta") if meta.get("http-equiv")]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert "url(" not in found.html.partition("<style>")[2].partition("</style>")[0]


def test_hostile_answers_are_shown_as_text(hostile: Made) -> None:
    """What a model wrote is there to read: the attack's own text, with its control characters as escapes."""
    text = "".join(hostile.page.text)
    assert "<script>alert(1)</script>" in text
    assert "\\u202egnp.\\x1b[31m" in text
    assert "<500>" in text
    assert "<script" not in markdown.render(hostile.report).replace("```", "").split("## Answers as")[0]


def test_a_page_is_well_formed_for_those_who_hear_it(every: Made) -> None:
    """Ids are unique and referred to, tables have captions and scopes, headings do not skip a level."""
    ids = [attributes["id"] for _, attributes in every.page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [str(a["href"])[1:] for a in every.page.all("a") if str(a["href"]).startswith("#")]
    labels = [
        str(attributes["aria-labelledby"]) for _, attributes in every.page.elements if "aria-labelledby" in attributes
    ]
    assert set(targets) | set(labels) <= set(ids)
    assert every.page.all("html") == [{"lang": "en"}]
    assert len(every.page.all("caption")) == len(every.page.all("table"))
    assert all(head.get("scope") in {"row", "col"} for head in every.page.all("th"))
    levels = [int(tag[1]) for tag, _ in every.page.elements if tag in {"h1", "h2", "h3", "h4"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_every_exhibit_has_its_n_its_query_and_its_rows(lake: Path, every: Made, hostile: Made) -> None:
    """Each download holds the rows of its query; the queries run where users' do, and give as many rows.

    That each of them binds there is tried of all that are declared.
    """
    for found in swept.some(every, swept=[hostile]):
        links = {str(a["download"]): str(a["href"]) for a in found.page.all("a") if "download" in a}
        for exhibit in found.report.exhibits():
            content = base64.b64decode(links[f"{exhibit.key}.csv"].partition("base64,")[2]).decode()
            assert len(list(csv.reader(io.StringIO(content)))) == len(exhibit.data) + 1
            if exhibit.figure is not None:
                assert "n = " in exhibit.caption
        for exhibit in swept.every(4, (one for one in found.report.exhibits() if one.sql)):
            rows = read.run_query(lake, exhibit.sql)
            assert rows.num_rows == len(exhibit.data)
            assert rows.column_names == exhibit.data.columns


def test_markdown_holds_the_same_tables(every: Made) -> None:
    """Every chapter and every exhibit of the page, and no markup of its own."""
    text = markdown.render(every.report)
    for section in every.report.sections:
        assert f"## {markdown.plain(section.title)}\n" in text
    assert text.count("**Table ") == len(every.report.exhibits())
    assert text.count("| ---") >= len(every.report.exhibits())


def test_amounts_are_no_formula_in_markdown() -> None:
    """Between two `$` some pages read mathematics."""
    assert markdown.plain("$1.20 spent, $2.00 expected") == r"\$1.20 spent, \$2.00 expected"


def test_a_case_about_nothing_named_has_a_title_all_the_same() -> None:
    row = dict.fromkeys(("item_lo", "item_hi", "rubric_id", "template_id", "request_model", "candidate", "unit_id"))
    assert title_of(row, "About") == "About"
    assert title_of({**row, "request_model": "m"}, "About") == "About · m"
    assert title_of({**row, "item_lo": "a", "item_hi": "b"}, "About") == "About: a and b"


def test_findings_stand_at_the_top_with_the_numbers_of_their_exhibits(every: Made, hostile: Made) -> None:
    """Each names the exhibit that shows it, and every share it tells is printed there; Markdown too."""
    findings = every.report.findings()
    assert {finding.key for finding, _ in findings} >= {
        "consistency",
        "power",
        "ranking",
        "compliance-pairs",
        "pressure",
    }
    told = {exhibit.key: exhibit for exhibit in every.report.exhibits()}
    for finding, section in findings:
        assert finding.key in {part.key for part in section.parts if not isinstance(part, Facts)}
        cells = " ".join(cell.text for row in markdown.table(told[finding.key]).rows for cell in row)
        unseen = [share for share in re.findall(r"[\d.]+\u202f%", finding.text) if share not in cells]
        assert (finding.key, unseen) == (finding.key, [])
    text = markdown.render(every.report)
    assert text.index("## Findings") < text.index("## Study")
    top = every.html[every.html.index('id="findings"') : every.html.index("<nav")]
    assert top.count("<li>") == len(findings) == top.count('<a href="#')
    assert "<svg/onload" not in hostile.html


def test_sections_say_the_same_one_by_one(lake: Path, hostile: Made) -> None:
    """What other tests read of a section that is made alone is what it says in a report."""
    told: dict[str, list[str]] = {}
    for finding, _ in hostile.report.findings():
        told.setdefault(finding.key, []).append(finding.text)
    assert dict(Told(lake, HOSTILE)) == told


def test_each_number_of_a_finding_leads_to_where_it_stands(every: Made) -> None:
    """To the exhibit that shows it, and inside `browse` to the judgments; digits of names lead nowhere."""
    shares = {share for finding, _ in every.report.findings() for share in re.findall(r"[\d.]+\u202f%", finding.text)}
    assert shares
    inside = page.render(every.report, lambda named: f"/judgments?{len(named)}&of=s")
    for text, address in ((every.html, "#"), (inside, "/judgments?")):
        top = text[text.index('id="findings"') : text.index("<nav")]
        linked = re.findall(r'<a class="number" href="([^"]+)">([^<]+)</a>', top)
        assert all(href.startswith(address) for href, _ in linked)
        assert shares <= {number for _, number in linked}
        ids = set(re.findall(r'id="([^"]+)"', text))
        assert {href[1:] for href, _ in linked if href.startswith("#")} <= ids
    said = page.numbered(
        "gpt-5.4-mini (o3, v2/7) agrees in 7 of 1,900 pairs, \u22120.3, p = 5.2 \u00d7 10⁻⁹ & more.", "#a"
    )
    assert re.findall(r">([^<]+)</a>", said) == ["7", "1,900", "\u22120.3", "5.2 \u00d7 10⁻⁹"]
    assert "&amp; more." in said


def test_long_tables_are_folded_and_nothing_of_them_is_left_out(tmp_path: Path) -> None:
    """More than fifteen rows: the first twelve, and the others behind a fold that needs no script."""
    lake = LakeBuilder(tmp_path / "lake")
    rows = [{"provider": "p", "request_model": f"m{n:02}", "template_id": "t", "rubric_id": "r", "thinking": "none",
             "study": "many", "import_key": f"k{n}", "item_first": "a", "item_second": "b", "outcome": "decided",
             "verdict": "first"} for n in range(20)]  # fmt: skip
    lake.imported(rows)
    lake.build()
    found = made(tmp_path / "lake", "many")
    assert found.html.count('<tr class="more">') >= 8
    assert "All 20 rows" in found.html
    assert all(f"m{n:02}" in found.html for n in range(20))


def test_a_figure_says_how_many_rows_of_its_table_it_leaves_out(tmp_path: Path) -> None:
    """Bars of more cells than fit, a ranking of more items than are drawn: none is cut without a word."""
    lake = LakeBuilder(tmp_path / "lake")
    rows = [{"provider": "p", "request_model": f"m{n:03}", "template_id": "t", "rubric_id": "r", "thinking": "none",
             "study": "many", "import_key": f"{n}{outcome}", "item_first": f"i{n % 70}",
             "item_second": f"i{(n + 1) % 70}",
             "outcome": outcome, "verdict": "first" if outcome == "decided" else None}
            for n in range(110) for outcome in ("decided", "refused")]  # fmt: skip
    lake.imported(rows)
    lake.build()
    found = made(tmp_path / "lake", "many")
    told = {exhibit.key: exhibit for exhibit in found.report.exhibits()}
    for key, n_drawn in (("coverage", 100), ("ranking", 60)):
        figure = told[key].figure
        assert figure is not None
        n_left = len(told[key].frame) - n_drawn
        assert figure.frame[figure.encoding["label"]].n_unique() == n_drawn
        assert f"Rows of the table that are not drawn: {n_left}." in found.html.partition(f'id="{key}-figure"')[2]
    assert "not drawn: 0" not in found.html


def test_answers_of_every_task_are_there_to_read(tmp_path: Path) -> None:
    """Generated answers, ratings, labels, one judge's verdicts: beside what they are about, and what was read."""
    lake = LakeBuilder(tmp_path / "lake")
    lake.rows(ITEMS, [{"item_hash": "h1", "item_id": "i1", "text": "What is a pond?"}])
    reads = {
        "generation": {}, "likert": {"score": 4.0}, "pressure": {"label": "soft_flip"},
        "compliance": {"verdict": "true"},
    }  # fmt: skip
    planned = [
        {"slot": slot, "request_id": f"r{slot}", "task": task, "template_id": f"t-{task}", "item_first": "i1",
         "item_second": None, "item_first_hash": "h1", "unit_id": "u1", "pair_id": None}
        for slot, task in enumerate(reads)
    ]  # fmt: skip
    lake.plan(planned, study="all")
    lake.sent("A1", "S1", [row["request_id"] for row in planned], study="all")
    lake.lines("A1", [
        {"request_id": f"r{slot}", "outcome": "decided", "text": f"answer to {task}", "verdict": None} | read
        for slot, (task, read) in enumerate(reads.items())
    ])  # fmt: skip
    lake.ended("A1")
    lake.build()
    text = markdown.render(build.build(tmp_path / "lake", "all"))
    shown = text.partition("## Answers as they came")[2]
    for task, word in zip(reads, (None, "4", "soft\\_flip", "true"), strict=True):
        assert f"answer to {task}" in shown
        assert word is None or f"read as {word}" in shown
    assert "What is a pond?" in shown


@pytest.mark.parametrize("differs", ["candidate_first", "turn_no", "task", "repeat_no"])
def test_what_disagrees_is_what_is_shown(tmp_path: Path, differs: str) -> None:
    """Of one item, judgments of several candidates, turns, tasks or repeats: the text is that of what was opposed."""
    values = {"candidate_first": ("alpha", "beta"), "turn_no": (1, 2), "task": ("prompts", "compliance"),
              "repeat_no": (1, 2)}  # fmt: skip
    rows = []
    for judge, verdict in (("m1", "true"), ("m2", "false")):
        for value in values[differs]:
            is_opposed = value == values[differs][1]
            says = verdict if is_opposed else "true" if differs != "repeat_no" else "tie"
            rows.append(
                {"study": "s", "task": "compliance", "template_id": "t", "rubric_id": "r", "provider": "p",
                 "request_model": judge, "thinking": "none", "unit_id": "u", "item_first": "i", "candidate_first": "c",
                 "turn_no": 1, differs: value, "verdict": None if says == "tie" else says,
                 "outcome": "refused" if says == "tie" else "decided",
                 "explanation": f"{judge} is {'the one' if is_opposed else 'ANOTHER'}"}
            )  # fmt: skip
    lake = LakeBuilder(tmp_path / "lake")
    lake.imported([{"import_key": f"k{n}"} | row for n, row in enumerate(rows)])
    lake.build()
    shown = Told(tmp_path / "lake").text("disagreements")
    assert ("m1 is the one" in shown, "m2 is the one" in shown, "ANOTHER" in shown) == (True, True, False)


def test_a_fence_is_longer_than_what_it_holds(hostile: Made) -> None:
    """An answer with a fence of its own stays inside of ours."""
    text = markdown.render(hostile.report)
    assert "````text\n" in text
    inside = text.split("````text\n")[1].split("\n````\n")[0]
    assert inside.startswith("</pre></td><script>")
    assert "```" in inside
    assert "\n```" in ATTACK


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, Kind.NUMBER, "–"), (float("nan"), Kind.SHARE, "–"), (0.75824, Kind.SHARE, "75.8\u202f%"),
        (1234567, Kind.COUNT, "1,234,567"), (-0.13379, Kind.NUMBER, "−0.134"), (12.345, Kind.NUMBER, "12.3"),
        (1234.5, Kind.NUMBER, "1,234"), (0.05, Kind.P, "0.050"), (4.7e-6, Kind.P, "4.7 × 10⁻⁶"), (1.0, Kind.P, "1"),
        (0.0, Kind.P, "<\u202f1 × 10⁻³⁰⁰"), (0.0123, Kind.USD, "$0.0123"), (12.3, Kind.USD, "$12.30"),
        (0.00001234, Kind.NUMBER, "1.23 × 10⁻⁵"), (0, Kind.NUMBER, "0"), (-0.0004, Kind.SHARE, "0.0\u202f%"),
        (-0.0006, Kind.SHARE, "−0.1\u202f%"), (999.7, Kind.NUMBER, "1,000"), (999.4, Kind.NUMBER, "999"),
    ],
)  # fmt: skip
def test_numbers_are_printed_as_in_a_paper(value: float | None, kind: Kind, text: str) -> None:
    assert shown(value, kind) == text


def test_an_open_end_of_an_interval_is_infinite() -> None:
    assert interval(0.1, None, Kind.NUMBER) == interval(0.1, float("inf"), Kind.NUMBER) == "[0.100, ∞]"
    assert interval(None, -1.0, Kind.NUMBER) == "[−∞, −1.00]"
    assert interval(0.0, 0.5, Kind.SHARE) == "[0.0, 50.0]"
    assert interval(-0.0004, 0.5, Kind.SHARE) == "[0.0, 50.0]"


def test_the_command_writes_one_page_and_replaces_nothing_unasked(lake: Path, hostile: Made, tmp_path: Path) -> None:
    """The same lake gives the same bytes; a file that is there stays, and so do figures, unless --force is given."""
    path, folder = tmp_path / "r.html", tmp_path / "figures"
    done = call(lake, HOSTILE, "-o", str(path), "--figures", str(folder), "--json")
    assert path.read_text() == hostile.html
    figures = {f"{figure.key}.{form}" for figure in hostile.report.figures() for form in ("svg", "pdf", "png")}
    assert {file.name for file in folder.iterdir()} == figures
    document = json.loads(done.stdout)
    assert document["fingerprint"] == hostile.report.fingerprint
    assert len(document["figures"]) == len(figures)
    path.write_text("mine")
    for arguments in (("-o", str(path)), ("-o", str(tmp_path / "new.html"), "--figures", str(folder))):
        refused = call(lake, HOSTILE, *arguments)
        assert isinstance(refused.exception, UsageError)
        assert "exists already" in str(refused.exception)
    assert path.read_text() == "mine"
    assert not (tmp_path / "new.html").exists()


def test_what_cannot_be_reported_is_refused_with_a_next_step(lake: Path, tmp_path: Path) -> None:
    """No such study, a choice of several, an empty lake: nothing is written."""
    Store.init(tmp_path / "empty")
    path = str(tmp_path / "r.html")
    cases = (
        (lake, ("nobody",), "no study 'nobody'"),
        (lake, (), "several studies"),
        (tmp_path / "empty", (), "no study"),
    )
    for place, arguments, words in cases:
        refused = call(place, *arguments, "-o", path)
        assert isinstance(refused.exception, UsageError)
        assert words in str(refused.exception)
        assert refused.exception.hint
    assert not Path(path).exists()


def test_without_the_extra_markdown_is_printed_and_a_page_is_refused(
    lake: Path, hostile: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages that draw are asked for before anything is read; Markdown needs none of them."""
    for name in ("jinja2", "vl_convert"):
        monkeypatch.setitem(sys.modules, name, None)
    refused = call(lake, HOSTILE, "-o", str(tmp_path / "r.html"))
    assert isinstance(refused.exception, UsageError)
    assert "pip install 'batchpond[report]'" in str(refused.exception.hint)
    printed = call(lake, HOSTILE, "--format", "md").stdout
    assert printed == markdown.render(hostile.report)


def test_the_methods_say_what_the_report_prints_and_no_more(every: Made, hostile: Made) -> None:
    """Each estimator of an exhibit by its head, with what it cites; of tasks and tests those that the study has."""
    told = {}
    for name, found in (("every", every), ("hostile", hostile)):
        (methods,) = [section for section in found.report.sections if section.key == "methods"]
        (estimators,) = [part for part in methods.parts if isinstance(part, Facts)]
        told[name] = (" ".join(methods.paragraphs), dict(estimators.rows))
    words, rows = told["every"]
    assert "Bradley and Terry" in words
    assert "items in general" in words
    assert "Benjamini and Hochberg" in words
    assert "Task likert: a rating" in words
    assert rows["metric_consistency"].count("same winner: n_consistent_win / n_decided")
    assert "Cohen 1960" in rows["metric_agreement"]
    assert "Wilson 1927" in rows["wilson"]  # which only those cite
    assert "metric_pressure" in rows
    words, rows = told["hostile"]
    assert "Task likert" not in words
    assert not {"metric_pressure", "metric_agreement"} & rows.keys()
    (asked,) = [part for part in hostile.report.exhibits() if part.key == "asked"]
    assert asked.frame.select("task", "n_items", "n_calls").rows() == [("pairwise", 3, 6)]
    assert '<details class="folded">' in hostile.html
    assert "<u>t</u>" not in hostile.html


CORRECTED = {"q_bh", "q_these", "q", "holm", "holm_claimed"}


def together(every: Made) -> Exhibit:
    """Return the table of all tests."""
    (found,) = [exhibit for exhibit in every.report.exhibits() if exhibit.key == "tests"]
    return found


def test_every_printed_p_is_in_the_table(every: Made) -> None:
    """As often as it is printed elsewhere; of the win matrix, whose q is printed, the p that it is made of.

    Each pair of the matrix has two rows, whose one p is in the table once.
    """
    printed = Counter(
        value
        for exhibit in every.report.exhibits()
        if exhibit.key != "tests"
        for column in exhibit.columns
        if column.kind is Kind.P and column.name not in CORRECTED
        for value in exhibit.frame[column.name].drop_nulls().to_list()[:: 2 if exhibit.key == "matrix" else 1]
    )
    found = together(every).frame.filter((pl.col("finding") != "win matrix") | (pl.col("target") != "in general"))
    assert printed
    assert Counter(found["p"].to_list()) == printed


def test_q_and_holm_are_statsmodels(every: Made) -> None:
    """Over all p of the report; the caption says how many are found by each."""
    frame = together(every).data
    assert frame["p"].is_sorted()
    p = frame["p"].to_numpy()
    np.testing.assert_allclose(frame["q"].to_numpy(), multipletests(p, method="fdr_bh")[1], rtol=1e-7)
    np.testing.assert_allclose(frame["holm"].to_numpy(), multipletests(p, method="holm")[1], rtol=1e-7)
    for name, values in (("n_found", p), ("n_found_q", frame["q"]), ("n_found_holm", frame["holm"])):
        assert set(frame[name]) == {int(np.sum(np.asarray(values) < 0.05))}
    assert f"n = {len(p):,} p values" in together(every).caption
