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
    list_extract(list_transform([{'x': df / (df + t::DOUBLE * t), 'y': t::DOUBLE * t / (df + t::DOUBLE * t)}],
      LAMBDA bp_w: ibeta_xy(bp_w.x, bp_w.y, df / 2.0::DOUBLE, 0.5::DOUBLE)), 1) END;

-- t > 0 with P(|T| >= t) = p
CREATE OR REPLACE MACRO t_two_sided_quantile(p, df) AS
  sqrt(df * list_extract(list_transform([{
      'p': CASE WHEN p <= 0.5 THEN p::DOUBLE ELSE 1 - p::DOUBLE END,
      'a': CASE WHEN p <= 0.5 THEN df / 2.0::DOUBLE ELSE 0.5::DOUBLE END,
      'b': CASE WHEN p <= 0.5 THEN 0.5::DOUBLE ELSE df / 2.0::DOUBLE END,
      'sign': CASE WHEN p <= 0.5 THEN -1 ELSE 1 END
    }], LAMBDA bp_t: exp(bp_t.sign * beta_quantile_logit(bp_t.p, bp_t.a, bp_t.b))), 1));

CREATE OR REPLACE MACRO t_quantile(p, df) AS
  CASE WHEN NOT df >= 1 THEN NULL
       WHEN p = 0.5 THEN 0.0::DOUBLE
       WHEN p > 0 AND p < 1 THEN list_extract(list_transform([{
           'p': CASE WHEN p < 0.5 THEN 2 * p::DOUBLE ELSE 2 - 2 * p::DOUBLE END,
           'sign': CASE WHEN p < 0.5 THEN -1 ELSE 1 END
         }], LAMBDA bp_q: bp_q.sign * t_two_sided_quantile(bp_q.p, df)), 1) END;
