-- question: How surely does the first position win, when both orders of a pair weigh the same?
-- macros: agresti_min_lo(b, c, n, z), agresti_min_hi(b, c, n, z); b pairs where the first position won twice, c where
--   the second did, n pairs decided in both orders. The rate is 0.5 + (b - c) / (2 n).
-- estimators:
--   - agresti_min_se: sqrt(b + c + 1 - (b-c)^2/(n+2)) / (n+2)
--   - agresti_min_lo, agresti_min_hi: 0.5 + (d -+ z se) / 2 with d = (b-c)/(n+2)
-- reference: Agresti and Min 2005 for a difference of dependent proportions, halved.
-- accuracy: 1e-12 relative against numpy.
-- nulls: NULL when n is 0 or NULL.
-- note: not cut off at 0 and 1: for tiny n an end may pass them by a few hundredths, which says that n is tiny.

CREATE OR REPLACE MACRO agresti_min_se(b, c, n) AS
  CASE WHEN n > 0 THEN sqrt(b + c + 1 - (b - c)::DOUBLE * (b - c) / (n + 2)) / (n + 2) END;

CREATE OR REPLACE MACRO agresti_min_lo(b, c, n, z := 1.959963984540054::DOUBLE) AS
  CASE WHEN n > 0 THEN 0.5::DOUBLE + ((b - c)::DOUBLE / (n + 2) - z::DOUBLE * agresti_min_se(b, c, n)) / 2 END;

CREATE OR REPLACE MACRO agresti_min_hi(b, c, n, z := 1.959963984540054::DOUBLE) AS
  CASE WHEN n > 0 THEN 0.5::DOUBLE + ((b - c)::DOUBLE / (n + 2) + z::DOUBLE * agresti_min_se(b, c, n)) / 2 END;
