-- question: How far apart are two independent proportions, and could chance alone have put them there?
-- macros: newcombe_lo(k1, n1, k2, n2), newcombe_hi(k1, n1, k2, n2) for k1/n1 - k2/n2; two_proportions_p(k1, n1, k2, n2)
-- estimators:
--   - newcombe_lo, newcombe_hi: Newcombe's hybrid of two Wilson intervals
--   - two_proportions_p: the score test with the pooled proportion, which is Pearson's chi-square of the 2 x 2 table
--     without a correction
-- reference: Newcombe 1998, method 10; Pearson.
-- accuracy: 1e-9 relative against scipy and statsmodels.
-- nulls: NULL when a group is empty; p is NULL when all or none succeed.

CREATE OR REPLACE MACRO newcombe_lo(k1, n1, k2, n2) AS
  k1::DOUBLE / nullif(n1, 0) - k2::DOUBLE / nullif(n2, 0)
  - sqrt(power(k1::DOUBLE / nullif(n1, 0) - wilson_lo(k1, n1), 2)
         + power(wilson_hi(k2, n2) - k2::DOUBLE / nullif(n2, 0), 2));

CREATE OR REPLACE MACRO newcombe_hi(k1, n1, k2, n2) AS
  k1::DOUBLE / nullif(n1, 0) - k2::DOUBLE / nullif(n2, 0)
  + sqrt(power(wilson_hi(k1, n1) - k1::DOUBLE / nullif(n1, 0), 2)
         + power(k2::DOUBLE / nullif(n2, 0) - wilson_lo(k2, n2), 2));

CREATE OR REPLACE MACRO two_proportions_p(k1, n1, k2, n2) AS
  CASE WHEN n1 > 0 AND n2 > 0 AND k1 + k2 > 0 AND k1 + k2 < n1 + n2 THEN
    normal_two_sided(
      (k1::DOUBLE / n1 - k2::DOUBLE / n2)
      / sqrt((k1 + k2)::DOUBLE / (n1 + n2) * (n1 + n2 - k1 - k2) / (n1 + n2) * (1.0::DOUBLE / n1 + 1.0::DOUBLE / n2)))
  END;
