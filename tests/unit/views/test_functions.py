"""The statistical macros agree with scipy and statsmodels, on every row, in both tails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import special, stats

from batchpond.views import refresh
from tests.oracles import matched

Numbers = npt.NDArray[np.float64]
RELATIVE = 1e-9
FUNCTIONS = [script for script in refresh.scripts() if script.stage == "0_functions"]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an empty database with the macros in it."""
    with duckdb.connect(":memory:", config={"threads": 1}) as opened:
        for script in FUNCTIONS:
            opened.execute(script.text)
        yield opened


def evaluate(connection: duckdb.DuckDBPyConnection, expression: str, **columns: object) -> Numbers:
    """Evaluate an SQL expression over columns, in order; NULL becomes NaN."""
    given = pa.table({name: np.asarray(values) for name, values in columns.items()})
    connection.register("given", given)
    rows = connection.execute(f"SELECT {expression} FROM given").fetchall()
    connection.unregister("given")
    return np.array([np.nan if value is None else float(value) for (value,) in rows])


def assert_close(got: Numbers, expected: object, relative: float = RELATIVE) -> None:
    """Compare to 1e-9 relative, or 1e-12 absolute for values that are 0."""
    wanted = np.asarray(expected, dtype=np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    # Subnormal numbers have fewer digits.
    is_normal = np.abs(wanted) > 1e-300
    np.testing.assert_allclose(got[is_normal], wanted[is_normal], rtol=relative, atol=0)
    np.testing.assert_allclose(got[~is_normal], wanted[~is_normal], rtol=0, atol=1e-12)


def counts() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (k, n) over all n up to 40 and a spread of larger ones, near the middle and in both tails."""
    rng = np.random.default_rng(1)
    pairs = [(k, n) for n in range(41) for k in range(n + 1)]
    for n in (50, 99, 100, 333, 1000, 1074, 1075, 5001, 10**4, 10**5, 10**6):
        spread = rng.normal(n / 2, [[0.3], [2.0], [8.0]] * np.sqrt(np.full(3, n / 4.0)))
        pairs += [(int(k), n) for k in (*np.clip(spread.ravel(), 0, n), 0, 1, n // 2, n - 1, n)]
    k, n = np.array(pairs, dtype=np.int64).T
    return k, n


def test_wilson_matches_statsmodels(connection: duckdb.DuckDBPyConnection) -> None:
    """Wilson intervals equal statsmodels' at 95 and 99 %, and are NULL without data."""
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    k, n = counts()
    k, n = k[n > 0], n[n > 0]
    for alpha in (0.05, 0.01):
        lo, hi = proportion.proportion_confint(k, n, alpha, "wilson")
        z = float(stats.norm.isf(alpha / 2))
        got_lo = evaluate(connection, f"wilson_lo(k, n, {z!r})", k=k, n=n)
        np.testing.assert_allclose(got_lo, np.maximum(lo, 0), rtol=1e-9, atol=1e-15)  # statsmodels cancels at k = 0
        assert_close(evaluate(connection, f"wilson_hi(k, n, {z!r})", k=k, n=n), np.minimum(hi, 1))


def test_wilson_is_its_formula(connection: duckdb.DuckDBPyConnection) -> None:
    """Both ends solve (p - k/n)^2 = z^2 p (1-p) / n, up to n = 1e9."""
    k, n = counts()
    k, n = np.append(k[n > 0], [1, 10**8, 10**9 - 1]), np.append(n[n > 0], [10**9] * 3)
    z = 1.959963984540054
    for name in ("wilson_lo", "wilson_hi"):
        p = evaluate(connection, f"{name}(k, n)", k=k, n=n)
        share = k / n
        np.testing.assert_allclose((p - share) ** 2, z**2 * p * (1 - p) / n, rtol=1e-6, atol=1e-15)
        assert ((p <= share) if name == "wilson_lo" else (p >= share)).all()


def test_matched_differences_are_where_their_margins_say(connection: duckdb.DuckDBPyConnection) -> None:
    """At either end x, (d - x/s)^2 is the sum of the squared margins of d, and of x/s, recovered from scipy's ends."""
    rng = np.random.default_rng(2)
    b, c, rest = (rng.integers(0, size, 400) for size in (40, 40, 400))
    n = b + c + rest + 1
    m = b + c
    for end in ("lo", "hi"):
        x = evaluate(connection, f"matched_difference(b, c, n).{end}", b=b, c=c, n=n)
        wanted = [matched.end(*counts, is_upper=end == "hi") for counts in zip(b, c, n, strict=True)]
        np.testing.assert_allclose(x, wanted, rtol=1e-8, atol=1e-12)
        assert ((x <= (b - c) / n + 1e-12) if end == "lo" else (x >= (b - c) / n - 1e-12)).all()
        assert (np.abs(x) <= 1).all()
    assert (m > 0).any()
    variance = evaluate(connection, "matched_variance(b + c, b - c, n)", b=b, c=c, n=n)
    np.testing.assert_allclose(variance, (m + 1 - (b - c) ** 2 / (n + 2)) / (n + 2) ** 2, rtol=1e-12)


@pytest.mark.parametrize(("n", "told_apart"), [(20, 0.2), (40, 0.4), (190, 0.05)])
def test_matched_differences_hold_the_truth(connection: duckdb.DuckDBPyConnection, n: int, told_apart: float) -> None:
    """Over all counts, weighed by their probability: 95 % at least, however the pairs that differ are divided."""
    b, c = (side.ravel() for side in np.meshgrid(range(n + 1), range(n + 1)))
    is_likely = b + c <= stats.binom.isf(1e-6, n, told_apart)
    b, c = b[is_likely], c[is_likely]
    lo, hi = (evaluate(connection, f"matched_difference(b, c, {n}).{end}", b=b, c=c) for end in ("lo", "hi"))
    for share in (0.5, 0.6, 0.75, 0.9, 1.0):
        weight = stats.multinomial.pmf(
            np.stack([b, c, n - b - c], axis=1), n, [told_apart * share, told_apart * (1 - share), 1 - told_apart]
        )
        truth = told_apart * (2 * share - 1)
        assert weight[(lo <= truth + 1e-12) & (truth <= hi + 1e-12)].sum() >= 0.95


def test_detectable_differences_are_where_error_and_effect_meet_also_of_parts_of_a_vote(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Whatever the differences are, the effect is a number that its own error just tells from 0, or none up to 1 is."""
    draw = np.random.default_rng(5)
    seen = [draw.choice([-1, -0.5, -0.25, 0, 0.5, 0.75, 1], size=n, p=draw.dirichlet(np.full(7, 0.2)))
            for n in draw.integers(2, 80, 400)]  # fmt: skip
    n, d = np.array([len(one) for one in seen]), np.array([one.sum() for one in seen])
    q, reach = np.array([(one * one).sum() for one in seen]), draw.uniform(0.01, 0.6, len(seen))
    connection.register("given", pa.table({"n": n, "d": d, "q": q, "reach": reach}))
    rows = connection.execute("SELECT matched_difference_mde(reach, q, d, n) FROM given").fetchall()
    connection.unregister("given")
    size = np.where(q < abs(d), q / np.maximum(abs(d), 1e-9), 1.0)
    none, growth = 1 - 0.75 * size * abs(d) / (q + 1), 0.75 * size * (n + 2) / (q + 1)
    root = reach**2 * growth / 2 + np.sqrt((reach**2 * growth / 2) ** 2 + reach**2 * none)
    assert_close(np.array([np.inf if value is None else value for (value,) in rows]), np.where(root > 1, np.inf, root))
    assert 10 < (root > 1).sum() < 390


def test_exact_tests_match_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    """Sign test, McNemar and mid-p equal scipy's binomial to 1e-9 relative up to n = 1e6."""
    k, n = counts()
    tail = stats.binom.cdf(np.minimum(k, n - k), n, 0.5)
    exact = np.where(n > 0, np.minimum(1, 2 * tail), np.nan)
    assert_close(evaluate(connection, "binom_test_half(k, n)", k=k, n=n), exact)
    assert_close(evaluate(connection, "mcnemar_exact(k, n - k)", k=k, n=n), exact)
    midp = np.where(2 * k == n, 1.0, 2 * tail - stats.binom.pmf(k, n, 0.5))
    assert_close(evaluate(connection, "mcnemar_midp(k, n - k)", k=k, n=n), np.where(n > 0, midp, np.nan))


def test_binomial_tails_match_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    """Both binomial tails equal scipy's for small, middling and large p."""
    k, n = counts()
    k, n = k[n > 0], n[n > 0]
    for p in (1e-6, 0.01, 0.3, 0.5, 0.97):
        for name, expected in (("cdf", stats.binom.cdf(k, n, p)), ("sf", stats.binom.sf(k, n, p))):
            is_precise = expected > 1e-200  # scipy's own digits run out below
            got = evaluate(connection, f"binom_{name}(k, n, {p!r})", k=k, n=n)
            assert_close(got[is_precise], expected[is_precise])


@pytest.mark.parametrize(
    ("a", "b"),
    [(0.5, 0.5), (1, 1), (1, 30), (2, 5), (50, 50), (1e3, 10), (1e5, 20), (1e6, 1e6), (1e6, 3), (3, 1e6), (1e5, 6e5)],
)
def test_incomplete_beta_matches_scipy(connection: duckdb.DuckDBPyConnection, a: float, b: float) -> None:
    """The incomplete beta equals scipy's over 8 standard deviations each way, and its inverse undoes it."""
    mean = a / (a + b)
    x = np.clip(mean + np.sqrt(mean * (1 - mean) / (a + b + 1)) * np.linspace(-8, 8, 65), 1e-12, 1 - 1e-9)
    a_all, b_all = np.full(65, float(a)), np.full(65, float(b))
    assert_close(evaluate(connection, "ibeta(x, a, b)", x=x, a=a_all, b=b_all), special.betainc(a, b, x))
    p = np.array([1e-8, 0.001, 0.025, 0.2, 0.5, 0.8, 0.975])
    got = evaluate(connection, "beta_quantile(p, a, b)", p=p, a=np.full(7, float(a)), b=np.full(7, float(b)))
    assert_close(got, special.betaincinv(a, b, p))


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.5, 1e-8])
def test_clopper_pearson_matches_scipy(connection: duckdb.DuckDBPyConnection, alpha: float) -> None:
    """Clopper-Pearson equals scipy's beta quantiles up to n = 1e6."""
    k, n = counts()
    k, n = k[n > 0], n[n > 0]
    lo = np.where(k == 0, 0.0, special.betaincinv(np.maximum(k, 1), n - k + 1, alpha / 2))
    hi = np.where(k == n, 1.0, special.betainccinv(k + 1, np.maximum(n - k, 1), alpha / 2))
    assert_close(evaluate(connection, f"clopper_pearson_lo(k, n, {alpha!r})", k=k, n=n), lo)
    assert_close(evaluate(connection, f"clopper_pearson_hi(k, n, {alpha!r})", k=k, n=n), hi)


