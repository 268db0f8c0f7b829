-- question: What are the tails and the quantile of Student's t distribution?
-- macros: t_two_sided(t, df), t_quantile(p, df), df >= 1 and not necessarily whole
-- estimators:
--   - t_two_sided: P(|T| >= |t|), as df / (df + T^2) is Beta(df/2, 1/2)
--   - t_quantile: from the inverse incomplete beta, on whichever side keeps its digits
-- reference: the inverse incomplete beta is that of beta_quantile.
-- accuracy: 1e-9 relative against scipy for df from 1 to 1e6.
-- nulls: NULL when df is below 1 or NULL, and for p outside (0, 1).

CREATE OR REPLACE MACRO t_two_sided(t, df) AS
  CASE WHEN df >= 1 THEN
    ibeta_xy(df / (df + t::DOUBLE * t), t::DOUBLE * t / (df + t::DOUBLE * t), df / 2.0::DOUBLE, 0.5::DOUBLE) END;

-- t > 0 with P(|T| >= t) = p
CREATE OR REPLACE MACRO t_two_sided_quantile(p, df) AS
  sqrt(df * CASE WHEN p <= 0.5 THEN exp(-beta_quantile_logit(p::DOUBLE, df / 2.0::DOUBLE, 0.5::DOUBLE))
                 ELSE exp(beta_quantile_logit(1 - p::DOUBLE, 0.5::DOUBLE, df / 2.0::DOUBLE)) END);

CREATE OR REPLACE MACRO t_quantile(p, df) AS
  CASE WHEN NOT df >= 1 THEN NULL
       WHEN p = 0.5 THEN 0.0::DOUBLE
       WHEN p > 0 AND p < 0.5 THEN -t_two_sided_quantile(2 * p::DOUBLE, df)
       WHEN p > 0.5 AND p < 1 THEN t_two_sided_quantile(2 - 2 * p::DOUBLE, df) END;
