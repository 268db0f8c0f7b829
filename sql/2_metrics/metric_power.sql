-- grain: study, finding, template_id, rubric_id, provider, request_model, thinking, compared_with
-- question: Where a test found nothing, what is the smallest effect that it would have found?
-- source: a row per paired test, by finding: `paired_template` and `paired_judge` (metric_paired), `compliance`
--   (metric_compliance_paired). compared_with names what is compared: the second template; the second judge; both
--   candidates. metric_position_bias and metric_win_matrix have it beside their own p.
-- estimators:
--   - effect: paired_template, paired_judge: difference of the consistent shares; compliance: difference of the rates
--   - effect_mde: the smallest effect, away from 0, that the n_informative pairs that were seen, a part of n, reveal at
--     5 % two-sided with power 0.8, exactly (mcnemar_mde)
--   - p, q_bh: those of the views
--   - is_null_finding: the test did not reject at 5 %, by q_bh where there is one, or had no informative pair; then
--     effect_mde, and not "no effect", is what was learnt
-- reference: mcnemar_mde, and the views named as source.
-- nulls: effect_mde is NULL where so few pairs reveal none; q_bh for compliance, which has none.

CREATE OR REPLACE VIEW metric_power AS
-- b of b + c informative pairs are one way; family is what q_bh is taken over
WITH tests AS (
  SELECT
    study, 'paired_' || compared AS finding, template_a AS template_id, rubric_id, provider_a AS provider,
    request_model_a AS request_model, thinking_a AS thinking,
    CASE compared WHEN 'template' THEN template_b
                  ELSE provider_b || ' ' || request_model_b || ' ' || coalesce(thinking_b, '') END AS compared_with,
    n, n_a_only AS b, n_b_only AS c, (n_consistent_a - n_consistent_b) / n AS effect, 'paired' AS family
  FROM paired_counts
  UNION ALL
  SELECT
    study, 'compliance', template_id, CAST(NULL AS VARCHAR), provider, request_model, thinking,
    candidate_a || ' | ' || candidate_b,
    n, n_a_only, n_b_only, diff, CAST(NULL AS VARCHAR)
  FROM metric_compliance_paired
),
tested AS (
  SELECT
    *,
    binom_test_half(b, b + c) AS p,
    sign_test_mde(b + c) AS share_mde
  FROM tests
  WHERE n > 0
),
ranked AS (
  SELECT
    *,
    count(p) OVER (PARTITION BY study, family) AS n_p,
    row_number() OVER (PARTITION BY study, family ORDER BY p NULLS LAST) AS p_rank
  FROM tested
),
corrected AS (
  SELECT
    *,
    CASE WHEN p IS NOT NULL AND family IS NOT NULL
         THEN least(1.0, min(p * n_p / p_rank) OVER (PARTITION BY study, family ORDER BY p_rank DESC)) END AS q_bh
  FROM ranked
)
SELECT
  study, finding, template_id, rubric_id, provider, request_model, thinking, compared_with,
  n,
  b + c AS n_informative,
  effect,
  (2 * share_mde - 1) * (b + c) / n AS effect_mde,
  p,
  q_bh,
  coalesce(q_bh, p, 1) >= 0.05 AS is_null_finding
FROM corrected;
