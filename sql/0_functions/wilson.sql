-- question: Which proportions fit k of n (Wilson score interval, 95 % unless z is given)?
-- macros: wilson_lo(k, n, z), wilson_hi(k, n, z)
-- estimators:
--   - wilson_lo, wilson_hi: (k + z^2/2 -+ z sqrt(k (n-k) / n + z^2/4)) / (n + z^2); at k = 0 the lower and at k = n the
--     upper end are exact
-- reference: Wilson 1927.
-- accuracy: 1e-12 relative against statsmodels proportion_confint up to n = 1e9.
-- nulls: NULL when n is 0 or NULL, for k outside 0..n, and without z, at the exact ends as well.

CREATE OR REPLACE MACRO wilson_lo(k, n, z := 1.959963984540054::DOUBLE) AS
  CASE WHEN k < 0 OR k > n OR z IS NULL THEN NULL
       WHEN n > 0 THEN
         CASE WHEN k = 0 THEN 0.0::DOUBLE
              -- the smaller root as (product of the roots) / (larger root): no cancellation
              ELSE (k::DOUBLE / n) * k / (k + z::DOUBLE * z / 2
                + z::DOUBLE * sqrt(k::DOUBLE * (n - k) / n + z::DOUBLE * z / 4)) END END;

CREATE OR REPLACE MACRO wilson_hi(k, n, z := 1.959963984540054::DOUBLE) AS
  CASE WHEN k < 0 OR k > n OR z IS NULL THEN NULL
       WHEN n > 0 THEN
         CASE WHEN k = n THEN 1.0::DOUBLE
              ELSE (k + z::DOUBLE * z / 2 + z::DOUBLE * sqrt(k::DOUBLE * (n - k) / n + z::DOUBLE * z / 4))
                / (n + z::DOUBLE * z) END END;
