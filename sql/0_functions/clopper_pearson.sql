-- question: Which proportions does k of n not rule out, exactly (95 % unless alpha is given)?
-- macros: clopper_pearson_lo(k, n, alpha), clopper_pearson_hi(k, n, alpha)
-- source: quantiles of Beta(k, n-k+1) at alpha/2 and of Beta(k+1, n-k) at 1 - alpha/2; 0 at k = 0, 1 at k = n.
-- accuracy: 1e-10 relative against scipy up to n = 1e6. NULL when n is 0 or NULL.

CREATE OR REPLACE MACRO clopper_pearson_lo(k, n, alpha := 0.05::DOUBLE) AS
  CASE WHEN n > 0 AND k >= 0 AND k <= n THEN
    CASE WHEN k = 0 THEN 0.0::DOUBLE
         ELSE 1 / (1 + exp(-beta_quantile_logit(alpha / 2, k, n - k + 1))) END END;

CREATE OR REPLACE MACRO clopper_pearson_hi(k, n, alpha := 0.05::DOUBLE) AS
  CASE WHEN n > 0 AND k >= 0 AND k <= n THEN
    CASE WHEN k = n THEN 1.0::DOUBLE
         ELSE 1 / (1 + exp(beta_quantile_logit(alpha / 2, n - k, k + 1))) END END;
