-- question: What are the regularised incomplete beta function and its inverse, the base of all exact results?
-- macros: ibeta(x, a, b), beta_quantile(p, a, b); the others are steps of these two.
-- estimators:
--   - ibeta: P(Beta(a, b) <= x), the factor times the fraction
--   - ibeta_ln_factor: ln of x^a y^b / (a B(a, b)) in Loader's saddle-point form, because differences of lgamma lose
--     1e-9 at n = 1e6
--   - ibeta_fraction: the continued fraction, evaluated backwards
--   - beta_quantile: Newton steps on ln I against the log-odds of x, a concave function, so that the steps cannot
--     diverge
-- reference: Loader 2000 (the factor); Abramowitz and Stegun 26.5.8 (the fraction).
-- accuracy: 1e-10 relative against scipy for a, b from 0.5 to 1e6, in both tails.
-- nulls: NULL unless a and b are above 0; the quantile also for p outside 0 to 1.
-- note: list_transform([v], LAMBDA ...) binds v once; the bp_ names keep callers' columns from being captured. Seeds of
--   list_reduce are prepended to the list: given as its third argument, DuckDB 1.5 mixes up the rows' captured values.

-- ln Gamma(x + 1) less Stirling's ln(sqrt(2 pi x) (x/e)^x), for x > 0
CREATE OR REPLACE MACRO stirling_error(x) AS
  CASE WHEN x >= 15 THEN
         (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - (1.0 / 1680 - (1.0 / 1188 - 691.0 / 360360
           / (x::DOUBLE * x)) / (x::DOUBLE * x)) / (x::DOUBLE * x)) / (x::DOUBLE * x)) / (x::DOUBLE * x)) / x
       ELSE lgamma(x::DOUBLE + 1) - (x::DOUBLE + 0.5) * ln(x::DOUBLE) + x - 0.9189385332046727::DOUBLE END;

-- x ln(x/m) + m - x for x, m > 0, without cancellation when they are close
CREATE OR REPLACE MACRO deviance_term(x, m) AS
  CASE WHEN abs(m - x) < 0.5 * x THEN
         x * list_extract(list_transform([(m - x)::DOUBLE / (m + x)], LAMBDA bp_v:
           bp_v * bp_v * (2 / (1 - bp_v) - 2 * bp_v * list_reduce(
             list_prepend(0.0::DOUBLE, range(16, -1, -1)::DOUBLE[]),
             LAMBDA bp_acc, bp_j: bp_acc * bp_v * bp_v + 1 / (2 * bp_j + 3)))), 1)
       ELSE x * ln(x::DOUBLE / m) + m - x END;

-- ln of x^a y^b / (a B(a, b)), y = 1 - x given apart so that neither tail loses digits
CREATE OR REPLACE MACRO ibeta_ln_factor(x, y, a, b) AS
  0.5 * ln(b / (6.283185307179586::DOUBLE * a * (a + b)))
  + stirling_error(a + b) - stirling_error(a) - stirling_error(b)
  - deviance_term(a, (a + b) * x) - deviance_term(b, (a + b) * y);

-- what the factor is multiplied with; converges for x <= (a+1)/(a+b+2)
CREATE OR REPLACE MACRO ibeta_fraction(x, a, b) AS
  1 / (1 + list_reduce(
    list_prepend(0.0::DOUBLE, range(2 * (30 + ceil(2 * sqrt(greatest(a, b))))::BIGINT, 0, -1)::DOUBLE[]),
    LAMBDA bp_acc, bp_m:
      (CASE WHEN bp_m % 2 = 0 THEN (bp_m / 2) * (b - bp_m / 2) * x / ((a + bp_m - 1) * (a + bp_m))
            ELSE -(a + (bp_m - 1) / 2) * (a + b + (bp_m - 1) / 2) * x / ((a + bp_m - 1) * (a + bp_m)) END)
      / (1 + bp_acc)));

CREATE OR REPLACE MACRO ibeta_lower(x, y, a, b) AS
  exp(ibeta_ln_factor(x, y, a, b)) * ibeta_fraction(x, a, b);

CREATE OR REPLACE MACRO ibeta_xy(x, y, a, b) AS
  CASE WHEN x <= 0 THEN 0.0::DOUBLE WHEN y <= 0 THEN 1.0::DOUBLE
       WHEN x <= (a + 1.0::DOUBLE) / (a + b + 2.0::DOUBLE) THEN ibeta_lower(x::DOUBLE, y::DOUBLE, a::DOUBLE, b::DOUBLE)
       WHEN x > 0 THEN 1 - ibeta_lower(y::DOUBLE, x::DOUBLE, b::DOUBLE, a::DOUBLE) END;

-- P(Beta(a, b) <= x), a and b > 0
CREATE OR REPLACE MACRO ibeta(x, a, b) AS
  CASE WHEN a > 0 AND b > 0 THEN ibeta_xy(x::DOUBLE, 1 - x::DOUBLE, a, b) END;

-- ln(x / (1-x)) at the p-quantile of Beta(a, b), for p up to about 1/2
CREATE OR REPLACE MACRO beta_quantile_logit(p, a, b) AS
  list_reduce(
    list_prepend(ln(a::DOUBLE / b) - sqrt(-2 * ln(p::DOUBLE) * (1.0::DOUBLE / a + 1.0::DOUBLE / b)),
      range(8)::DOUBLE[]),
    LAMBDA bp_u, bp_i: bp_u - list_extract(list_transform(
      [ibeta_fraction(1 / (1 + exp(-bp_u)), a::DOUBLE, b::DOUBLE)], LAMBDA bp_h:
        (ibeta_ln_factor(1 / (1 + exp(-bp_u)), 1 / (1 + exp(bp_u)), a::DOUBLE, b::DOUBLE) + ln(bp_h) - ln(p))
        * bp_h / a), 1));

-- x with P(Beta(a, b) <= x) = p
CREATE OR REPLACE MACRO beta_quantile(p, a, b) AS
  CASE WHEN NOT (a > 0 AND b > 0) THEN NULL
       WHEN p = 0 THEN 0.0::DOUBLE WHEN p = 1 THEN 1.0::DOUBLE
       WHEN p > 0 AND p <= 0.5 THEN 1 / (1 + exp(-beta_quantile_logit(p::DOUBLE, a, b)))
       WHEN p > 0.5 AND p < 1 THEN 1 / (1 + exp(beta_quantile_logit(1 - p::DOUBLE, b, a))) END;
