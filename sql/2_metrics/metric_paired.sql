-- grain: study, rubric_id, template_a, judge_a, template_b, judge_b
-- question: On the pairs that two templates, or two judges, both judged in both orders, is one more consistent?
-- source: paired_counts; compared says what differs: `template` (the same judge) or `judge` (the same template). Common
--   are the n pairs with votes in both orders from either, of n_clusters items (prompts, where pairs are models'
--   outputs); consistent is the share of a pair's votes of one order with those of the other that agree, ties included,
--   as in consistency_all of metric_consistency: asking more often moves no rate. n_consistent_a and n_consistent_b count pairs
--   on which more than half agree, n_a_only and n_b_only those on which one is more consistent than the other.
--   cluster_kind: what the clusters are, `item`, `prompt`, or `item or prompt` where some pairs are models' outputs.
-- estimators:
--   - consistency_a, consistency_b: the mean over the n pairs; with one vote per order n_consistent_a / n, n_consistent_b / n
--   - diff: rate of a - rate of b
--   - diff_se: for items in general (clustered_variance, of the pairs matched_variance)
--   - diff_lo, diff_hi, p_diff: with it, all by t over n_clusters - 1, the ends cut at -1 and 1
--   - q_bh: Benjamini and Hochberg's, over p_diff of the study's comparisons that have one
--   - diff_mde: the smallest difference, for items in general, that p_diff would have found with power of about 0.8
--     (matched_difference_mde, by the t quantiles of 0.975 and 0.8, the latter to 1e-3)
--   - p_diff_these_items: the exact McNemar test of the pairs where only one is consistent; where repeats split, the
--     sign-flip test of the pairs' differences (sign_flip_z), of at least 6 pairs that differ
--   - diff_lo_these_items, diff_hi_these_items: its inversion (matched_difference, sign_flip_ratio): 0 is outside exactly where
--     it is below 0.05
--   - diff_mde_these_items: the smallest difference that so many discordant pairs reveal with power 0.8 (mcnemar_mde),
--     where repeats split by their error (matched_difference_mde)
-- reference: Benjamini and Hochberg 1995; clustered, matched_difference, mcnemar, mcnemar_mde.
-- nulls: a p is NULL, not 1, when no pair tells the two apart; what is of items in general is NULL below 5 of them,
--   diff_mde also, and diff_mde_these_items, where so few pairs would reveal none, not even one of 1.

CREATE OR REPLACE VIEW metric_paired AS
WITH errors AS (
  SELECT
    *,
    judge_a(paired_counts) AS judge_a,
    judge_b(paired_counts) AS judge_b,
    consistent_a - consistent_b AS lead,
    (consistent_a - consistent_b) / n AS diff,
    -- each pair differs by 1, or not at all
    diff_squares = n_a_only + n_b_only AS is_yes_or_no,
    CASE WHEN n_a_only + n_b_only >= 6 THEN sign_flip_z(consistent_a - consistent_b, 0, diff_squares, 0, 0) END AS flip_z,
    matched_variance(diff_squares, consistent_a - consistent_b, n) AS by_pair,
    CASE WHEN n_clusters >= 5 THEN n_clusters - 1 END AS df
  FROM paired_counts
),
staged AS (
  SELECT
    *,
    sqrt(clustered_variance(diff_jack, by_pair, n_sides)) AS diff_se,
    t_two_sided_95(df) AS t_ends,
    CASE WHEN is_yes_or_no THEN matched_difference(n_a_only, n_b_only, n)
         WHEN n_a_only + n_b_only >= 6 THEN sign_flip_ratio(lead, n, diff_squares, lead, n) END AS ends
  FROM errors
),
measured AS (
  SELECT
    *,
    CASE WHEN n_a_only + n_b_only > 0 THEN t_two_sided(diff / diff_se, df) END AS p_diff
  FROM staged
),
ranked AS (
  SELECT
    *,
    count(p_diff) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_diff NULLS LAST) AS p_rank
  FROM measured
)
SELECT
  study, rubric_id, compared,
  template_a, judge_a.*, template_b, judge_b.*,
  n,
  CASE WHEN n_sides >= 2 THEN 'item' WHEN n_sides <= 1 THEN 'prompt' ELSE 'item or prompt' END AS cluster_kind,
  n_clusters,
  n_consistent_a,
  n_consistent_b,
  n_a_only,
  n_b_only,
  consistent_a / n AS consistency_a,
  consistent_b / n AS consistency_b,
  diff,
  diff_se,
  share_difference(diff - t_ends * diff_se) AS diff_lo,
  share_difference(diff + t_ends * diff_se) AS diff_hi,
  p_diff,
  CASE WHEN p_diff IS NOT NULL
       THEN least(1.0, min(p_diff * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  matched_difference_mde((t_ends + 0.8416212335729143 + 0.3594365 / df) * diff_se, diff_squares, lead, n) AS diff_mde,
  share_difference(ends.lo) AS diff_lo_these_items,
  share_difference(ends.hi) AS diff_hi_these_items,
  CASE WHEN is_yes_or_no THEN mcnemar_exact(n_a_only, n_b_only) ELSE normal_two_sided(flip_z) END AS p_diff_these_items,
  CASE WHEN is_yes_or_no THEN mcnemar_mde(n_a_only, n_b_only, n)
       ELSE matched_difference_mde((1.959963984540054 + 0.8416212335729143) * sqrt(by_pair), diff_squares, lead, n) END
    AS diff_mde_these_items
FROM ranked;
