-- question: Which means fit n values between 0 and 1 whose mean p has the standard error se?
-- macros: wilson_mean_lo(p, n, se), wilson_mean_hi(p, n, se)
-- source: Wilson's interval with the effective size p (1-p) / se^2 in place of n and the t(n-1) quantile in place of the
--   normal one (after Korn and Graubard 1998), so that the ends stay between 0 and 1. Values without any spread, and a
--   single value, count as n observations of a proportion.
-- nulls: NULL when n is 0 or NULL.

-- list_transform binds the two numbers once
CREATE OR REPLACE MACRO wilson_mean_lo(p, n, se) AS
  CASE WHEN n > 0 THEN
    list_extract(list_transform([CASE WHEN se > 0 AND p > 0 AND p < 1 THEN p * (1 - p) / (se::DOUBLE * se)
                                      ELSE n::DOUBLE END], lambda bp_n:
      list_extract(list_transform([CASE WHEN se > 0 THEN t_two_sided_quantile(0.05, n - 1)
                                        ELSE 1.959963984540054::DOUBLE END], lambda bp_t:
        wilson_lo(p * bp_n, bp_n, bp_t)), 1)), 1) END;

CREATE OR REPLACE MACRO wilson_mean_hi(p, n, se) AS
  CASE WHEN n > 0 THEN
    list_extract(list_transform([CASE WHEN se > 0 AND p > 0 AND p < 1 THEN p * (1 - p) / (se::DOUBLE * se)
                                      ELSE n::DOUBLE END], lambda bp_n:
      list_extract(list_transform([CASE WHEN se > 0 THEN t_two_sided_quantile(0.05, n - 1)
                                        ELSE 1.959963984540054::DOUBLE END], lambda bp_t:
        wilson_hi(p * bp_n, bp_n, bp_t)), 1)), 1) END;
