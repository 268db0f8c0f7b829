-- grain: study, judge, failure, template_a, template_b
-- question: Does one template fail more often than another, with the same model?
-- source: calls, counted as in metric_failures, for failure error, unparsed and refused, each over its own denominator.
--   A call is counted with the pair, or the item, that it asked about, and that for its n_clusters items (prompts, where
--   pairs are models' outputs or single items are judged), as in pair_clusters: both templates mostly asked about the
--   same.
-- estimators:
--   - rate_a, rate_b: n_failures_a / n_a, n_failures_b / n_b
--   - diff: rate of a - rate of b
--   - diff_se: for items in general (clustered_variance, leaving out one item after the other from both templates; the
--     variance of pairs is that of their parts in the difference, with half a failure more on either side)
--   - diff_lo, diff_hi, p_diff: with it, all by t over n_clusters - 1, the ends cut at -1 and 1
--   - q_bh: Benjamini and Hochberg's, over p_diff of the study's comparisons that have one
--   - p_diff_these_items, diff_lo_these_items, diff_hi_these_items: calls being independent draws (two_proportions): p is
--     below 0.05 exactly where 0 is outside; all fields of one answer are one draw, as in metric_failures
-- reference: Agresti and Caffo 2000 (two_proportions); Benjamini and Hochberg 1995; clustered.
-- nulls: a p is NULL when both templates fail never, or always, and where one has no calls; what is of items in general
--   also below 5 of them; q_bh with p_diff.
-- note: with 20 items asked five times each, the interval for items in general holds the truth in .93 by simulation,
--   where failures are rare in .99.
--   For these items it takes two calls on one item for as different as on two, and is wider than need be.

CREATE OR REPLACE VIEW metric_failures_paired AS
WITH pairs AS (
  SELECT
    study, template_id, judge(calls) AS judge, unit_id,
    least(item_first, item_second) AS item_lo,
    greatest(item_first, item_second) AS item_hi,
    CASE WHEN min(item_second) IS NULL OR min(candidate_first) IS NOT NULL THEN 1 ELSE 2 END AS n_sides,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_returned,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_error,
    count(*) FILTER (WHERE outcome IN ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unparsed,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refused,
    count(DISTINCT CASE WHEN is_field THEN rubric_id END) AS n_fields,
    count(CASE WHEN is_field THEN outcome END) AS n_of_fields
  FROM calls
  GROUP BY study, template_id, judge, unit_id, least(item_first, item_second),
    greatest(item_first, item_second)
),
named AS MATERIALIZED (
  SELECT
    study, template_id, judge,
    row_number() OVER (ORDER BY study, template_id, judge) AS template_no,
    count(*) AS n_pairs,
    sum(n_answered) AS answered,
    sum(n_returned) AS returned,
    sum(n_error) AS error,
    sum(n_unparsed) AS unparsed,
    sum(n_refused) AS refused,
    -- as in metric_failures
    1 - coalesce(sum(n_of_fields) / nullif(sum(n_answered), 0) * (1 - 1 / nullif(max(n_fields), 0)), 0) AS part
  FROM pairs
  GROUP BY study, template_id, judge
),
-- each pair for both of its items, or for its prompt
clusters AS (
  SELECT
    pairs.study, pairs.template_id, pairs.judge, pairs.unit_id,
    CASE WHEN pairs.n_sides = 2 AND sides.side = 2 THEN pairs.item_hi
         WHEN pairs.n_sides = 2 OR pairs.unit_id = '' THEN pairs.item_lo ELSE '' END AS item,
    max(pairs.n_sides) AS n_sides,
    sum(pairs.n_answered) AS n_answered,
    sum(pairs.n_returned) AS n_returned,
    sum(pairs.n_error) AS n_error,
    sum(pairs.n_unparsed) AS n_unparsed,
    sum(pairs.n_refused) AS n_refused
  FROM pairs
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE sides.side <= pairs.n_sides
  GROUP BY
    pairs.study, pairs.template_id, pairs.judge, pairs.unit_id,
    CASE WHEN pairs.n_sides = 2 AND sides.side = 2 THEN pairs.item_hi
         WHEN pairs.n_sides = 2 OR pairs.unit_id = '' THEN pairs.item_lo ELSE '' END
),
-- what leaving out a cluster does to a template's rates; a pair's own part in them, where it has one
parts AS MATERIALIZED (
  SELECT
    named.template_no, clusters.n_sides, clusters.unit_id, clusters.item, CAST(NULL AS VARCHAR) AS other,
    clusters.n_answered > 0 AS is_seen,
    (error - n_error) / nullif(answered - n_answered, 0) - error / nullif(answered, 0) AS error_part,
    (unparsed - n_unparsed) / nullif(returned - n_returned, 0) - unparsed / nullif(returned, 0) AS unparsed_part,
    (refused - n_refused) / nullif(returned - n_returned, 0) - refused / nullif(returned, 0) AS refused_part
  FROM clusters
  JOIN named
    ON named.study = clusters.study
    AND named.template_id = clusters.template_id
    AND named.judge = clusters.judge
  UNION ALL
  SELECT
    named.template_no, pairs.n_sides, pairs.unit_id, pairs.item_lo, pairs.item_hi, FALSE,
    n_error / nullif(answered, 0), n_unparsed / nullif(returned, 0), n_refused / nullif(returned, 0)
  FROM pairs
  JOIN named
    ON named.study = pairs.study
    AND named.template_id = pairs.template_id
    AND named.judge = pairs.judge
  WHERE pairs.n_error + pairs.n_unparsed + pairs.n_refused > 0
),
comparisons AS (
  SELECT
    a.study, a.judge, a.template_id AS template_a, b.template_id AS template_b,
    a.template_no AS no_a, b.template_no AS no_b, a.part AS part_a, b.part AS part_b,
    greatest(a.n_pairs, b.n_pairs) AS n_pairs,
    failures.failure,
    CAST(CASE failure WHEN 'error' THEN a.error WHEN 'unparsed' THEN a.unparsed ELSE a.refused END AS BIGINT)
      AS n_failures_a,
    CAST(CASE failure WHEN 'error' THEN a.answered ELSE a.returned END AS BIGINT) AS n_a,
    CAST(CASE failure WHEN 'error' THEN b.error WHEN 'unparsed' THEN b.unparsed ELSE b.refused END AS BIGINT)
      AS n_failures_b,
    CAST(CASE failure WHEN 'error' THEN b.answered ELSE b.returned END AS BIGINT) AS n_b
  FROM named AS a
  JOIN named AS b
    ON b.study = a.study
    AND b.judge = a.judge
    AND b.template_id > a.template_id
  CROSS JOIN (VALUES ('error'), ('unparsed'), ('refused')) AS failures (failure)
),
-- of these, what is an observation of its own
observed AS (
  SELECT *, part_a * n_failures_a AS k_a, part_a * n_a AS m_a, part_b * n_failures_b AS k_b, part_b * n_b AS m_b
  FROM comparisons
),
sides AS (
  SELECT DISTINCT no_a, no_b, sign, CASE sign WHEN 1 THEN no_a ELSE no_b END AS template_no
  FROM comparisons
  CROSS JOIN (VALUES (1), (-1)) AS signs (sign)
),
moved AS (
  SELECT
    sides.no_a, sides.no_b, parts.other IS NULL AS is_cluster,
    max(parts.n_sides) AS n_sides,
    max(parts.is_seen) AS is_seen,
    sum(sides.sign * parts.error_part) AS error_part,
    sum(sides.sign * parts.unparsed_part) AS unparsed_part,
    sum(sides.sign * parts.refused_part) AS refused_part
  FROM sides
  JOIN parts ON parts.template_no = sides.template_no
  GROUP BY sides.no_a, sides.no_b, parts.unit_id, parts.item, parts.other
),
squares AS (
  SELECT
    no_a, no_b,
    max(n_sides) AS n_sides,
    count(*) FILTER (WHERE is_seen) AS n_clusters,
    sum(error_part * error_part) FILTER (WHERE is_cluster) AS error_jack,
    sum(unparsed_part * unparsed_part) FILTER (WHERE is_cluster) AS unparsed_jack,
    sum(refused_part * refused_part) FILTER (WHERE is_cluster) AS refused_jack,
    coalesce(sum(error_part * error_part) FILTER (WHERE NOT is_cluster), 0) AS error_squares,
    coalesce(sum(unparsed_part * unparsed_part) FILTER (WHERE NOT is_cluster), 0) AS unparsed_squares,
    coalesce(sum(refused_part * refused_part) FILTER (WHERE NOT is_cluster), 0) AS refused_squares
  FROM moved
  GROUP BY no_a, no_b
),
rates AS (
  SELECT
    observed.*,
    squares.n_sides,
    squares.n_clusters,
    n_failures_a / nullif(n_a, 0) AS rate_a,
    n_failures_b / nullif(n_b, 0) AS rate_b,
    n_failures_a / nullif(n_a, 0) - n_failures_b / nullif(n_b, 0) AS diff,
    two_proportions_p(k_a, m_a, k_b, m_b) AS p_diff_these_items,
    CASE failure WHEN 'error' THEN error_jack WHEN 'unparsed' THEN unparsed_jack ELSE refused_jack END
      * (n_clusters - 1) / n_clusters AS by_cluster,
    CASE failure WHEN 'error' THEN error_squares WHEN 'unparsed' THEN unparsed_squares ELSE refused_squares END
      + 0.5 / (n_a * n_a) + 0.5 / (n_b * n_b) AS pair_squares,
    CASE WHEN n_clusters >= 5 THEN n_clusters - 1 END AS df
  FROM observed
  JOIN squares ON squares.no_a = observed.no_a AND squares.no_b = observed.no_b
),
staged AS (
  SELECT
    *,
    CASE WHEN n_a > 0 AND n_b > 0 THEN sqrt(clustered_variance(by_cluster, pair_squares - diff * diff / n_pairs, n_sides)) END AS diff_se,
    t_two_sided_95(df) AS t_ends
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
  study, judge.*, failure, template_a, template_b,
  n_failures_a, n_a, n_failures_b, n_b, n_clusters,
  rate_a, rate_b,
  diff,
  diff_se,
  share_difference(diff - t_ends * diff_se) AS diff_lo,
  share_difference(diff + t_ends * diff_se) AS diff_hi,
  p_diff,
  CASE WHEN p_diff IS NOT NULL
       THEN least(1.0, min(p_diff * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  two_proportions_lo(k_a, m_a, k_b, m_b) AS diff_lo_these_items,
  two_proportions_hi(k_a, m_a, k_b, m_b) AS diff_hi_these_items,
  p_diff_these_items
FROM ranked;
