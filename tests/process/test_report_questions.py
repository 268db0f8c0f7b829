"""Ten questions of a reader who was given the report alone, answered by reading it, and held against the raw lake.

The study is the demo's, whose judges' bias and essays' grades are planted, with words for its report and labels of
people. What the report says is read out of its text, of the page and of Markdown; what is right is worked out from the
lake's Parquet files, with none of batchpond's SQL.
"""

from __future__ import annotations

import html
import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import pytest

import batchpond
from batchpond import demo
from tests.rigs import forked

TITLE, AUTHORS = "Three judges of twenty essays", ("Ada Vermeulen", "Bo Iglesias")
N_LABELLED, WRONG_SHARE = 80, 0.15
TRUE_BIAS = {"claude-haiku-4-5": 0.0, "gpt-5.4-mini": 0.9, "gemini-2.5-flash-lite": -0.7}
POINT = 0.00051  # half of the last digit of a share in per cent


def run(lake: Path, *arguments: str) -> str:
    done = forked.run("--lake", str(lake), *arguments, env=os.environ)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the demo's lake, with words for its report, and what people say of some pairs."""
    folder = tmp_path_factory.mktemp("questions")
    lake = folder / "lake"
    run(lake, "demo", "--json")
    shutil.copytree(demo.DATA, folder / "study")
    authors = ", ".join(f'"{author}"' for author in AUTHORS)
    with (folder / "study" / "study.toml").open("a") as file:
        file.write(f'\n[report]\ntitle = "{TITLE}"\nauthors = [{authors}]\nnotes = "Essays of one class."\n')
    run(lake, "plan", str(folder / "study" / "study.toml"))
    batchpond.Lake(lake).import_judgments(labels(Raw(lake)), study="demo")
    return lake


@pytest.fixture(scope="module", params=["md", "html"])
def text(lake: Path, request: pytest.FixtureRequest) -> str:
    """Return what a reader sees of the report in one of its forms: lines, and rows of tables with | between cells."""
    if request.param == "md":
        return re.sub(r"\\([\\`*_\[\]#|~!$])", r"\1", html.unescape(run(lake, "report", "--format", "md")))
    path = lake.parent / "report.html"
    run(lake, "report", "--output", str(path), "--force")
    return Seen(path.read_text()).text


@pytest.fixture(scope="module")
def raw(lake: Path) -> Raw:
    return Raw(lake)


class Seen(HTMLParser):
    """The text of a page, every block on a line, a row of a table as Markdown has it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0
        self.feed(page)
        self.close()

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in {"style", "svg"}
        self.parts.append("| " if tag in {"td", "th"} else "" if tag in {"span", "a", "strong"} else "\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in {"style", "svg"}
        self.parts.append({"td": " ", "th": " ", "tr": "|\n"}.get(tag, ""))

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data if data.strip() else "")


class Raw:
    """What the Parquet files of a lake hold, put together by their ids alone."""

    def __init__(self, lake: Path) -> None:
        def table(name: str) -> pl.DataFrame:
            return pl.read_parquet(lake / name / "**/*.parquet", hive_partitioning=False)

        self.plan, self.responses, self.events = table("plan"), table("responses"), table("events")
        self.items = table("items").with_columns(
            grade=pl.col("metadata").map_elements(lambda one: json.loads(one)["grade"], return_dtype=pl.Int64)
        )
        found = self.plan.join(table("judgments").select("request_id", "verdict", "outcome"), on="request_id")
        self.votes = found.filter(pl.col("verdict").is_in(["first", "second"])).with_columns(
            lo=pl.min_horizontal("item_first", "item_second"), hi=pl.max_horizontal("item_first", "item_second"),
            is_first=pl.col("verdict") == "first",
            winner=pl.when(pl.col("verdict") == "first").then("item_first").otherwise("item_second"),
        )  # fmt: skip

    def twice(self, model: str, without: str = "") -> pl.DataFrame:
        """Return the pairs of a judge with a winner in both orders, under each template, but those of an item."""
        votes = self.votes.filter(pl.col("request_model") == model, pl.col("lo") != without, pl.col("hi") != without)
        both = votes.group_by("template_id", "lo", "hi").agg(
            pl.len(), n_first=pl.col("is_first").sum(), n_winners=pl.col("winner").n_unique()
        )
        return both.filter(pl.col("len") == 2)

    def logodds(self, model: str, without: str = "") -> float:
        """Return by how much a place is favoured: half the log of McNemar's odds ratio."""
        flips = self.twice(model, without)["n_first"].value_counts().rows()
        n = dict(flips)
        return 0.5 * math.log((n.get(2, 0) + 0.5) / (n.get(0, 0) + 0.5))


