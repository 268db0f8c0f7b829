-- grain: study, finding, cell, compared_with
-- question: Where a test found nothing, what is the smallest effect that it would have found?
-- source: a row per paired test, by finding: `paired_template` and `paired_judge` (metric_paired), `compliance`
--   (metric_compliance_paired), `points` (metric_points_paired). compared_with names what is compared: the second template; the second judge; both
--   candidates. metric_position_bias and metric_win_matrix have it beside their own p. All of it is for items, or
--   statements, in general, of which n_clusters were seen (cluster_kind: `item`, `prompt`, `item or prompt`, `statement`);
--   n_informative pairs of n tell the two apart.
-- estimators:
--   - effect: paired_template, paired_judge: difference of the consistent shares; compliance: difference of the rates;
--     points: of the mean scores
--   - effect_mde: the smallest effect, away from 0, that p would have found at 5 % with power of about 0.8: diff_mde of the views.
--     It is of one test alone: with q_bh, corrected for all of the view's, a larger one is needed, by how much the others'
--     p decide
--   - p, q_bh: those of the views
--   - is_null_finding: the test did not reject at 5 %, by q_bh, or had no p; then effect_mde, and not
--     "no effect", is what was learnt
-- reference: the views named as source.
-- nulls: effect_mde and p are NULL where too few items or statements were seen; q_bh with p.

CREATE OR REPLACE VIEW metric_power AS
WITH tests AS (
  SELECT
    study, 'paired_' || compared AS finding, template_a AS template_id, rubric_id, judge_of_a(metric_paired) AS judge,
    CASE compared WHEN 'template' THEN template_b
                  ELSE name_of_b(metric_paired) END AS compared_with,
    n, cluster_kind, n_clusters, n_a_only + n_b_only AS n_informative, diff AS effect, diff_mde AS effect_mde, p_diff AS p, q_bh
  FROM metric_paired
  UNION ALL
  SELECT
    study, 'compliance', template_id, CAST(NULL AS VARCHAR), judge(metric_compliance_paired) AS judge,
    candidate_a || ' | ' || candidate_b,
    n, 'statement', n_rubrics, n_a_only + n_b_only, diff, diff_mde, p_diff, q_bh
  FROM metric_compliance_paired
  UNION ALL
  SELECT
    study, 'points', template_id, CAST(NULL AS VARCHAR), judge(metric_points_paired) AS judge,
    candidate_a || ' | ' || candidate_b,
    n_prompts, 'prompt', n_prompts, n_differ, diff, diff_mde, p_diff, q_bh
  FROM metric_points_paired
)
SELECT
  study, finding, template_id, rubric_id, judge.*, compared_with,
  n, cluster_kind, n_clusters, n_informative, effect, effect_mde, p, q_bh,
  coalesce(q_bh, 1) >= 0.05 AS is_null_finding
FROM tests;
