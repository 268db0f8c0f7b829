"""Of verdicts on single outputs every repeat counts, as a part of its output's: asking more often moves no rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from tests.rigs.metrics import Numbers, column, of_items
from tests.rigs.sql import Row
from tests.unit.views.test_metrics_corrected import OF_THESE, ppi

REPEATS = (1, 2, 3, 5)
Place = tuple[str, str, str]
Said = dict[Place, list[float]]


def asked(seed: int) -> tuple[list[Row], Said, dict[Place, float]]:
    """Return messy verdicts on outputs of two candidates, up to four each: rows, votes, people's labels."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    votes: Said = defaultdict(list)
    labels = {}
    for statement, unit, candidate in ((s, u, c) for s in range(7) for u in range(12) for c in "ab"):
        sure = rng.beta(2, 1.2)
        place = (f"r{statement}", f"u{statement}-{unit}", candidate)
        about = {"rubric_id": place[0], "unit_id": place[1], "item": f"{place[1]}-{candidate}", "candidate": candidate}
        for repeat in range(rng.integers(1, 5)):
            word = str(rng.choice(["unparsed", "refused", "said"], p=(0.1, 0.05, 0.85)))
            if word == "said":
                votes[place].append(float(rng.random() < sure))
                word = str(bool(votes[place][-1])).lower()
            rows.append(about | {"repeat_no": repeat, "verdict": word})
        if rng.random() < 0.6:
            labels[place] = float(sure > 0.6)
            rows.append(about | {"provider": "human", "verdict": str(bool(labels[place])).lower()})
    return rows, votes, labels


def by_statement(places: Sequence[Place], values: Numbers) -> float:
    """Return the error of a mean, clustered by statement (CR1), by a loop."""
    sums: dict[str, float] = defaultdict(float)
    for place, value in zip(places, values - values.mean(), strict=True):
        sums[place[0]] += value
    g = len(sums)
    return float(np.sqrt(g / (g - 1) * sum(one**2 for one in sums.values())) / len(values))


def wilson(p: float, n: float, t: float) -> list[float]:
    """Return Wilson's ends of a share."""
    half = t * np.sqrt(p * (1 - p) / n + t * t / 4 / n / n)
    return [float((p + t * t / 2 / n + side * half) / (1 + t * t / n)) for side in (-1, 1)]


def ends(row: Row, name: str, target: str = "") -> list[float]:
    """Return an interval's ends."""
    return [row[f"{name}_{end}{target}"] for end in ("lo", "hi")]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rates_are_loops_over_all_votes(seed: int) -> None:
    """Per statement, over all, of two candidates and corrected by labels, an output is the mean of its votes."""
    rows, votes, labels = asked(seed)
    views = (
        "metric_compliance",
        "metric_compliance_overall",
        "metric_compliance_paired",
        "metric_compliance_corrected",
    )
    each, overall, paired, corrected = of_items(rows, *views)
    parts = {place: float(np.mean(said)) for place, said in votes.items()}
    assert any(0 < part < 1 for part in parts.values())
    for row in (row for row in each if row["provider"] != "human"):
        values = np.array([part for (rubric, _, candidate), part in parts.items()
                           if (rubric, candidate) == (row["rubric_id"], row["candidate"])])  # fmt: skip
        assert (row["n_valid"], row["n_compliant"]) == (len(values), np.sum(values > 0.5))
        p, n = values.mean(), len(values)
        assert row["compliance"] == pytest.approx(p)
        wanted = wilson(p, p * (1 - p) * n / values.var(ddof=1), stats.t.ppf(0.975, n - 1))
        assert ends(row, "compliance") == pytest.approx(wanted, rel=1e-6)
    for row in (row for row in overall if row["provider"] != "human"):
        places = [place for place in parts if place[2] == row["candidate"]]
        values = np.array([parts[place] for place in places])
        p, n, se = values.mean(), len(values), by_statement(places, values)
        naive = values.std() / np.sqrt(n)
        told = [row[name] for name in ("compliance", "compliance_se", "compliance_se_naive")]
        assert told == pytest.approx([p, se, naive])
        size = p * (1 - p) / max(se, naive) ** 2
        assert ends(row, "compliance") == pytest.approx(wilson(p, size, stats.t.ppf(0.975, 6)), rel=1e-6)
        these = wilson(p, p * (1 - p) * n / values.var(ddof=1), stats.t.ppf(0.975, n - 1))
        assert ends(row, "compliance", OF_THESE) == pytest.approx(these, rel=1e-6)
    (pair,) = (row for row in paired if row["provider"] != "human")
    both = [(parts[place], parts[*place[:2], "b"]) for place in parts if place[2] == "a" and (*place[:2], "b") in parts]
    a, b = np.array(both).T
    assert [pair[name] for name in ("n", "rate_a", "rate_b", "n_a_only", "n_b_only")] == pytest.approx(
        [len(a), a.mean(), b.mean(), np.sum(a > b), np.sum(a < b)]
    )
    flip = abs(np.sum(a - b)) / np.sqrt(np.sum((a - b) ** 2))
    assert pair[f"p_diff{OF_THESE}"] == pytest.approx(2 * stats.norm.sf(flip), rel=1e-6)
    for row in corrected:
        own = {place: part for place, part in parts.items() if place[2] == row["candidate"]}
        y, f = np.array([(labels[place], own[place]) for place in own if place in labels]).T
        rest = np.array([own[place] for place in own if place not in labels])
        weight, estimate, se = ppi(y, f, rest)
        names = (
            "ppi_weight",
            "ppi_compliance",
            f"ppi_compliance_se{OF_THESE}",
            "sensitivity",
            "specificity",
            "compliance",
        )
        whole = float(np.mean(np.r_[f, rest]))
        right = np.sum(y * f) / np.sum(y), np.sum((1 - y) * (1 - f)) / np.sum(1 - y)
        assert [row[name] for name in names] == pytest.approx([weight, estimate, se, *right, whole])
        rate = (rest.mean() + right[1] - 1) / (sum(right) - 1)
        assert row["rogan_gladen_compliance"] == pytest.approx(min(1.0, max(0.0, rate)))
        yes, no = f[y == 1], f[y == 0]
        error = rest.var() / len(rest) + (1 - rate) ** 2 * no.var() / len(no) + rate**2 * yes.var() / len(yes)
        assert row[f"rogan_gladen_compliance_se{OF_THESE}"] == pytest.approx(np.sqrt(error) / (sum(right) - 1))