def labels(raw: Raw) -> pl.DataFrame:
    """Return what people say: of two essays the one with the better grade, but now and then the other."""
    grades, dice = dict(raw.items.select("item_id", "grade").iter_rows()), random.Random(7)
    pairs = raw.plan.filter(pl.col("direction") == "forward").select("item_first", "item_second").unique()
    rows = []
    for first, second in dice.sample(sorted(pairs.rows()), N_LABELLED):
        is_first = (grades[first] > grades[second]) != (dice.random() < WRONG_SHARE)
        rows.append({"item_first": first, "item_second": second, "verdict": "first" if is_first else "second"})
    same = {"rubric_id": "overall_quality", "provider": "human", "model": "people"}
    return pl.DataFrame(rows).with_columns(pl.lit(value).alias(name) for name, value in same.items())


def answer(text: str, pattern: str) -> re.Match[str]:
    """Return where the report answers."""
    found = re.search(pattern, re.sub(r"[\s\u202f]+", " ", text))
    assert found is not None, pattern
    return found


def share(printed: str) -> float:
    return float(printed) / 100


def row(text: str, title: str, start: str) -> dict[str, str]:
    """Return the first row of a table that begins so, by its heads."""
    of_table = text[text.index(title) :].splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in of_table if line.startswith("|")]
    return dict(zip(rows[0], next(one for one in rows if one[0].startswith(start)), strict=True))


def sigmoid(logodds: float) -> float:
    return 1 / (1 + math.exp(-logodds))


def test_which_judge_is_most_consistent(text: str, raw: Raw) -> None:
    said = answer(text, r"Of 3 judges, (\S+) is the most consistent: .*? for ([\d.]+) % \[.*?\] of ([\d,]+) pairs.*?"
                        r"; (\S+) is the least, with ([\d.]+) %")  # fmt: skip
    right: dict[str, Any] = {name: (raw.twice(name)["n_winners"] == 1).mean() for name in TRUE_BIAS}
    best, worst = max(right, key=right.__getitem__), min(right, key=right.__getitem__)
    assert (said[1], said[4]) == (best, worst)
    assert share(said[2]) == pytest.approx(right[best], abs=POINT)
    assert share(said[5]) == pytest.approx(right[worst], abs=POINT)
    assert int(said[3].replace(",", "")) == len(raw.twice(best))


def test_who_favours_which_place_and_by_how_much(text: str, raw: Raw) -> None:
    for name, planted in TRUE_BIAS.items():
        found = re.search(rf"{re.escape(name)} favours the one shown (first|second): of two equals it names the first "
                          r"([\d.]+) % \[([\d.]+), ([\d.]+)\]", re.sub(r"[\s\u202f]+", " ", text))  # fmt: skip
        assert (found is None) == (planted == 0), name
        if found is not None:
            assert found[1] == ("first" if planted > 0 else "second")
            assert share(found[2]) == pytest.approx(sigmoid(raw.logodds(name)), abs=0.005)
            assert share(found[3]) < sigmoid(planted) < share(found[4])


def strengths(lo: Any, hi: Any, n_lo: Any, n: Any) -> Any:
    """Return the log-strengths of Bradley and Terry's model, by Newton's steps."""
    theta = np.zeros(max(hi) + 1)
    for _ in range(12):
        p = 1 / (1 + np.exp(theta[hi] - theta[lo]))
        residual, weight = n_lo - n * p, n * p * (1 - p)
        slope = np.bincount(lo, residual, len(theta)) - np.bincount(hi, residual, len(theta))
        between = np.zeros((len(theta), len(theta)))
        np.add.at(between, (lo, hi), weight)
        between += between.T
        theta = theta + np.linalg.pinv(np.diag(between.sum(1)) - between) @ slope
    return theta


