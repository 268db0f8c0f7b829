-- question: How far apart are two independent proportions, and could chance alone have put them there?
-- macros: two_proportions_lo(k1, n1, k2, n2), two_proportions_hi(k1, n1, k2, n2) for k1/n1 - k2/n2;
--   two_proportions_p(k1, n1, k2, n2)
-- estimators:
--   - two_proportions_difference: p1 - p2 with p = (k + 1) / (n + 2), a success and a failure added to either group
--   - two_proportions_se: sqrt(p1 (1 - p1) / (n1 + 2) + p2 (1 - p2) / (n2 + 2)) with the same
--   - two_proportions_lo, two_proportions_hi: the first -+ 1.96 times the second
--   - two_proportions_p: of their quotient, normal: below 0.05 exactly where 0 is outside
-- reference: Agresti and Caffo 2000.
-- accuracy: 1e-9 relative against statsmodels.
-- nulls: NULL when a group is empty; p is NULL when all or none succeed.

CREATE OR REPLACE MACRO two_proportions_difference(k1, n1, k2, n2) AS
  CASE WHEN n1 > 0 AND n2 > 0 THEN (k1 + 1)::DOUBLE / (n1 + 2) - (k2 + 1)::DOUBLE / (n2 + 2) END;

CREATE OR REPLACE MACRO two_proportions_se(k1, n1, k2, n2) AS
  sqrt((k1 + 1)::DOUBLE * (n1 - k1 + 1) / power(n1 + 2, 3) + (k2 + 1)::DOUBLE * (n2 - k2 + 1) / power(n2 + 2, 3));

CREATE OR REPLACE MACRO two_proportions_lo(k1, n1, k2, n2) AS
  two_proportions_difference(k1, n1, k2, n2) - 1.959963984540054::DOUBLE * two_proportions_se(k1, n1, k2, n2);

CREATE OR REPLACE MACRO two_proportions_hi(k1, n1, k2, n2) AS
  two_proportions_difference(k1, n1, k2, n2) + 1.959963984540054::DOUBLE * two_proportions_se(k1, n1, k2, n2);

CREATE OR REPLACE MACRO two_proportions_p(k1, n1, k2, n2) AS
  CASE WHEN k1 + k2 > 0 AND k1 + k2 < n1 + n2 THEN
    list_extract(list_transform(
      [two_proportions_difference(k1, n1, k2, n2) / two_proportions_se(k1, n1, k2, n2)],
      LAMBDA bp_z: normal_two_sided(bp_z)), 1) END;