def test_asking_more_often_moves_no_rate_and_leaves_nothing_out() -> None:
    """With 1, 2, 3 and 5 repeats rates are the planted ones, where majorities would be off by up to .07."""
    rng, n = np.random.default_rng(5), 600
    sure = {"a": rng.beta(3, 2, n), "b": rng.beta(1.5, 2, n)}
    rows: list[Row] = []
    for repeats, candidate, unit in ((m, c, u) for m in REPEATS for c in "ab" for u in range(n)):
        about = {"study": f"s{repeats}", "rubric_id": f"r{unit % 6}", "unit_id": f"u{unit}", "candidate": candidate}
        about |= {"item": f"u{unit}{candidate}"}
        rows += [about | {"repeat_no": repeat, "verdict": str(bool(rng.random() < sure[candidate][unit])).lower()}
                 for repeat in range(repeats)]  # fmt: skip
    each, overall, paired = of_items(rows, "metric_compliance", "metric_compliance_overall", "metric_compliance_paired")
    for row in overall:
        assert (row["n_valid"], row["n_null"]) == (n, 0)
        assert row["compliance"] == pytest.approx(sure[row["candidate"]].mean(), abs=0.05)
    for row in paired:
        assert row["diff"] == pytest.approx(sure["a"].mean() - sure["b"].mean(), abs=0.06)
    each = [row for row in each if row["candidate"] == "b"]
    widths = column(each, "compliance_hi") - column(each, "compliance_lo")
    by_repeats = np.reshape(widths, (len(REPEATS), 6)).mean(axis=1)
    assert all(fewer > more for fewer, more in combinations(by_repeats, 2))


def test_few_statements_have_an_interval_for_these() -> None:
    """Of two to four statements there is none for statements in general, and one for other prompts under these."""
    rng = np.random.default_rng(9)
    rows: list[Row] = []
    designs = (("own", 3, 1, False), ("shared", 4, 1, True), ("several", 2, 3, False))
    for study, statements, outputs, is_shared in designs:
        for statement, unit, output in np.ndindex(statements, 20, outputs):
            prompt = f"u{unit}" if is_shared else f"u{statement}-{unit}"
            about = {"study": study, "rubric_id": f"r{statement}", "unit_id": prompt, "candidate": "c"}
            chance = 0.3 + 0.6 * (unit % 2)
            rows.append(about | {"item": f"{prompt}-{output}", "verdict": str(bool(rng.random() < chance)).lower()})
    (found,) = of_items(rows, "metric_compliance_overall")
    told = {row["study"]: row for row in found}
    assert [ends(row, "compliance") for row in found] == [[None, None]] * 3
    row = told["own"]
    wanted = wilson(row["compliance"], 60, stats.norm.ppf(0.975))
    assert ends(row, "compliance", OF_THESE) == pytest.approx(wanted, rel=1e-6)
    for study in ("shared", "several"):
        sums: dict[str, list[float]] = defaultdict(list)
        for given in (given for given in rows if given["study"] == study):
            sums[given["unit_id"]].append(given["verdict"] == "true")
        row, g = told[study], len(sums)
        p, n = row["compliance"], row["n_valid"]
        variance = g / (g - 1) * sum((sum(one) - p * len(one)) ** 2 for one in sums.values()) / n / n
        wanted = wilson(p, min(n, p * (1 - p) / variance), stats.t.ppf(0.975, g - 1))
        assert ends(row, "compliance", OF_THESE) == pytest.approx(wanted, rel=1e-6)
