-- question: Which proportions fit a rate whose observations come in clusters (statements, prompts) that differ?
-- macros: wilson_clustered(p, n, se, g), a struct of lo and hi, and each end by itself,
--   wilson_clustered_lo(p, n, se, g) and wilson_clustered_hi(p, n, se, g); p the rate of n
--   observations in g clusters, se its standard error clustered by them.
-- estimators:
--   - effective_size: n_eff = p (1-p) / se^2, at most n; a rate of 0 or 1 has no spread to see: n_eff is n then
--   - wilson_clustered, wilson_clustered_lo, wilson_clustered_hi: Wilson's interval with n_eff in place of n, and the
--     t(g-1) quantile in place of the normal one
-- reference: Korn and Graubard 1998, who use both for Clopper-Pearson.
-- nulls: NULL for fewer than 5 clusters: no standard error that so few give can be trusted.

CREATE OR REPLACE MACRO effective_size(p, n, se) AS
  CASE WHEN p > 0 AND p < 1 AND se > 1e-6 THEN least(n, p::DOUBLE * (1 - p) / (se::DOUBLE * se)) ELSE n END;

-- list_transform binds the two numbers once
CREATE OR REPLACE MACRO wilson_clustered(p, n, se, g) AS
  CASE WHEN g >= 5 AND n > 0 THEN
    list_extract(list_transform([{'n': effective_size(p, n, se)::DOUBLE, 't': t_two_sided_95(g - 1)}],
      LAMBDA bp_s: {'lo': wilson_lo(p * bp_s.n, bp_s.n, bp_s.t), 'hi': wilson_hi(p * bp_s.n, bp_s.n, bp_s.t)}), 1) END;

CREATE OR REPLACE MACRO wilson_clustered_lo(p, n, se, g) AS
  struct_extract(wilson_clustered(p, n, se, g), 'lo');

CREATE OR REPLACE MACRO wilson_clustered_hi(p, n, se, g) AS
  struct_extract(wilson_clustered(p, n, se, g), 'hi');
