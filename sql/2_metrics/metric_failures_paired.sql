-- grain: study, provider, request_model, thinking, failure, template_a, template_b
-- question: Does one template fail more often than another, with the same model?
-- source: calls, counted as in metric_failures, for failure error, unparsed and refused, each over its own denominator.
--   A call is counted with the pair, or the item, that it asked about, and that for its n_clusters items (prompts, where
--   pairs are models' outputs or single items are judged), as in pair_clusters: both templates mostly asked about the
--   same.
-- estimators:
--   - rate_a, rate_b: n_failures_a / n_a, n_failures_b / n_b
--   - diff: rate of a - rate of b
--   - diff_se: for items in general (clustered_variance, both variances by leaving out one item, or pair, after the other
--     from both templates, that of pairs with half a failure more on either side)
--   - diff_lo, diff_hi, p_diff: with it, all by t over n_clusters - 1
--   - q_bh: Benjamini and Hochberg's, over p_diff of the study's comparisons that have one
--   - p_diff_these_items, diff_lo_these_items, diff_hi_these_items: calls being independent draws (two_proportions): p is
--     below 0.05 exactly where 0 is outside
-- reference: Agresti and Caffo 2000 (two_proportions); Benjamini and Hochberg 1995; clustered.
-- nulls: a p is NULL when both templates fail never, or always, and where one has no calls; what is of items in general
--   also below 5 of them; q_bh with p_diff.
-- note: for these items it takes two calls on one item for as different as on two, and is wider than need be.

CREATE OR REPLACE VIEW metric_failures_paired AS
WITH pairs AS (
  SELECT
    study, template_id, provider, request_model, thinking, unit_id,
    least(item_first, item_second) AS item_lo,
    greatest(item_first, item_second) AS item_hi,
    CASE WHEN min(item_second) IS NULL OR min(candidate_first) IS NOT NULL THEN 1 ELSE 2 END AS n_sides,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_returned,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_error,
    count(*) FILTER (WHERE outcome IN ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unparsed,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refused
  FROM calls
  GROUP BY study, template_id, provider, request_model, thinking, unit_id, least(item_first, item_second),
    greatest(item_first, item_second)
),
-- a pair by itself, and once for each of its items, or for its prompt
sided AS (
  SELECT
    pairs.*,
    sides.side > 0 AS is_cluster,
    CASE WHEN sides.side = 0 THEN 1 ELSE n_sides END AS n_times,
    CASE WHEN sides.side = 0 OR (n_sides = 1 AND unit_id = '') OR (n_sides = 2 AND sides.side = 1) THEN item_lo
         WHEN n_sides = 2 THEN item_hi END AS key_lo,
    CASE WHEN sides.side = 0 THEN item_hi END AS key_hi
  FROM pairs
  CROSS JOIN (VALUES (0), (1), (2)) AS sides (side)
  WHERE sides.side <= n_sides
),
clusters AS (
  SELECT
    study, template_id, provider, request_model, thinking, is_cluster, unit_id, key_lo, key_hi,
    max(n_times) AS n_times,
    sum(n_answered) AS n_answered,
    sum(n_returned) AS n_returned,
    sum(n_error) AS n_error,
    sum(n_unparsed) AS n_unparsed,
    sum(n_refused) AS n_refused
  FROM sided
  GROUP BY study, template_id, provider, request_model, thinking, is_cluster, unit_id, key_lo, key_hi
),
totals AS (
  SELECT
    *,
    sum(n_answered) OVER template / n_times AS answered,
    sum(n_returned) OVER template / n_times AS returned,
    sum(n_error) OVER template / n_times AS error,
    sum(n_unparsed) OVER template / n_times AS unparsed,
    sum(n_refused) OVER template / n_times AS refused
  FROM clusters
  WINDOW template AS (PARTITION BY study, template_id, provider, request_model, thinking, is_cluster)
),
left_out AS MATERIALIZED (
  SELECT
    *,
    (error - n_error) / nullif(answered - n_answered, 0) - error / nullif(answered, 0) AS error_moved,
    (unparsed - n_unparsed) / nullif(returned - n_returned, 0) - unparsed / nullif(returned, 0) AS unparsed_moved,
    (refused - n_refused) / nullif(returned - n_returned, 0) - refused / nullif(returned, 0) AS refused_moved
  FROM totals
),
named AS (
  SELECT DISTINCT study, template_id, provider, request_model, thinking FROM left_out
),
comparisons AS (
  SELECT
    a.study, a.provider, a.request_model, a.thinking, a.template_id AS template_a, b.template_id AS template_b,
    sides.is_a
  FROM named AS a
  JOIN named AS b
    ON b.study = a.study
    AND b.provider = a.provider
    AND b.request_model = a.request_model
    AND coalesce(b.thinking, '') = coalesce(a.thinking, '')
    AND b.template_id > a.template_id
  CROSS JOIN (VALUES (TRUE), (FALSE)) AS sides (is_a)
),
moved AS (
  SELECT
    comparisons.study, comparisons.provider, comparisons.request_model, comparisons.thinking,
    comparisons.template_a, comparisons.template_b, left_out.is_cluster,
    max(left_out.n_times) AS n_times,
    max(left_out.n_answered) AS n_answered,
    sum(CASE WHEN is_a THEN left_out.error_moved ELSE -left_out.error_moved END) AS error_moved,
    sum(CASE WHEN is_a THEN left_out.unparsed_moved ELSE -left_out.unparsed_moved END) AS unparsed_moved,
    sum(CASE WHEN is_a THEN left_out.refused_moved ELSE -left_out.refused_moved END) AS refused_moved,
    max(CASE WHEN is_a THEN left_out.answered END) AS answered_a,
    max(CASE WHEN is_a THEN left_out.returned END) AS returned_a,
    max(CASE WHEN is_a THEN left_out.error END) AS error_a,
    max(CASE WHEN is_a THEN left_out.unparsed END) AS unparsed_a,
    max(CASE WHEN is_a THEN left_out.refused END) AS refused_a,
    max(CASE WHEN NOT is_a THEN left_out.answered END) AS answered_b,
    max(CASE WHEN NOT is_a THEN left_out.returned END) AS returned_b,
    max(CASE WHEN NOT is_a THEN left_out.error END) AS error_b,
    max(CASE WHEN NOT is_a THEN left_out.unparsed END) AS unparsed_b,
    max(CASE WHEN NOT is_a THEN left_out.refused END) AS refused_b
  FROM comparisons
  JOIN left_out
    ON left_out.study = comparisons.study
    AND left_out.provider = comparisons.provider
    AND left_out.request_model = comparisons.request_model
    AND coalesce(left_out.thinking, '') = coalesce(comparisons.thinking, '')
    AND left_out.template_id = CASE WHEN comparisons.is_a THEN comparisons.template_a ELSE comparisons.template_b END
  GROUP BY comparisons.study, comparisons.provider, comparisons.request_model, comparisons.thinking,
    comparisons.template_a, comparisons.template_b, left_out.is_cluster, left_out.unit_id, left_out.key_lo,
    left_out.key_hi
),
-- jackknife variances by failure, and each over its own denominator
counted AS (
  SELECT
    study, provider, request_model, thinking, template_a, template_b, failures.failure,
    max(n_times) AS n_sides,
    count(*) FILTER (WHERE is_cluster AND n_answered > 0) AS n_clusters,
    count(*) FILTER (WHERE NOT is_cluster AND n_answered > 0) AS n_pairs,
    sum(CASE failure WHEN 'error' THEN error_moved * error_moved WHEN 'unparsed' THEN unparsed_moved * unparsed_moved
        ELSE refused_moved * refused_moved END) FILTER (WHERE is_cluster) AS cluster_squares,
    sum(CASE failure WHEN 'error' THEN error_moved * error_moved WHEN 'unparsed' THEN unparsed_moved * unparsed_moved
        ELSE refused_moved * refused_moved END) FILTER (WHERE NOT is_cluster) AS pair_squares,
    CAST(max(CASE failure WHEN 'error' THEN error_a WHEN 'unparsed' THEN unparsed_a ELSE refused_a END) AS BIGINT)
      AS n_failures_a,
    CAST(max(CASE failure WHEN 'error' THEN answered_a ELSE returned_a END) AS BIGINT) AS n_a,
    CAST(max(CASE failure WHEN 'error' THEN error_b WHEN 'unparsed' THEN unparsed_b ELSE refused_b END) AS BIGINT)
      AS n_failures_b,
    CAST(max(CASE failure WHEN 'error' THEN answered_b ELSE returned_b END) AS BIGINT) AS n_b
  FROM moved
  CROSS JOIN (VALUES ('error'), ('unparsed'), ('refused')) AS failures (failure)
  GROUP BY study, provider, request_model, thinking, template_a, template_b, failures.failure
),
rates AS (
  SELECT
    *,
    n_failures_a / nullif(n_a, 0) AS rate_a,
    n_failures_b / nullif(n_b, 0) AS rate_b,
    n_failures_a / nullif(n_a, 0) - n_failures_b / nullif(n_b, 0) AS diff,
    two_proportions_p(n_failures_a, n_a, n_failures_b, n_b) AS p_diff_these_items,
    cluster_squares * (n_clusters - 1) / n_clusters AS by_cluster,
    pair_squares * (n_pairs - 1) / n_pairs + 0.5 / (n_a * n_a) + 0.5 / (n_b * n_b) AS by_pair,
    CASE WHEN n_clusters >= 5 THEN n_clusters - 1 END AS df
  FROM counted
),
staged AS (
  SELECT
    *,
    CASE WHEN n_a > 0 AND n_b > 0 THEN sqrt(clustered_variance(by_cluster, by_pair, n_sides)) END AS diff_se,
    t_two_sided_quantile(0.05, df) AS t_ends
  FROM rates
),
measured AS (
  SELECT *, CASE WHEN p_diff_these_items IS NOT NULL THEN t_two_sided(diff / diff_se, df) END AS p_diff
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
  study, provider, request_model, thinking, failure, template_a, template_b,
  n_failures_a, n_a, n_failures_b, n_b, n_clusters,
  rate_a, rate_b,
  diff,
  diff_se,
  diff - t_ends * diff_se AS diff_lo,
  diff + t_ends * diff_se AS diff_hi,
  p_diff,
  CASE WHEN p_diff IS NOT NULL
       THEN least(1.0, min(p_diff * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  two_proportions_lo(n_failures_a, n_a, n_failures_b, n_b) AS diff_lo_these_items,
  two_proportions_hi(n_failures_a, n_a, n_failures_b, n_b) AS diff_hi_these_items,
  p_diff_these_items
FROM ranked;
