-- question: What is a rate, given how often a judge of known errors says yes?
-- macros: rogan_gladen(p, q1, q0), rogan_gladen_se(p, n, q1, m1, q0, m0), rogan_gladen_moved(k_c, n_c, a1_c, m1_c, a0_c,
--   m0_c, p, n, q1, m1, q0, m0, rate): the judge says yes to a share p of n units; on labelled ones it says yes to q1
--   of the m1 positive, and no to q0 of the m0 negative. Of one cluster's n_c units it says yes to k_c, is right in
--   a1_c of m1_c and a0_c of m0_c; rate is rogan_gladen.
-- estimators:
--   - rogan_gladen: (p + q0 - 1) / (q0 + q1 - 1), not cut off at 0 and 1
--   - rogan_gladen_se: the delta-method error
--   - rogan_gladen_moved: how far one cluster moves the rate, by the same linearisation; as ppi_moved of
--     prediction_powered
-- reference: Rogan and Gladen 1978, with the error of Lee et al. 2025.
-- nulls: NULL where q0 + q1 <= 1.05: a judge that says the same whatever the truth is cannot be corrected.

CREATE OR REPLACE MACRO rogan_gladen(p, q1, q0) AS
  CASE WHEN q0 + q1 > 1.05 THEN (p + q0 - 1) / (q0 + q1 - 1) END;

CREATE OR REPLACE MACRO rogan_gladen_se(p, n, q1, m1, q0, m0) AS
  CASE WHEN q0 + q1 > 1.05 AND n > 0 AND m1 > 0 AND m0 > 0 THEN
    sqrt(p * (1 - p) / n
      + power(1 - rogan_gladen(p, q1, q0), 2) * q0 * (1 - q0) / m0
      + power(rogan_gladen(p, q1, q0), 2) * q1 * (1 - q1) / m1) / (q0 + q1 - 1) END;

CREATE OR REPLACE MACRO rogan_gladen_moved(k_c, n_c, a1_c, m1_c, a0_c, m0_c, p, n, q1, m1, q0, m0, rate) AS
  CASE WHEN rate IS NOT NULL AND n > 0 THEN
    ((k_c - n_c * p) / n + (1 - rate) * (a0_c - m0_c * q0) / m0 - rate * (a1_c - m1_c * q1) / m1) / (q0 + q1 - 1) END;