def test_who_won_and_how_surely(text: str, raw: Raw) -> None:
    """The best grade; and as many others as are not told apart from it, by pairs drawn anew, differences at once."""
    said = answer(text, r"(\w+) is first of (\d+) items: places (\d+) to (\d+) fit the data, and it is not told apart "
                        r"from (\d+) other")  # fmt: skip
    names = sorted(raw.items["item_id"])
    pairs = raw.votes.group_by("lo", "hi").agg(n_lo=(pl.col("winner") == pl.col("lo")).sum(), n=pl.len())
    pairs = pairs.sort("lo", "hi")
    lo, hi = (np.searchsorted(names, pairs[side].to_numpy()) for side in ("lo", "hi"))
    n_lo, n = pairs["n_lo"].to_numpy(), pairs["n"].to_numpy()
    found, dice = strengths(lo, hi, n_lo, n), np.random.default_rng(3)
    weights = (np.bincount(dice.integers(0, len(lo), len(lo)), minlength=len(lo)) for _ in range(200))
    drawn = np.stack([strengths(lo, hi, n_lo * weight, n * weight) for weight in weights])
    best = int(np.argmax(found))
    errors = (found[best] - found) / np.maximum((drawn[:, [best]] - drawn).std(0), 1e-9)
    n_differences = len(names) * (len(names) - 1) // 2
    n_level = int((errors < -NormalDist().inv_cdf(0.025 / n_differences)).sum()) - 1
    grades = dict(raw.items.select("item_id", "grade").iter_rows())
    assert (said[1], int(said[2]), said[3]) == (names[best], len(names), "1")
    assert grades[said[1]] == max(grades.values())
    assert int(said[5]) == int(said[4]) - 1
    assert abs(int(said[5]) - n_level) <= 1


def test_what_it_cost(text: str, raw: Raw) -> None:
    said = answer(text, r"([\d,]+) simulated answers would have cost \$([\d.]+)")
    assert said[1] == f"{len(raw.responses):,}"
    assert said[2] == f"{raw.responses['cost_usd'].sum():.2f}"


def read_by(rule: dict[str, str]) -> Callable[[str | None], bool]:
    """Return whether a text says exactly one of the two answers that a rule names."""
    tag = re.compile(
        re.escape(rule["prefix"])
        + rf"\s*({re.escape(rule['first'])}|{re.escape(rule['second'])})\s*"
        + re.escape(rule["suffix"]),
        re.IGNORECASE,
    )
    return lambda text: len({found.upper() for found in tag.findall(text or "")}) == 1


