-- question: What is the smallest difference of two paired proportions that McNemar's test on n pairs finds?
-- macros: mcnemar_mde(b, c, n, alpha, power), the difference of the b + c discordant pairs that were seen; exact.
--   mcnemar_mde_planned(pd, n, z_alpha, z_power), before any was seen, when a share pd of n pairs will be discordant;
--   mcnemar_mde_least(n, alpha, power), when all that are will be so in one way, and nothing smaller can be found.
-- estimators:
--   - mcnemar_mde: given b + c, McNemar is the sign test, so the difference is (2 s - 1) (b + c) / n at the smallest
--     share s of sign_test_mde
--   - mcnemar_mde_least: the exact test needs m = ceil(1 - log2(alpha)) discordant pairs of one kind, 6 at 5 %; the
--     difference d solves P(X >= m; n, d) = power, a beta quantile
--   - mcnemar_mde_planned: sqrt(n) d = z_alpha sqrt(pd) + z_power sqrt(pd - d^2) solved for d
-- reference: exact (mcnemar_mde, mcnemar_mde_least); Miettinen 1968 (mcnemar_mde_planned).
-- accuracy: 1e-9 relative.
-- nulls: NULL when n is 0, when b + c is so small that no outcome reaches alpha (below 6 at 5 %), and when the planned
--   difference would have to be larger than pd.

CREATE OR REPLACE MACRO mcnemar_mde(b, c, n, alpha := 0.05::DOUBLE, power := 0.8::DOUBLE) AS
  CASE WHEN n > 0 THEN list_extract(list_transform([b + c], LAMBDA bp_n:
    (2 * sign_test_mde(bp_n, alpha, power) - 1) * bp_n / n), 1) END;

CREATE OR REPLACE MACRO mcnemar_mde_planned(
  pd, n, z_alpha := 1.959963984540054::DOUBLE, z_power := 0.8416212335729143::DOUBLE
) AS
  CASE WHEN n > 0 AND pd > 0 AND pd <= 1 AND sqrt(n * pd::DOUBLE) >= z_alpha + z_power * sqrt(1 - pd::DOUBLE) THEN
    sqrt(pd::DOUBLE) * (z_alpha * sqrt(n) + z_power * sqrt(n + z_power * z_power - z_alpha * z_alpha))
    / (n + z_power * z_power) END;

CREATE OR REPLACE MACRO mcnemar_mde_least(n, alpha := 0.05::DOUBLE, power := 0.8::DOUBLE) AS
  CASE WHEN n >= ceil(1 - log2(alpha)) THEN list_extract(list_transform([ceil(1 - log2(alpha))], LAMBDA bp_one_way:
    1 / (1 + exp(beta_quantile_logit(1 - power, n - bp_one_way + 1, bp_one_way)))), 1) END;
