-- question: What is a rate, given how often a judge of known errors says yes?
-- macros: rogan_gladen(p, q1, q0), rogan_gladen_se(p, n, q1, m1, q0, m0): the judge says yes to a share p of n units;
--   on labelled ones it says yes to q1 of the m1 positive, and no to q0 of the m0 negative.
-- estimators:
--   - rogan_gladen: (p + q0 - 1) / (q0 + q1 - 1), not cut off at 0 and 1
--   - rogan_gladen_se: the delta-method error
-- reference: Rogan and Gladen 1978, with the error of Lee et al. 2025.
-- nulls: NULL where q0 + q1 <= 1.05: a judge that says the same whatever the truth is cannot be corrected.

CREATE OR REPLACE MACRO rogan_gladen(p, q1, q0) AS
  CASE WHEN q0 + q1 > 1.05 THEN (p + q0 - 1) / (q0 + q1 - 1) END;

CREATE OR REPLACE MACRO rogan_gladen_se(p, n, q1, m1, q0, m0) AS
  CASE WHEN q0 + q1 > 1.05 AND n > 0 AND m1 > 0 AND m0 > 0 THEN
    sqrt(p * (1 - p) / n
      + power(1 - rogan_gladen(p, q1, q0), 2) * q0 * (1 - q0) / m0
      + power(rogan_gladen(p, q1, q0), 2) * q1 * (1 - q1) / m1) / (q0 + q1 - 1) END;