def rule(text: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(row(text, "How answers are read", "pairwise")["words"])
    return found


def test_how_an_answer_was_read(text: str, raw: Raw) -> None:
    """By the rule that the methods print, read here by another reader, the same requests have a verdict."""
    is_read = read_by(rule(text))
    answer(text, r"Task pairwise: which of two texts is better: exactly one of the two answers")
    mine = {name for name, said in raw.responses.select("request_id", "text").iter_rows() if is_read(said)}
    assert mine == {*raw.votes["request_id"]}


def test_how_many_answers_could_not_be_read(text: str, raw: Raw) -> None:
    is_read = read_by(rule(text))
    n_read = sum(map(is_read, raw.responses["text"]))
    said = answer(text, r"; ([\d,]+) were answered, ([\d,]+) of them with a verdict")
    n_people = N_LABELLED
    assert (said[1], said[2]) == (f"{len(raw.responses) + n_people:,}", f"{n_read + n_people:,}")
    n_left_out = answer(text, r"Left out: ([\d,]+) answers without a verdict")[1]
    assert n_left_out == f"{len(raw.responses) - n_read:,}"


def test_whether_people_agree(text: str, raw: Raw) -> None:
    """Each judge under each template, on the pairs that people labelled."""
    held = labels(raw).select(
        lo=pl.min_horizontal("item_first", "item_second"), hi=pl.max_horizontal("item_first", "item_second"),
        truth=pl.when(pl.col("verdict") == "first").then("item_first").otherwise("item_second"),
    )  # fmt: skip
    right = raw.votes.join(held, on=["lo", "hi"]).group_by("template_id", "request_model").agg(
        pl.len(), agreed=(pl.col("winner") == pl.col("truth")).mean()
    )  # fmt: skip
    assert len(right) == 15
    for template, model, n, agreed in right.iter_rows():
        said = answer(text, rf"\| {template} ?\| {re.escape(model)} ?\| human/majority ?\| (\d+) ?\| ([\d.]+) %")
        assert int(said[1]) == n, (template, model)
        assert share(said[2]) == pytest.approx(agreed, abs=POINT), (template, model)


def test_what_could_not_be_found_at_this_size(text: str, raw: Raw) -> None:
    """The judge without a planted bias, and the smallest that would have shown: by its error, items left out."""
    said = answer(text, r"No favoured place is seen in (\S+); naming the first of two equals ([\d.]+) % of the time")
    (unbiased,) = (name for name, planted in TRUE_BIAS.items() if planted == 0)
    names = list(raw.items["item_id"])
    moved = [raw.logodds(unbiased, name) - raw.logodds(unbiased) for name in names]
    error = math.sqrt((len(names) - 2) ** 2 / len(names) ** 2 * sum(one**2 for one in moved))
    assert said[1] == unbiased
    assert share(said[2]) == pytest.approx(sigmoid((2.09 + 0.86) * error), abs=0.02)


def test_what_was_asked_of_whom(text: str, raw: Raw) -> None:
    said = row(text, "What was asked of whom", "pairwise")
    plan = raw.plan
    models = {f"{provider}/{model}" for provider, model in plan.select("provider", "request_model").unique().rows()}
    assert {name.partition(" ")[0] for name in said["models"].split(", ")} == models
    assert {*said["templates"].split(", ")} == {*plan["template_id"]}
    assert {*said["rubrics"].split(", ")} == {*plan["rubric_id"]}
    counts: dict[str, Any] = {
        "items": len({*plan["item_first"], *plan["item_second"]}), "pairs": plan["pair_id"].n_unique(),
        "asked": plan["repeat_no"].max(), "questions": plan["request_id"].n_unique(),
    }  # fmt: skip
    assert {name: int(said[name].replace(",", "")) for name in counts} == counts
    reverse = plan.filter(pl.col("direction") == "reverse")["pair_id"].n_unique()
    assert said["in both orders"].replace("\u202f", " ") == f"{100 * reverse / counts['pairs']:.1f} %"
    for template in plan["template_id"].unique():  # and in which words
        assert re.search(rf"{template}:?\n", text), template


def test_how_to_cite_it(text: str, raw: Raw) -> None:
    newest = raw.events.filter(pl.col("kind") == "planned").sort("ord")["study_version"][-1]
    year = str(raw.events["occurred_at"].dt.year().max())
    names = ", ".join(AUTHORS)
    said = answer(text, rf"{names}\. {TITLE} \((\d+)\)\. Study demo, version (\w+), data fingerprint (\w+)\.")
    assert (said[1], said[2]) == (year, newest)
    assert answer(text, r"Data fingerprint \|? ?(\w+)")[1].startswith(said[3])
    entry = answer(
        text, rf"@misc\{{demo-{newest[:8]}, author = \{{([^}}]*)\}}, title = \{{([^}}]*)\}}, year = \{{(\d+)\}}"
    )
    assert (entry[1], entry[2], entry[3]) == (" and ".join(AUTHORS), TITLE, year)


def test_what_is_said_is_for_a_reader_and_not_for_whoever_types_commands(text: str) -> None:
    """Where an option of a command is named, the command stands before it: a reader need not know whose it is."""
    assert not re.search(r"[a-z][:;,] --[a-z]", text)
    answer(text, r"what being shown first adds is estimated and no part .{0,120}; batchpond rank --no-position")
