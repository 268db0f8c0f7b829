-- grain: study, rubric_id, template_a, provider_a, request_model_a, thinking_a, template_b, provider_b,
--   request_model_b, thinking_b
-- question: On the pairs that two templates, or two judges, both judged in both orders, is one more consistent?
-- source: paired_counts; compared says what differs: `template` (the same judge) or `judge` (the same template). Common
--   are the n pairs with a majority in both orders from either; consistent is the same majority in both, ties included
--   (consistency_all of metric_consistency).
-- estimators:
--   - consistency_a, consistency_b: n_consistent_a / n, n_consistent_b / n
--   - diff: rate of a - rate of b, Agresti-Min interval
--   - p_mcnemar, p_mcnemar_midp: exact McNemar test of the pairs where only one is consistent, mid-p beside it
--   - q_bh: Benjamini and Hochberg's, over the study's comparisons that have a p
--   - diff_mde: the smallest difference that so many discordant pairs reveal with power 0.8 (mcnemar_mde)
-- reference: Agresti and Min 2005; Benjamini and Hochberg 1995; mcnemar, mcnemar_mde.
-- nulls: p is NULL, not 1, when no pair tells the two apart; diff_mde is NULL where so few pairs would reveal none.

CREATE OR REPLACE VIEW metric_paired AS
WITH measured AS (
  SELECT *, mcnemar_exact(n_a_only, n_b_only) AS p_mcnemar
  FROM paired_counts
),
ranked AS (
  SELECT
    *,
    count(p_mcnemar) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_mcnemar NULLS LAST) AS p_rank
  FROM measured
)
SELECT
  study, rubric_id, compared,
  template_a, provider_a, request_model_a, thinking_a, template_b, provider_b, request_model_b, thinking_b,
  n,
  n_consistent_a,
  n_consistent_b,
  n_a_only,
  n_b_only,
  n_consistent_a / n AS consistency_a,
  n_consistent_b / n AS consistency_b,
  (n_consistent_a - n_consistent_b) / n AS diff,
  2 * agresti_min_lo(n_a_only, n_b_only, n) - 1 AS diff_lo,
  2 * agresti_min_hi(n_a_only, n_b_only, n) - 1 AS diff_hi,
  p_mcnemar,
  mcnemar_midp(n_a_only, n_b_only) AS p_mcnemar_midp,
  CASE WHEN p_mcnemar IS NOT NULL
       THEN least(1.0, min(p_mcnemar * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  mcnemar_mde(n_a_only, n_b_only, n) AS diff_mde
FROM ranked;
