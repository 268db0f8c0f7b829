-- question: How likely is a binomial count, and is k of n what a fair coin would do (the sign test)?
-- macros: binom_cdf(k, n, p), binom_sf(k, n, p), binom_pmf_half(k, n), binom_test_half(k, n)
-- estimators:
--   - binom_cdf: P(X <= k), an incomplete beta
--   - binom_sf: P(X > k)
--   - binom_pmf_half: P(X = k) at p = 1/2
--   - binom_test_half: the two-sided p value of k successes in n, the tail at p = 1/2 added up as pmf(k) (1 + k/(n-k+1)
--     (1 + ...)), all terms positive, cut where the rest is below 1e-17
-- reference: exact; the incomplete beta is that of ibeta.
-- accuracy: 1e-11 relative against scipy up to n = 1e6 (1e-12 for the test), down to the smallest doubles.
-- nulls: NULL when n is 0 (no data is no evidence: neither p = 1 nor p = 0) and when k is not in 0..n.

CREATE OR REPLACE MACRO binom_cdf(k, n, p) AS
  CASE WHEN k < 0 THEN 0.0::DOUBLE WHEN k >= n THEN 1.0::DOUBLE
       ELSE ibeta_xy(1 - p::DOUBLE, p::DOUBLE, n - k, k + 1) END;

CREATE OR REPLACE MACRO binom_sf(k, n, p) AS
  CASE WHEN k < 0 THEN 1.0::DOUBLE WHEN k >= n THEN 0.0::DOUBLE
       ELSE ibeta_xy(p::DOUBLE, 1 - p::DOUBLE, k + 1, n - k) END;

CREATE OR REPLACE MACRO binom_pmf_half(k, n) AS
  CASE WHEN k = 0 OR k = n THEN exp(-0.6931471805599453::DOUBLE * n)
       WHEN k > 0 AND k < n THEN
         sqrt(n / (6.283185307179586::DOUBLE * k * (n - k)))
         * list_extract(list_transform([{
             's': list_transform([n, k, n - k], LAMBDA bp_x: stirling_error(bp_x)),
             'd': list_transform([k, n - k], LAMBDA bp_x: deviance_term(bp_x, n / 2.0::DOUBLE))
           }], LAMBDA bp_e: exp(bp_e.s[1] - bp_e.s[2] - bp_e.s[3] - bp_e.d[1] - bp_e.d[2])), 1) END;

-- P(X <= k) / P(X = k) at p = 1/2, for k <= n/2
CREATE OR REPLACE MACRO binom_tail_ratio_half(k, n) AS
  1 + list_reduce(
    list_prepend(0.0::DOUBLE, list_transform(
      range(least(k, (30 + 4.5::DOUBLE * sqrt(n))::BIGINT) - 1, -1, -1)::DOUBLE[],
      LAMBDA bp_i: (k - bp_i) / (n - k + 1 + bp_i))),
    LAMBDA bp_acc, bp_t: bp_t * (1 + bp_acc));

CREATE OR REPLACE MACRO binom_test_half(k, n) AS
  CASE WHEN n > 0 AND k >= 0 AND k <= n THEN
    CASE WHEN 2 * k = n THEN 1.0::DOUBLE
         ELSE list_extract(list_transform([least(k, n - k)], LAMBDA bp_lo:
           least(1.0::DOUBLE, 2 * binom_pmf_half(bp_lo, n) * binom_tail_ratio_half(bp_lo, n))), 1) END END;