def test_normal_matches_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    """Normal tails keep nine digits out to z = 38, and the quantile undoes them."""
    z = np.concatenate([np.linspace(-37, 37, 741), [0.0, 1e-9, -1e-9, 2.5 * np.sqrt(2)]])
    assert_close(evaluate(connection, "normal_sf(z)", z=z), stats.norm.sf(z))
    assert_close(evaluate(connection, "normal_cdf(z)", z=z), stats.norm.cdf(z))
    assert_close(evaluate(connection, "normal_two_sided(z)", z=z), 2 * stats.norm.sf(np.abs(z)))
    p = np.concatenate([10.0 ** -np.arange(1, 300, 7), np.linspace(0.01, 0.99, 99), [1 - 1e-12]])
    np.testing.assert_allclose(evaluate(connection, "normal_quantile(p)", p=p), special.ndtri(p), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("df", [0.5, 1, 2, 3, 4, 7.3, 10, 51, 300, 1e4, 1e5])
def test_chi_square_matches_scipy(connection: duckdb.DuckDBPyConnection, df: float) -> None:
    """The chi-square tail equals scipy's from far below to far above the mean."""
    x = np.abs(df + np.sqrt(2 * df) * np.linspace(-6, 30, 73))
    x = np.concatenate([x, [1e-8, 0.1, 1, 5, 20, 200, 1400]])
    assert_close(evaluate(connection, "chi2_sf(x, df)", x=x, df=np.full(len(x), df)), stats.chi2.sf(x, df))


@pytest.mark.parametrize("df", [1, 2, 3, 4.5, 10, 55, 1e3, 1e6])
def test_student_t_matches_scipy(connection: duckdb.DuckDBPyConnection, df: float) -> None:
    """The tails and the quantile of Student's t equal scipy's from the middle to far out."""
    t = np.concatenate([np.linspace(-12, 12, 97), [1e-6, 40.0]])
    assert_close(evaluate(connection, "t_two_sided(t, df)", t=t, df=np.full(len(t), df)), 2 * stats.t.sf(np.abs(t), df))
    p = np.array([1e-5, 0.001, 0.025, 0.2, 0.3, 0.49, 0.5, 0.7, 0.95, 0.975, 0.9995])
    got = evaluate(connection, "t_quantile(p, df)", p=p, df=np.full(len(p), df))
    np.testing.assert_allclose(got, stats.t.ppf(p, df), rtol=1e-9, atol=1e-12)


def test_the_t_quantile_of_intervals_of_95_percent_matches_scipy(connection: duckdb.DuckDBPyConnection) -> None:
    """For any degrees of freedom from 1 on, whole or not, where the general inverse is taken no more."""
    df = np.concatenate([np.linspace(1, 60, 1181), np.geomspace(60, 1e9, 200)])
    np.testing.assert_allclose(evaluate(connection, "t_two_sided_95(df)", df=df), stats.t.isf(0.025, df), rtol=1e-12)
    got = evaluate(connection, "t_two_sided_95(n)", n=np.arange(1, 500))
    np.testing.assert_allclose(got, stats.t.isf(0.025, np.arange(1, 500)), rtol=1e-12)


def test_two_proportions_match_statsmodels(connection: duckdb.DuckDBPyConnection) -> None:
    """Interval and test equal statsmodels' of Agresti and Caffo."""
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    rng = np.random.default_rng(4)
    n1, n2 = rng.integers(1, 400, (2, 150))
    k1, k2 = rng.integers(0, n1 + 1), rng.integers(0, n2 + 1)
    columns = {"k1": k1, "n1": n1, "k2": k2, "n2": n2}
    lo, hi = proportion.confint_proportions_2indep(k1, n1, k2, n2, method="agresti-caffo", compare="diff")
    for name, expected in (("lo", lo), ("hi", hi)):
        got = evaluate(connection, f"two_proportions_{name}(k1, n1, k2, n2)", **columns)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
    found = (k1 + k2 > 0) & (k1 + k2 < n1 + n2)
    with np.errstate(divide="ignore", invalid="ignore"):  # its ratio, which is not looked at
        expected_p = proportion.test_proportions_2indep(k1, n1, k2, n2, method="agresti-caffo", compare="diff").pvalue
    found_p = evaluate(connection, "two_proportions_p(k1, n1, k2, n2)", **columns)
    assert_close(found_p, np.where(found, expected_p, np.nan))
    assert ((found_p < 0.05) == ((lo > 0) | (hi < 0)))[found].all()


def test_spread_that_rounding_makes_is_none(connection: duckdb.DuckDBPyConnection) -> None:
    """Ten items of which a judge said yes in one vote of three each are ten observations, not infinitely many."""
    for ends in ("wilson_mean(1 / 3, 10, se).lo", "wilson_mean(1 / 3, 10, se).hi", "mean_size(1 / 3, 10, se)"):
        none, rounded = evaluate(connection, ends, se=[0.0, 1.5e-9 / 2])
        assert none == rounded


def test_wilson_clustered_is_its_formula(connection: duckdb.DuckDBPyConnection) -> None:
    """Both ends solve (x - p)^2 = t^2 x (1-x) / n_eff, n_eff never above n; fewer than 5 clusters have no interval."""
    rng = np.random.default_rng(6)
    n, g = rng.integers(20, 400, 200), rng.integers(2, 40, 200)
    p, se = rng.uniform(0.02, 0.98, 200), rng.uniform(0.005, 0.2, 200)
    n_eff, t = np.minimum(n, p * (1 - p) / se**2), stats.t.ppf(0.975, g - 1)
    for name in ("lo", "hi"):
        x = evaluate(connection, f"wilson_clustered_{name}(p, n, se, g)", p=p, n=n, se=se, g=g)
        np.testing.assert_array_equal(np.isnan(x), g < 5)
        np.testing.assert_allclose((x - p)[g > 4] ** 2, (t**2 * x * (1 - x) / n_eff)[g > 4], rtol=1e-7, atol=1e-15)
        assert ((x <= p) if name == "lo" else (x >= p))[g > 4].all()


def smallest_share(n: int, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the sign test's minimum detectable share by scipy, NaN where there is none."""
    critical = [k for k in range((n + 1) // 2) if 2 * stats.binom.cdf(k, n, 0.5) <= alpha]
    return float(special.betaincinv(n - critical[-1], critical[-1] + 1, power)) if critical else np.nan


def test_minimum_detectable_share_has_the_power(connection: duckdb.DuckDBPyConnection) -> None:
    """The share found by SQL is scipy's, for every n up to 120, and has power 0.8 exactly."""
    n = np.array([*range(121), 500, 1001])
    got = evaluate(connection, "sign_test_mde(n)", n=n)
    assert_close(got, [smallest_share(int(size)) for size in n])
    assert np.isnan(got[:6]).all()
    assert not np.isnan(got[6:]).any()
    critical = evaluate(connection, "sign_test_critical(n)", n=n)
    power = stats.binom.sf(n[6:] - critical[6:] - 1, n[6:], got[6:])
    np.testing.assert_allclose(power, 0.8, rtol=1e-9)
    strict = evaluate(connection, "sign_test_mde(n, 0.01, 0.9)", n=n)
    assert_close(strict, [smallest_share(int(size), 0.01, 0.9) for size in n])


NULLS = [
    "wilson_lo(0, 0)", "wilson_hi(NULL, 4)", "wilson_lo(5, 4)", "wilson_lo(0, 9, NULL)", "wilson_hi(9, 9, NULL)",
    "clopper_pearson_lo(0, 0)", "clopper_pearson_hi(NULL, 3)",
    "clopper_pearson_hi(4, 3)", "binom_test_half(0, 0)", "binom_test_half(NULL, 3)", "binom_test_half(4, 3)",
    "mcnemar_exact(0, 0)", "mcnemar_midp(0, 0)", "mcnemar_midp(NULL, 1)", "matched_difference(0, 0, 0)",
    "sign_test_mde(0)", "sign_test_mde(NULL)", "chi2_sf(NULL, 1)", "chi2_sf(1, 0)", "normal_sf(NULL)",
    "ibeta(0.5, 0, 1)",
    "t_two_sided(1, 0)", "t_two_sided(NULL, 3)", "t_two_sided_95(0)", "t_two_sided_95(NULL)",
    "t_quantile(0.975, 0)", "t_quantile(0.975, NULL)", "t_quantile(1, 3)",
    "two_proportions_lo(0, 0, 1, 2)", "two_proportions_hi(1, 2, 0, 0)", "two_proportions_p(0, 3, 0, 4)",
    "two_proportions_p(0, 0, 1, 2)", "wilson_clustered_lo(0.5, 10, 0.1, 4)", "wilson_clustered_hi(NULL, 10, 0.1, 9)",
    "wilson_clustered_hi(0.5, 0, 0.1, 9)",
    "normal_quantile(0)", "normal_quantile(1)", "beta_quantile(NULL, 1, 1)", "beta_quantile(0.5, 0, 1)",
]  # fmt: skip


@pytest.mark.parametrize("expression", NULLS)
def test_no_data_is_null(connection: duckdb.DuckDBPyConnection, expression: str) -> None:
    """Nothing in, nothing out: never 0, 1 or NaN."""
    assert connection.execute(f"SELECT {expression}").fetchall() == [(None,)]


PER_ROW = [
    "mcnemar_exact(k, n - k)", "mcnemar_midp(k, n - k)", "binom_cdf(k, n, p)", "clopper_pearson_lo(k, n)",
    "clopper_pearson_hi(k, n)", "wilson_lo(k, n)", "chi2_sf(k, n)", "normal_quantile(p)", "normal_sf(p)",
    "sign_test_mde(n)", "t_quantile(p, n)", "t_two_sided(k, n)", "wilson_clustered_lo(p, n, p / 9, 7)",
    "two_proportions_p(k, n, 3, 9)", "matched_difference(k, n - k, 2 * n).lo",
]  # fmt: skip


@pytest.mark.parametrize("expression", PER_ROW)
def test_rows_do_not_mix(connection: duckdb.DuckDBPyConnection, expression: str) -> None:
    """A row's value is the same whatever rows, NULLs and filters surround it.

    DuckDB 1.5 reads captured values from other rows in some forms of list_reduce.
    """
    rng = np.random.default_rng(3)
    n = rng.integers(1, 90, 3000)
    k, p = rng.integers(0, n + 1), rng.uniform(0.01, 0.99, 3000)
    k_or_null = pa.array(k, mask=rng.random(3000) < 0.2)
    connection.register("given", pa.table({"k": k_or_null, "n": n, "p": p, "keep": rng.random(3000) < 0.5}))
    connection.execute("CREATE OR REPLACE TABLE held AS SELECT * FROM given")
    connection.unregister("given")
    together = connection.execute(f"SELECT k, n, p, {expression} FROM held WHERE keep").fetchall()
    for row in together[:8]:
        query = f"SELECT {expression} FROM (SELECT ?::BIGINT AS k, ?::BIGINT AS n, ?::DOUBLE AS p)"
        assert connection.execute(query, list(row[:3])).fetchall() == [(row[3],)]


@pytest.mark.parametrize("name", ["bp", "acc", "x", "k", "m", "t", "u", "i"])
def test_a_callers_column_names_do_not_matter(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """A column that is called like a step of a macro is not captured by it."""
    values = f"clopper_pearson_lo({name}, 10), normal_sf({name}), chi2_sf({name}, 3)"
    query = f"SELECT {values} FROM (VALUES (4)) AS one ({name})"
    expected = connection.execute("SELECT clopper_pearson_lo(4, 10), normal_sf(4), chi2_sf(4, 3)").fetchall()
    assert connection.execute(query).fetchall() == expected


def test_macros_work_from_a_file_of_the_oldest_storage_version(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    """Stored with STORAGE_VERSION v1.0.0 and opened read-only, macros give what they give in memory."""
    path = tmp_path / "macros.duckdb"
    with duckdb.connect(":memory:") as writer:
        writer.execute(f"ATTACH '{path}' AS kept (STORAGE_VERSION 'v1.0.0')")
        writer.execute("USE kept")
        for script in FUNCTIONS:
            writer.execute(script.text)
        writer.execute("USE memory")
        writer.execute("DETACH kept")
    query = "SELECT mcnemar_exact(3, 9), clopper_pearson_lo(3, 12), sign_test_mde(12), chi2_sf(4, 1), wilson_hi(3, 9)"
    with duckdb.connect(str(path), read_only=True) as reader:
        assert reader.execute(query).fetchall() == connection.execute(query).fetchall()
