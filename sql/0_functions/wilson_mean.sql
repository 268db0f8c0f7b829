-- question: Which means fit n values between 0 and 1 whose mean p has the standard error se?
-- macros: wilson_mean(p, n, se, df), a struct of lo and hi; df are n - 1 unless given, for a se clustered by df + 1;
--   mean_size(p, n, se), how many draws of a proportion are worth as much
-- estimators:
--   - mean_size: p (1-p) / se^2; values without any spread (beyond what the root of rounding makes, 1e-6),
--     and a single value, count as n observations of a proportion
--   - wilson_mean: Wilson's interval with mean_size in place of n and the t(df) quantile in place of the normal one, so
--     that the ends stay between 0 and 1
-- reference: after Korn and Graubard 1998.
-- nulls: NULL when n is 0 or NULL.

CREATE OR REPLACE MACRO mean_size(p, n, se) AS
  CASE WHEN se > 1e-6 AND p > 0 AND p < 1 THEN p * (1 - p) / (se::DOUBLE * se) ELSE n::DOUBLE END;

-- list_transform binds the numbers once
CREATE OR REPLACE MACRO wilson_mean(p, n, se, df := NULL) AS
  CASE WHEN n > 0 THEN
    list_extract(list_transform([{
        'n': mean_size(p, n, se),
        't': CASE WHEN se > 1e-6 THEN t_two_sided_95(coalesce(df, n - 1)) ELSE 1.959963984540054::DOUBLE END
      }], LAMBDA bp_s: {'lo': wilson_lo(p * bp_s.n, bp_s.n, bp_s.t), 'hi': wilson_hi(p * bp_s.n, bp_s.n, bp_s.t)}
    ), 1) END;
