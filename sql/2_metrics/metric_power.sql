-- grain: study, finding, template_id, rubric_id, provider, request_model, thinking, compared_with
-- question: Where a test found nothing, what is the smallest effect that it would have found?
-- source: the views named by finding, a row per test or rate: `position_bias` (metric_position_bias; effect = share of
--   the flipped pairs that the first position won, 0.5 without bias), `paired_template` and `paired_judge` (metric_paired;
--   effect = difference of the consistent shares), `win_matrix` (metric_win_matrix; effect = share of the wins that
--   candidate a has, 0.5 when equal), `compliance` (metric_compliance_paired; effect = difference of the rates),
--   `consistency` (metric_consistency; no test: half_width = half the Wilson interval of consistency_decided).
-- effect_mde is the smallest effect, away from effect_none, that the n_informative pairs that were seen reveal at 5 %
-- two-sided with power 0.8, exactly (sign_test_mde, mcnemar_mde); NULL: so few reveal none. n is what they are a part of.
-- is_null_finding: the test did not reject at 5 % (by q_bh where the view has one; without informative pairs too), so
-- that effect_mde, and not "no effect", is what was learnt.
-- compared_with names what is compared: the second template; the second judge; both candidates.

CREATE OR REPLACE VIEW metric_power AS
WITH findings AS (
  SELECT
    study, 'position_bias' AS finding, template_id, rubric_id, provider, request_model, thinking,
    CAST(NULL AS VARCHAR) AS compared_with,
    n_both AS n, n_discordant AS n_informative,
    primacy_share AS effect, CAST(0.5 AS DOUBLE) AS effect_none, primacy_share_mde AS effect_mde,
    (primacy_share_hi - primacy_share_lo) / 2 AS half_width,
    p_position_exact AS p, q_bh, TRUE AS is_test
  FROM metric_position_bias
  UNION ALL
  SELECT
    study, 'paired_' || compared, template_a, rubric_id, provider_a, request_model_a, thinking_a,
    CASE compared WHEN 'template' THEN template_b
                  ELSE provider_b || ' ' || request_model_b || ' ' || coalesce(thinking_b, '') END,
    n, n_a_only + n_b_only,
    diff, CAST(0 AS DOUBLE), diff_mde, (diff_hi - diff_lo) / 2, p_mcnemar, q_bh, TRUE
  FROM metric_paired
  UNION ALL
  SELECT
    study, 'win_matrix', template_id, CAST(NULL AS VARCHAR), provider, request_model, thinking,
    candidate_a || ' | ' || candidate_b,
    n_both, n_wins_a + n_wins_b,
    n_wins_a / nullif(n_wins_a + n_wins_b, 0), CAST(0.5 AS DOUBLE), sign_mde,
    (wilson_hi(n_wins_a, n_wins_a + n_wins_b) - wilson_lo(n_wins_a, n_wins_a + n_wins_b)) / 2, p_sign, q_bh, TRUE
  FROM metric_win_matrix
  UNION ALL
  SELECT
    study, 'compliance', template_id, CAST(NULL AS VARCHAR), provider, request_model, thinking,
    candidate_a || ' | ' || candidate_b,
    n, n_a_only + n_b_only,
    diff, CAST(0 AS DOUBLE), mcnemar_mde(n_a_only, n_b_only, n), (diff_hi - diff_lo) / 2, p_mcnemar,
    CAST(NULL AS DOUBLE), TRUE
  FROM metric_compliance_paired
  UNION ALL
  SELECT
    study, 'consistency', template_id, rubric_id, provider, request_model, thinking, CAST(NULL AS VARCHAR),
    n_decided, n_decided,
    consistency_decided, CAST(NULL AS DOUBLE), CAST(NULL AS DOUBLE),
    (consistency_decided_hi - consistency_decided_lo) / 2, CAST(NULL AS DOUBLE), CAST(NULL AS DOUBLE), FALSE
  FROM metric_consistency
)
SELECT
  study, finding, template_id, rubric_id, provider, request_model, thinking, compared_with,
  n,
  n_informative,
  effect,
  effect_none,
  effect_mde,
  half_width,
  p,
  q_bh,
  CASE WHEN is_test THEN coalesce(q_bh, p, 1) >= 0.05 END AS is_null_finding
FROM findings
WHERE n > 0;
