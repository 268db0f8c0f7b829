-- question: What are the regularised incomplete beta function and its inverse, the base of all exact results?
-- macros: ibeta(x, a, b), beta_quantile(p, a, b); the others are steps of these two.
-- estimators:
--   - ibeta: P(Beta(a, b) <= x), the factor times the fraction
--   - ibeta_ln_scale, ibeta_deviances: the ln of that factor, x^a y^b / (a B(a, b)), is the first less the second, in
--     Loader's saddle-point form, because differences of lgamma lose 1e-9 at n = 1e6
--   - ibeta_fraction: the continued fraction, evaluated backwards
--   - beta_quantile: Newton steps on ln I against the log-odds of x, a concave function, so that the steps cannot
--     diverge
-- reference: Loader 2000 (the factor); Abramowitz and Stegun 26.5.8 (the fraction).
-- accuracy: 1e-10 relative against scipy for a, b from 0.5 to 1e6, in both tails.
-- nulls: NULL unless a and b are above 0; the quantile also for p outside 0 to 1.
-- note: list_transform([v], LAMBDA ...) binds v once; the bp_ names keep callers' columns from being captured. Seeds of
--   list_reduce are prepended to the list: given as its third argument, DuckDB 1.5 mixes up the rows' captured values.
--   What it steps through is worked out by list_transform, for all steps and rows at once.

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
           bp_v * bp_v * (2 / (1 - bp_v) - 2 * bp_v * list_sum(list_transform(
             range(0, 17)::DOUBLE[], LAMBDA bp_j: power(bp_v, 2 * bp_j) / (2 * bp_j + 3))))), 1)
       ELSE x * ln(x::DOUBLE / m) + m - x END;

-- what is of a and b alone in ln of x^a y^b / (a B(a, b))
CREATE OR REPLACE MACRO ibeta_ln_scale(a, b) AS
  list_extract(list_transform([list_transform([a + b, a, b], LAMBDA bp_x: stirling_error(bp_x))], LAMBDA bp_s:
    0.5 * ln(b / (6.283185307179586::DOUBLE * a * (a + b))) + bp_s[1] - bp_s[2] - bp_s[3]), 1);

-- what is of x in it too, to be taken off, y = 1 - x given apart so that neither tail loses digits
CREATE OR REPLACE MACRO ibeta_deviances(x, y, a, b) AS
  list_transform([{'x': a, 'm': (a + b) * x}, {'x': b, 'm': (a + b) * y}], LAMBDA bp_p: deviance_term(bp_p.x, bp_p.m));

-- what the factor is multiplied with; converges for x <= (a+1)/(a+b+2)
CREATE OR REPLACE MACRO ibeta_fraction(x, a, b) AS
  1 / (1 + list_reduce(
    list_prepend(0.0::DOUBLE, list_transform(
      range(2 * (30 + ceil(2 * sqrt(greatest(a, b))))::BIGINT, 0, -1)::DOUBLE[], LAMBDA bp_m:
        CASE WHEN bp_m % 2 = 0 THEN (bp_m / 2) * (b - bp_m / 2) * x / ((a + bp_m - 1) * (a + bp_m))
             ELSE -(a + (bp_m - 1) / 2) * (a + b + (bp_m - 1) / 2) * x / ((a + bp_m - 1) * (a + bp_m)) END)),
    LAMBDA bp_acc, bp_d: bp_d / (1 + bp_acc)));

CREATE OR REPLACE MACRO ibeta_lower(x, y, a, b) AS
  list_extract(list_transform([ibeta_deviances(x, y, a, b)], LAMBDA bp_d:
    exp(ibeta_ln_scale(a, b) - bp_d[1] - bp_d[2])), 1) * ibeta_fraction(x, a, b);

-- whichever tail converges: its own value, or 1 less the other's
CREATE OR REPLACE MACRO ibeta_xy(x, y, a, b) AS
  CASE WHEN x <= 0 THEN 0.0::DOUBLE WHEN y <= 0 THEN 1.0::DOUBLE
       WHEN x > 0 THEN list_extract(list_transform([list_extract(
           [{'x': x::DOUBLE, 'y': y::DOUBLE, 'a': a::DOUBLE, 'b': b::DOUBLE, 'less': 0.0::DOUBLE, 'sign': 1},
            {'x': y::DOUBLE, 'y': x::DOUBLE, 'a': b::DOUBLE, 'b': a::DOUBLE, 'less': 1.0::DOUBLE, 'sign': -1}],
           CASE WHEN x <= (a + 1.0::DOUBLE) / (a + b + 2.0::DOUBLE) THEN 1 ELSE 2 END)],
         LAMBDA bp_t: bp_t.less + bp_t.sign * ibeta_lower(bp_t.x, bp_t.y, bp_t.a, bp_t.b)), 1) END;

-- P(Beta(a, b) <= x), a and b > 0
CREATE OR REPLACE MACRO ibeta(x, a, b) AS
  CASE WHEN a > 0 AND b > 0 THEN ibeta_xy(x::DOUBLE, 1 - x::DOUBLE, a, b) END;

-- ln(x / (1-x)) at the p-quantile of Beta(a, b), for p up to about 1/2
CREATE OR REPLACE MACRO beta_quantile_logit(p, a, b) AS
  list_extract(list_transform([ibeta_ln_scale(a::DOUBLE, b::DOUBLE)], LAMBDA bp_scale: list_reduce(
    list_prepend(ln(a::DOUBLE / b) - sqrt(-2 * ln(p::DOUBLE) * (1.0::DOUBLE / a + 1.0::DOUBLE / b)),
      range(0, 8)::DOUBLE[]),
    LAMBDA bp_u, bp_i: bp_u - list_extract(list_transform([{
        'd': ibeta_deviances(1 / (1 + exp(-bp_u)), 1 / (1 + exp(bp_u)), a::DOUBLE, b::DOUBLE),
        'h': ibeta_fraction(1 / (1 + exp(-bp_u)), a::DOUBLE, b::DOUBLE)
      }], LAMBDA bp_e: (bp_scale - bp_e.d[1] - bp_e.d[2] + ln(bp_e.h) - ln(p)) * bp_e.h / a), 1))), 1);

-- x with P(Beta(a, b) <= x) = p
CREATE OR REPLACE MACRO beta_quantile(p, a, b) AS
  CASE WHEN NOT (a > 0 AND b > 0) THEN NULL
       WHEN p = 0 THEN 0.0::DOUBLE WHEN p = 1 THEN 1.0::DOUBLE
       WHEN p > 0 AND p < 1 THEN list_extract(list_transform([{
           'p': CASE WHEN p <= 0.5 THEN p::DOUBLE ELSE 1 - p::DOUBLE END,
           'a': CASE WHEN p <= 0.5 THEN a::DOUBLE ELSE b::DOUBLE END,
           'b': CASE WHEN p <= 0.5 THEN b::DOUBLE ELSE a::DOUBLE END,
           'sign': CASE WHEN p <= 0.5 THEN -1 ELSE 1 END
         }], LAMBDA bp_t: 1 / (1 + exp(bp_t.sign * beta_quantile_logit(bp_t.p, bp_t.a, bp_t.b)))), 1) END;
