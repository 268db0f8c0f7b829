-- question: What is the smallest share above 1/2 that a sign test on n discordant pairs finds, at level alpha, with the
--   given power? A test that found nothing says with it how little it could have found.
-- macros: sign_test_mde(n, alpha, power), sign_test_critical(n, alpha)
-- estimators:
--   - sign_test_critical: the largest k with a two-sided p value <= alpha
--   - sign_test_mde: s solves P(X >= n - k; s) = power, a beta quantile
-- reference: exact. (The normal approximation is 5 % too optimistic in n.) The chance to reject on the wrong side is
--   left out: below 1e-4 for every n.
-- accuracy: 1e-9 relative against scipy.
-- nulls: NULL when n is so small that no outcome reaches alpha (n < 6 at 5 %).

CREATE OR REPLACE MACRO sign_test_critical(n, alpha := 0.05::DOUBLE) AS
  list_extract(list_transform([floor(n / 2.0 + normal_quantile(alpha / 2) * sqrt(n) / 2)], LAMBDA bp_mid:
    list_max(list_filter(range(greatest(0, bp_mid - 3)::BIGINT, greatest(0, bp_mid + 3)::BIGINT),
      LAMBDA bp_k: binom_test_half(bp_k, n) <= alpha AND 2 * bp_k < n))), 1);

CREATE OR REPLACE MACRO sign_test_mde(n, alpha := 0.05::DOUBLE, power := 0.8::DOUBLE) AS
  CASE WHEN n > 0 THEN list_extract(list_transform([sign_test_critical(n, alpha)], LAMBDA bp_c:
    CASE WHEN bp_c IS NOT NULL
         THEN 1 / (1 + exp(beta_quantile_logit(1 - power, bp_c + 1, n - bp_c))) END), 1) END;
