-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: How often does a judge give the same verdict when the two items are swapped?
-- source: the statuses of pair_status, as pair_clusters adds them up by item; n_decided = n_consistent_win + n_primacy +
--   n_recency; n_both = all six statuses that have a majority in both orders. Left out and counted: n_undecided,
--   n_missing_reverse (n_pairs = n_both + these two) and n_pairs_pending. n_clusters items (prompts, where pairs are
--   models' outputs) have a pair in n_both, n_clusters_decided one in n_decided.
-- estimators:
--   - consistency_decided: n_consistent_win / n_decided, consistent wins of the pairs with a winner in both orders
--   - consistency_all: (n_consistent_win + n_consistent_tie) / n_both, counting ties in: consistent wins and ties of
--     all pairs with a majority in both orders
--   - conflict_rate: (n_primacy + n_recency) / n_both, pairs whose winner flips, of the same
--   - consistency_decided_se, consistency_all_se, conflict_rate_se: for items in general (clustered_variance), and the
--     ends _lo and _hi with them: as wilson_clustered, over n_clusters, and n_clusters_decided for consistency_decided
--   - consistency_decided_lo_these_items, consistency_decided_hi_these_items, consistency_all_lo_these_items,
--     consistency_all_hi_these_items, conflict_rate_lo_these_items, conflict_rate_hi_these_items: Wilson, pairs being
--     draws: how the same judge would do on the same items again
--   - consistency_decided_min, consistency_decided_max, consistency_all_min, consistency_all_max, conflict_rate_min,
--     conflict_rate_max: what the pairs left out, n_undecided and n_missing_reverse, leave open of these pairs: all of
--     them flipped, or all were consistent wins; a majority of repeats that stands is taken as it is
-- reference: Zheng et al. 2023 (same verdict in both orders), Wang et al. 2023 (conflict rate); clustered,
--   wilson_clustered.
-- nulls: a rate is NULL where its denominator is 0, its bounds where no pair has an answer; ends for items in general
--   are NULL below 5 items (of consistency_decided, below 5 with a decided pair), those for these items where lists imply
--   the pairs, which are no draws then. A _se of one item alone (n_clusters 1) is that of its pairs as draws, too small
--   for items in general: it has no ends.

CREATE OR REPLACE VIEW metric_consistency AS
WITH clusters AS (
  SELECT
    *,
    n_consistent_win + n_primacy + n_recency AS decided,
    n_consistent_win + n_consistent_tie + n_primacy + n_recency + n_soft_primacy + n_soft_recency AS judged,
    round(sum(n_consistent_win / n_sides) OVER cell) AS wins_all,
    round(sum(n_consistent_tie / n_sides) OVER cell) AS ties_all,
    round(sum((n_primacy + n_recency) / n_sides) OVER cell) AS flips_all,
    round(sum((n_consistent_win + n_primacy + n_recency) / n_sides) OVER cell) AS decided_all,
    round(sum((n_consistent_win + n_consistent_tie + n_primacy + n_recency + n_soft_primacy + n_soft_recency) / n_sides)
      OVER cell) AS judged_all
  FROM pair_clusters
  WINDOW cell AS (PARTITION BY study, template_id, rubric_id, provider, request_model, thinking)
),
-- a cluster's own sums have its pairs whole, the totals each pair once: whole numbers, of parts by n_sides
left_out AS (
  SELECT
    *,
    (wins_all - n_consistent_win) / nullif(decided_all - decided, 0) - wins_all / nullif(decided_all, 0)
      AS decided_moved,
    (wins_all + ties_all - n_consistent_win - n_consistent_tie)
      / nullif(judged_all - judged, 0) - (wins_all + ties_all) / nullif(judged_all, 0) AS all_moved,
    (flips_all - n_primacy - n_recency) / nullif(judged_all - judged, 0)
      - flips_all / nullif(judged_all, 0) AS conflict_moved
  FROM clusters
),
counts AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n_pairs) / nullif(sum(n_pairs / n_sides), 0) END AS n_sides,
    max(list_kind) AS list_kind,
    CAST(round(sum(n_pairs / n_sides)) AS BIGINT) AS n_pairs,
    CAST(round(sum(judged / n_sides)) AS BIGINT) AS n_both,
    CAST(round(sum(decided / n_sides)) AS BIGINT) AS n_decided,
    CAST(round(sum(n_consistent_win / n_sides)) AS BIGINT) AS n_consistent_win,
    CAST(round(sum(n_consistent_tie / n_sides)) AS BIGINT) AS n_consistent_tie,
    CAST(round(sum(n_primacy / n_sides)) AS BIGINT) AS n_primacy,
    CAST(round(sum(n_recency / n_sides)) AS BIGINT) AS n_recency,
    CAST(round(sum(n_soft_primacy / n_sides)) AS BIGINT) AS n_soft_primacy,
    CAST(round(sum(n_soft_recency / n_sides)) AS BIGINT) AS n_soft_recency,
    CAST(round(sum(n_undecided / n_sides)) AS BIGINT) AS n_undecided,
    CAST(round(sum(n_missing_reverse / n_sides)) AS BIGINT) AS n_missing_reverse,
    CAST(round(sum(n_pairs_pending / n_sides)) AS BIGINT) AS n_pairs_pending,
    count(*) FILTER (WHERE judged > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters,
    count(*) FILTER (WHERE decided > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters_decided,
    sum(CASE WHEN decided > 0 THEN decided_moved * decided_moved END) AS decided_squares,
    sum(CASE WHEN judged > 0 THEN all_moved * all_moved END) AS all_squares,
    sum(CASE WHEN judged > 0 THEN conflict_moved * conflict_moved END) AS conflict_squares
  FROM left_out
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
rates AS (
  SELECT
    *,
    n_consistent_win / nullif(n_decided, 0) AS consistency_decided,
    (n_consistent_win + n_consistent_tie) / nullif(n_both, 0) AS consistency_all,
    (n_primacy + n_recency) / nullif(n_both, 0) AS conflict_rate,
    n_consistent_win + n_consistent_tie AS n_consistent,
    n_undecided + n_missing_reverse AS n_open,
    decided_squares * (n_clusters_decided - 1) / nullif(n_clusters_decided, 0) AS decided_jack,
    all_squares * (n_clusters - 1) / n_clusters AS all_jack,
    conflict_squares * (n_clusters - 1) / n_clusters AS conflict_jack,
    n_primacy + n_recency AS n_conflicts
  FROM counts
),
errors AS (
  SELECT
    *,
    sqrt(clustered_variance(decided_jack, consistency_decided * (1 - consistency_decided) / n_decided, n_sides)) AS consistency_decided_se,
    sqrt(clustered_variance(all_jack, consistency_all * (1 - consistency_all) / n_both, n_sides)) AS consistency_all_se,
    sqrt(clustered_variance(conflict_jack, conflict_rate * (1 - conflict_rate) / n_both, n_sides)) AS conflict_rate_se,
    CASE WHEN n_clusters >= 5 THEN t_two_sided_95(n_clusters - 1) END AS t,
    CASE WHEN n_clusters_decided >= 5 THEN t_two_sided_95(n_clusters_decided - 1) END AS t_decided
  FROM rates
),
sized AS (
  SELECT
    *,
    CASE WHEN t_decided > 0 THEN effective_size(consistency_decided, n_decided, consistency_decided_se) END AS decided_size,
    CASE WHEN t > 0 THEN effective_size(consistency_all, n_both, consistency_all_se) END AS all_size,
    CASE WHEN t > 0 THEN effective_size(conflict_rate, n_both, conflict_rate_se) END AS conflict_size
  FROM errors
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking,
  n_pairs, n_both, n_decided, n_consistent_win, n_consistent_tie, n_primacy, n_recency, n_soft_primacy, n_soft_recency,
  n_undecided, n_missing_reverse, n_pairs_pending, n_clusters, n_clusters_decided,
  consistency_decided,
  consistency_decided_se,
  wilson_lo(consistency_decided * decided_size, decided_size, t_decided) AS consistency_decided_lo,
  wilson_hi(consistency_decided * decided_size, decided_size, t_decided) AS consistency_decided_hi,
  CASE WHEN list_kind IS NULL THEN wilson_lo(n_consistent_win, n_decided) END AS consistency_decided_lo_these_items,
  CASE WHEN list_kind IS NULL THEN wilson_hi(n_consistent_win, n_decided) END AS consistency_decided_hi_these_items,
  n_consistent_win / nullif(n_decided + n_open, 0) AS consistency_decided_min,
  (n_consistent_win + n_open) / nullif(n_decided + n_open, 0) AS consistency_decided_max,
  consistency_all,
  consistency_all_se,
  wilson_lo(consistency_all * all_size, all_size, t) AS consistency_all_lo,
  wilson_hi(consistency_all * all_size, all_size, t) AS consistency_all_hi,
  CASE WHEN list_kind IS NULL THEN wilson_lo(n_consistent, n_both) END AS consistency_all_lo_these_items,
  CASE WHEN list_kind IS NULL THEN wilson_hi(n_consistent, n_both) END AS consistency_all_hi_these_items,
  n_consistent / nullif(n_pairs, 0) AS consistency_all_min,
  (n_consistent + n_open) / nullif(n_pairs, 0) AS consistency_all_max,
  conflict_rate,
  conflict_rate_se,
  wilson_lo(conflict_rate * conflict_size, conflict_size, t) AS conflict_rate_lo,
  wilson_hi(conflict_rate * conflict_size, conflict_size, t) AS conflict_rate_hi,
  CASE WHEN list_kind IS NULL THEN wilson_lo(n_conflicts, n_both) END AS conflict_rate_lo_these_items,
  CASE WHEN list_kind IS NULL THEN wilson_hi(n_conflicts, n_both) END AS conflict_rate_hi_these_items,
  n_conflicts / nullif(n_pairs, 0) AS conflict_rate_min,
  (n_conflicts + n_open) / nullif(n_pairs, 0) AS conflict_rate_max
FROM sized;
