-- grain: study, cell
-- question: How often does a judge give the same verdict when the two items are swapped, and call both good, or bad?
-- source: the votes of pair_status, every one of them, as pair_clusters adds them up by item: of a pair the share of its
--   votes of one order with its votes of the other, each with each, that agree. So a pair on which repeats split counts
--   in part, and asking more often leaves a rate where it is. n_both pairs have votes in both orders, n_repeated of them
--   more than one in an order; n_decided have a winner in both. Left out and counted: n_undecided, without a vote in an
--   order, and n_missing_reverse (n_pairs = n_both + these two), and n_pairs_pending. n_consistent_win to n_soft_recency
--   are the statuses of pair_status, of majorities of repeats, n_split those in n_both that lack a majority: a rate of
--   majorities, as n_consistent_win / (n_consistent_win + n_primacy + n_recency), loses them, and is too high.
--   n_clusters items (prompts, where pairs are models' outputs) have a pair in n_both, n_clusters_decided in n_decided.
--   n_both_good and n_both_bad are the votes that are ties of that kind, of n_said pairs with a vote in any order.
-- estimators:
--   - consistency_decided: n_consistent_win / n_decided with one vote per order; with more, of all votes of one order with
--     those of the other that name a winner in both, a pair weighing by its share of these, those that name the same
--   - consistency_all: the mean over the n_both pairs of the share that agrees, ties too: cross_order_agreement of
--     metric_repeat
--   - conflict_rate: the mean over the n_both pairs of the share whose winner flips
--   - both_good_rate, both_bad_rate: the mean over the n_said pairs of the share of a pair's votes that say so
--   - consistency_decided_se, consistency_all_se, conflict_rate_se, both_good_rate_se, both_bad_rate_se: for items in
--     general (clustered_variance), and the ends _lo and _hi with them: Wilson's with mean_size, by t over n_clusters, for
--     consistency_decided n_clusters_decided, and for the kinds of ties the items with a pair in n_said
--   - consistency_decided_lo_these_items, consistency_decided_hi_these_items, consistency_all_lo_these_items,
--     consistency_all_hi_these_items, conflict_rate_lo_these_items, conflict_rate_hi_these_items: Wilson with
--     mean_size, pairs being draws: how the same judge would do on the same items again
--   - consistency_decided_min, consistency_decided_max, consistency_all_min, consistency_all_max, conflict_rate_min,
--     conflict_rate_max: what is left open by answers that are unread or missing, and by the n_undecided and
--     n_missing_reverse pairs: all of it flips, or all of it is consistent wins
--   - both_good_rate_min, both_good_rate_max, both_bad_rate_min, both_bad_rate_max: the answers that are unread or missing
--     say no such thing, or all of them do
-- reference: Zheng et al. 2023 (same verdict in both orders), Wang et al. 2023 (conflict rate); clustered, wilson_mean.
-- nulls: a rate is NULL where its denominator is 0, its bounds where no pair has an answer; ends for items in general
--   are NULL below 5 items (of consistency_decided, below 5 with a decided pair), those for these items where lists imply
--   the pairs, which are no draws then. What is said of both_good and both_bad is NULL where a judge could not say so. A _se of one item alone (n_clusters 1) is that of its pairs as draws, too small
--   for items in general: it has no ends.
-- note: with five repeats the interval for these items is wider than need be, as pairs are its draws and not votes: by
--   simulation it held the truth in .99 of sets and more.

CREATE OR REPLACE VIEW metric_consistency AS
WITH clusters AS (
  SELECT
    *,
    cell(pair_clusters) AS cell,
    -- whole numbers stay whole where they are sums of thirds
    round(sum(wins / n_sides) OVER cell, 12) AS wins_all,
    round(sum(ties / n_sides) OVER cell, 12) AS ties_all,
    round(sum(flips / n_sides) OVER cell, 12) AS flips_all,
    round(sum(n_decided / n_sides) OVER cell) AS decided_all,
    round(sum(n_both / n_sides) OVER cell) AS both_all,
    round(sum(both_good / n_sides) OVER cell, 12) AS both_good_all,
    round(sum(both_bad / n_sides) OVER cell, 12) AS both_bad_all,
    round(sum(n_said / n_sides) OVER cell) AS said_all
  FROM pair_clusters
  WINDOW cell AS (PARTITION BY study, cell(pair_clusters))
),
-- a cluster's own sums have its pairs whole, the totals each pair once
left_out AS (
  SELECT
    *,
    CASE WHEN decided_all > n_decided
         THEN (wins_all - wins) / (wins_all + flips_all - wins - flips) - wins_all / (wins_all + flips_all) END
      AS decided_moved,
    (wins_all + ties_all - wins - ties) / nullif(both_all - n_both, 0) - (wins_all + ties_all) / nullif(both_all, 0)
      AS all_moved,
    (flips_all - flips) / nullif(both_all - n_both, 0) - flips_all / nullif(both_all, 0) AS conflict_moved,
    (both_good_all - both_good) / nullif(said_all - n_said, 0) - both_good_all / nullif(said_all, 0) AS good_moved,
    (both_bad_all - both_bad) / nullif(said_all - n_said, 0) - both_bad_all / nullif(said_all, 0) AS bad_moved
  FROM clusters
),
counts AS (
  SELECT
    study, cell,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n_pairs) / nullif(sum(n_pairs / n_sides), 0) END AS n_sides,
    max(list_kind) AS list_kind,
    CAST(round(sum(n_pairs / n_sides)) AS BIGINT) AS n_pairs,
    CAST(max(both_all) AS BIGINT) AS n_both,
    CAST(round(sum(n_repeated / n_sides)) AS BIGINT) AS n_repeated,
    CAST(max(decided_all) AS BIGINT) AS n_decided,
    CAST(round(sum(n_consistent_win / n_sides)) AS BIGINT) AS n_consistent_win,
    CAST(round(sum(n_consistent_tie / n_sides)) AS BIGINT) AS n_consistent_tie,
    CAST(round(sum(n_primacy / n_sides)) AS BIGINT) AS n_primacy,
    CAST(round(sum(n_recency / n_sides)) AS BIGINT) AS n_recency,
    CAST(round(sum(n_soft_primacy / n_sides)) AS BIGINT) AS n_soft_primacy,
    CAST(round(sum(n_soft_recency / n_sides)) AS BIGINT) AS n_soft_recency,
    CAST(round(sum(n_split / n_sides)) AS BIGINT) AS n_split,
    CAST(round(sum(n_undecided / n_sides)) AS BIGINT) AS n_undecided,
    CAST(round(sum(n_missing_reverse / n_sides)) AS BIGINT) AS n_missing_reverse,
    CAST(round(sum(n_pairs_pending / n_sides)) AS BIGINT) AS n_pairs_pending,
    count(*) FILTER (WHERE n_both > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters,
    count(*) FILTER (WHERE n_decided > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters_decided,
    max(wins_all) AS wins,
    max(ties_all) AS ties,
    max(flips_all) AS flips,
    sum(win_squares / n_sides) AS win_squares,
    sum(flip_squares / n_sides) AS flip_squares,
    sum(win_flips / n_sides) AS win_flips,
    sum(agreed_squares / n_sides) AS agreed_squares,
    round(sum(wins_least / n_sides), 12) AS wins_least,
    round(sum(ties_least / n_sides), 12) AS ties_least,
    round(sum(flips_least / n_sides), 12) AS flips_least,
    round(sum(left_open / n_sides), 12) AS left_open,
    sum(CASE WHEN n_decided > 0 THEN decided_moved * decided_moved END) AS decided_squares,
    sum(CASE WHEN n_both > 0 THEN all_moved * all_moved END) AS all_squares,
    sum(CASE WHEN n_both > 0 THEN conflict_moved * conflict_moved END) AS conflict_squares,
    bool_or(has_tie_kinds) AS has_tie_kinds,
    CAST(max(said_all) AS BIGINT) AS n_said,
    count(*) FILTER (WHERE n_said > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters_said,
    CAST(round(sum(n_both_good / n_sides)) AS BIGINT) AS n_both_good,
    CAST(round(sum(n_both_bad / n_sides)) AS BIGINT) AS n_both_bad,
    max(both_good_all) AS both_good,
    max(both_bad_all) AS both_bad,
    sum(both_good_squares / n_sides) AS both_good_squares,
    sum(both_bad_squares / n_sides) AS both_bad_squares,
    sum(CASE WHEN n_said > 0 THEN good_moved * good_moved END) AS good_moved_squares,
    sum(CASE WHEN n_said > 0 THEN bad_moved * bad_moved END) AS bad_moved_squares,
    nullif(round(sum(CASE WHEN has_tie_kinds THEN n_asked / n_sides END)), 0) AS n_asked,
    round(sum(both_good_least / n_sides), 12) AS both_good_least,
    round(sum(both_bad_least / n_sides), 12) AS both_bad_least,
    round(sum(unsaid / n_sides), 12) AS unsaid
  FROM left_out
  GROUP BY study, cell
),
rates AS (
  SELECT
    *,
    wins + flips AS decided,
    wins / nullif(wins + flips, 0) AS consistency_decided,
    (wins + ties) / nullif(n_both, 0) AS consistency_all,
    flips / nullif(n_both, 0) AS conflict_rate,
    decided_squares * (n_clusters_decided - 1) / nullif(n_clusters_decided, 0) AS decided_jack,
    all_squares * (n_clusters - 1) / n_clusters AS all_jack,
    conflict_squares * (n_clusters - 1) / n_clusters AS conflict_jack,
    CASE WHEN has_tie_kinds THEN both_good / nullif(n_said, 0) END AS both_good_rate,
    CASE WHEN has_tie_kinds THEN both_bad / nullif(n_said, 0) END AS both_bad_rate,
    good_moved_squares * (n_clusters_said - 1) / nullif(n_clusters_said, 0) AS good_jack,
    bad_moved_squares * (n_clusters_said - 1) / nullif(n_clusters_said, 0) AS bad_jack
  FROM counts
),
-- pairs being draws: with one vote per order p (1 - p) / n
drawn AS (
  SELECT
    *,
    greatest(0.0, power(1 - consistency_decided, 2) * win_squares + power(consistency_decided, 2) * flip_squares
      - 2 * consistency_decided * (1 - consistency_decided) * win_flips) / nullif(decided * decided, 0) AS decided_by_pair,
    greatest(0.0, agreed_squares - n_both * consistency_all * consistency_all) / nullif(n_both * n_both, 0) AS all_by_pair,
    greatest(0.0, flip_squares - n_both * conflict_rate * conflict_rate) / nullif(n_both * n_both, 0) AS conflict_by_pair,
    greatest(0.0, both_good_squares - n_said * both_good_rate * both_good_rate) / nullif(n_said * n_said, 0) AS good_by_pair,
    greatest(0.0, both_bad_squares - n_said * both_bad_rate * both_bad_rate) / nullif(n_said * n_said, 0) AS bad_by_pair
  FROM rates
),
errors AS (
  SELECT
    *,
    sqrt(clustered_variance(decided_jack, decided_by_pair, n_sides)) AS consistency_decided_se,
    sqrt(clustered_variance(all_jack, all_by_pair, n_sides)) AS consistency_all_se,
    sqrt(clustered_variance(conflict_jack, conflict_by_pair, n_sides)) AS conflict_rate_se,
    CASE WHEN has_tie_kinds THEN sqrt(clustered_variance(good_jack, good_by_pair, n_sides)) END AS both_good_rate_se,
    CASE WHEN has_tie_kinds THEN sqrt(clustered_variance(bad_jack, bad_by_pair, n_sides)) END AS both_bad_rate_se,
    CASE WHEN n_clusters_said >= 5 THEN t_two_sided_95(n_clusters_said - 1) END AS t_said,
    CASE WHEN n_clusters >= 5 THEN t_two_sided_95(n_clusters - 1) END AS t,
    CASE WHEN n_clusters_decided >= 5 THEN t_two_sided_95(n_clusters_decided - 1) END AS t_decided
  FROM drawn
),
sized AS (
  SELECT
    *,
    CASE WHEN t_decided > 0 THEN mean_size(consistency_decided, decided, consistency_decided_se) END AS decided_size,
    CASE WHEN t > 0 THEN mean_size(consistency_all, n_both, consistency_all_se) END AS all_size,
    CASE WHEN t > 0 THEN mean_size(conflict_rate, n_both, conflict_rate_se) END AS conflict_size,
    CASE WHEN list_kind IS NULL THEN mean_size(consistency_decided, decided, sqrt(decided_by_pair)) END AS decided_these,
    CASE WHEN list_kind IS NULL THEN mean_size(consistency_all, n_both, sqrt(all_by_pair)) END AS all_these,
    CASE WHEN list_kind IS NULL THEN mean_size(conflict_rate, n_both, sqrt(conflict_by_pair)) END AS conflict_these,
    CASE WHEN t_said > 0 THEN mean_size(both_good_rate, n_said, both_good_rate_se) END AS good_size,
    CASE WHEN t_said > 0 THEN mean_size(both_bad_rate, n_said, both_bad_rate_se) END AS bad_size
  FROM errors
)
SELECT
  study, cell.*,
  n_pairs, n_both, n_repeated, n_decided,
  n_consistent_win, n_consistent_tie, n_primacy, n_recency, n_soft_primacy, n_soft_recency, n_split,
  n_undecided, n_missing_reverse, n_pairs_pending, n_clusters, n_clusters_decided,
  consistency_decided,
  consistency_decided_se,
  wilson_lo(consistency_decided * decided_size, decided_size, t_decided) AS consistency_decided_lo,
  wilson_hi(consistency_decided * decided_size, decided_size, t_decided) AS consistency_decided_hi,
  wilson_lo(consistency_decided * decided_these, decided_these) AS consistency_decided_lo_these_items,
  wilson_hi(consistency_decided * decided_these, decided_these) AS consistency_decided_hi_these_items,
  wins_least / nullif(wins_least + flips_least + left_open, 0) AS consistency_decided_min,
  (wins_least + left_open) / nullif(wins_least + flips_least + left_open, 0) AS consistency_decided_max,
  consistency_all,
  consistency_all_se,
  wilson_lo(consistency_all * all_size, all_size, t) AS consistency_all_lo,
  wilson_hi(consistency_all * all_size, all_size, t) AS consistency_all_hi,
  wilson_lo(consistency_all * all_these, all_these) AS consistency_all_lo_these_items,
  wilson_hi(consistency_all * all_these, all_these) AS consistency_all_hi_these_items,
  (wins_least + ties_least) / nullif(n_pairs, 0) AS consistency_all_min,
  (wins_least + ties_least + left_open) / nullif(n_pairs, 0) AS consistency_all_max,
  conflict_rate,
  conflict_rate_se,
  wilson_lo(conflict_rate * conflict_size, conflict_size, t) AS conflict_rate_lo,
  wilson_hi(conflict_rate * conflict_size, conflict_size, t) AS conflict_rate_hi,
  wilson_lo(conflict_rate * conflict_these, conflict_these) AS conflict_rate_lo_these_items,
  wilson_hi(conflict_rate * conflict_these, conflict_these) AS conflict_rate_hi_these_items,
  flips_least / nullif(n_pairs, 0) AS conflict_rate_min,
  (flips_least + left_open) / nullif(n_pairs, 0) AS conflict_rate_max,
  n_said, n_both_good, n_both_bad,
  both_good_rate, both_good_rate_se,
  wilson_lo(both_good_rate * good_size, good_size, t_said) AS both_good_rate_lo,
  wilson_hi(both_good_rate * good_size, good_size, t_said) AS both_good_rate_hi,
  both_good_least / n_asked AS both_good_rate_min,
  (both_good_least + unsaid) / n_asked AS both_good_rate_max,
  both_bad_rate, both_bad_rate_se,
  wilson_lo(both_bad_rate * bad_size, bad_size, t_said) AS both_bad_rate_lo,
  wilson_hi(both_bad_rate * bad_size, bad_size, t_said) AS both_bad_rate_hi,
  both_bad_least / n_asked AS both_bad_rate_min,
  (both_bad_least + unsaid) / n_asked AS both_bad_rate_max
FROM sized;
