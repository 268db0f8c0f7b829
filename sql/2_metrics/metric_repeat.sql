-- grain: study, cell
-- question: How much of a judge's inconsistency is noise that repeating shows, and how much is the order?
-- source: the votes of pair_status, valid ones only; n_orders (with two votes or more) and n_cross_order_pairs (a vote
--   in both orders) are the denominators, n_pairs those with either. Each pair is counted for both of its n_clusters
--   items, or for its prompt where pairs are models' outputs, as in pair_clusters; pairs with the same six vote counts
--   are weighed together. Pairs that lists imply are left out.
-- estimators:
--   - repeat_agreement: the mean over orders asked at least twice of the share of agreeing vote pairs, sum k(k-1) /
--     (m(m-1))
--   - repeat_unanimity: n_unanimous / n_orders, orders with all votes equal
--   - cross_order_agreement: the mean over pairs of the share of agreeing vote pairs between the two orders
--   - repeat_agreement_se, repeat_unanimity_se, cross_order_agreement_se: for items in general (clustered_variance);
--     the intervals with them, wilson_mean by t over n_clusters - 1 (wilson_clustered of repeat_unanimity)
--   - repeat_agreement_se_these_items, cross_order_agreement_se_these_items: sd / sqrt(n), orders, or pairs, being
--     draws
--   - repeat_agreement_lo_these_items, repeat_agreement_hi_these_items, cross_order_agreement_lo_these_items,
--     cross_order_agreement_hi_these_items: wilson_mean with them
--   - repeat_unanimity_lo_these_items, repeat_unanimity_hi_these_items: Wilson
--   - position_excess_conflict: repeat_agreement - cross_order_agreement
--   - position_excess_conflict_se: for items in general (clustered_variance), the interval by t over n_clusters - 1,
--     cut at -1 and 1 as the other one
--   - position_excess_conflict_se_these_items: clustered by pair (CR1)
--   - position_excess_conflict_lo_these_items, position_excess_conflict_hi_these_items: with it, by t over n_pairs - 1
-- reference: Shi et al. 2024 (repeat stability); clustered, wilson_clustered, wilson_mean.
-- nulls: all repeat columns are NULL without repeats; intervals for items in general below 5 of them; the interval of
--   position_excess_conflict where all pairs are alike: no spread to see.

CREATE OR REPLACE VIEW metric_repeat AS
WITH patterns AS (
  SELECT
    study, cell(pair_status) AS cell,
    unit_id AS cluster_unit,
    CASE WHEN coalesce(candidate_lo, candidate_hi) IS NOT NULL THEN '' WHEN sides.side = 1 THEN item_lo ELSE item_hi END AS cluster_item,
    n_lo_won_lo_first AS a_lo, n_hi_won_lo_first AS a_hi, n_tied_lo_first AS a_tie,
    n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first AS a,
    n_lo_won_hi_first AS b_lo, n_hi_won_hi_first AS b_hi, n_tied_hi_first AS b_tie,
    n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first AS b,
    count(*) AS n,
    max(CASE WHEN coalesce(candidate_lo, candidate_hi) IS NULL THEN 2 ELSE 1 END) AS n_sides
  FROM pair_status
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE (sides.side = 1 OR coalesce(candidate_lo, candidate_hi) IS NULL) AND list_kind IS NULL
  GROUP BY
    study, cell, cluster_unit, cluster_item,
    n_lo_won_lo_first, n_hi_won_lo_first, n_tied_lo_first, n_lo_won_hi_first, n_hi_won_hi_first, n_tied_hi_first
),
agreements AS (
  SELECT
    study, cell, cluster_unit, cluster_item, n, n_sides,
    CASE WHEN a > 1 THEN (a_lo * (a_lo - 1) + a_hi * (a_hi - 1) + a_tie * (a_tie - 1)) / (a * (a - 1)) END AS within_a,
    CASE WHEN b > 1 THEN (b_lo * (b_lo - 1) + b_hi * (b_hi - 1) + b_tie * (b_tie - 1)) / (b * (b - 1)) END AS within_b,
    CASE WHEN a > 0 AND b > 0 THEN (a_lo * b_lo + a_hi * b_hi + a_tie * b_tie) / (a * b) END AS across
  FROM patterns
),
counted AS (
  SELECT
    *,
    n * (CASE WHEN within_a IS NULL THEN 0 ELSE 1 END + CASE WHEN within_b IS NULL THEN 0 ELSE 1 END) AS n_within,
    CASE WHEN across IS NULL THEN 0 ELSE n END AS n_across,
    CASE WHEN within_a IS NULL AND within_b IS NULL AND across IS NULL THEN 0 ELSE n END AS n_any,
    n * (CASE WHEN within_a = 1 THEN 1 ELSE 0 END + CASE WHEN within_b = 1 THEN 1 ELSE 0 END) AS n_equal,
    n * (coalesce(within_a, 0) + coalesce(within_b, 0)) AS sum_within
  FROM agreements
),
centred AS (
  SELECT
    *,
    sum(n_within / n_sides) OVER cell AS n_orders,
    sum(n_across / n_sides) OVER cell AS n_crossed,
    sum(sum_within / n_sides) OVER cell / nullif(sum(n_within / n_sides) OVER cell, 0) AS repeated,
    sum(n * across / n_sides) OVER cell / nullif(sum(n_across / n_sides) OVER cell, 0) AS crossed
  FROM counted
  WINDOW cell AS (PARTITION BY study, cell)
),
clusters AS (
  SELECT
    study, cell,
    max(n_sides) AS n_sides,
    sum(n_within) AS n_within,
    sum(n_equal) AS n_equal,
    sum(n_across) AS n_across,
    sum(n_any) AS n_any,
    sum(sum_within) AS sum_within,
    coalesce(sum(n * across), 0) AS sum_across,
    max(repeated) AS repeated,
    max(crossed) AS crossed,
    sum(n * (coalesce(power(within_a - repeated, 2), 0) + coalesce(power(within_b - repeated, 2), 0)))
      AS within_squares,
    sum(n * power(across - crossed, 2)) AS across_squares,
    sum(n * power(
      (coalesce(within_a - repeated, 0) + coalesce(within_b - repeated, 0)) / nullif(n_orders, 0)
      - coalesce(across - crossed, 0) / nullif(n_crossed, 0), 2)) AS excess_squares
  FROM centred
  GROUP BY study, cell, cluster_unit, cluster_item
),
left_out AS (
  SELECT
    *,
    (sum(sum_within / n_sides) OVER cell - sum_within) / nullif(sum(n_within / n_sides) OVER cell - n_within, 0) - repeated
      AS repeated_moved,
    (sum(n_equal / n_sides) OVER cell - n_equal) / nullif(sum(n_within / n_sides) OVER cell - n_within, 0)
      - sum(n_equal / n_sides) OVER cell / nullif(sum(n_within / n_sides) OVER cell, 0) AS unanimity_moved,
    (sum(sum_across / n_sides) OVER cell - sum_across) / nullif(sum(n_across / n_sides) OVER cell - n_across, 0) - crossed
      AS crossed_moved
  FROM clusters
  WINDOW cell AS (PARTITION BY study, cell)
),
sums AS (
  SELECT
    study, cell,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n_any) / nullif(sum(n_any / n_sides), 0) END AS n_sides,
    count(*) FILTER (WHERE n_any > 0) AS n_clusters,
    CAST(round(sum(n_within / n_sides)) AS BIGINT) AS n_orders,
    CAST(round(sum(n_equal / n_sides)) AS BIGINT) AS n_unanimous,
    CAST(round(sum(n_across / n_sides)) AS BIGINT) AS n_cross_order_pairs,
    CAST(round(sum(n_any / n_sides)) AS BIGINT) AS n_pairs,
    max(repeated) AS repeat_agreement,
    max(crossed) AS cross_order_agreement,
    sum(within_squares / n_sides) AS within_squares,
    sum(across_squares / n_sides) AS across_squares,
    sum(excess_squares / n_sides) AS excess_squares,
    sum(repeated_moved * repeated_moved) AS repeated_jack,
    sum(unanimity_moved * unanimity_moved) AS unanimity_jack,
    sum(crossed_moved * crossed_moved) AS crossed_jack,
    sum((repeated_moved - crossed_moved) * (repeated_moved - crossed_moved)) AS excess_jack
  FROM left_out
  GROUP BY study, cell
),
variances AS (
  SELECT
    *,
    n_unanimous / nullif(n_orders, 0) AS repeat_unanimity,
    repeat_agreement - cross_order_agreement AS position_excess_conflict,
    (n_clusters - 1) / nullif(n_clusters, 0) AS jack,
    CASE WHEN n_orders > 1 THEN within_squares / (n_orders - 1) / n_orders END AS repeated_by_pair,
    CASE WHEN n_cross_order_pairs > 1
         THEN across_squares / (n_cross_order_pairs - 1) / n_cross_order_pairs END AS crossed_by_pair,
    CASE WHEN n_pairs > 1 AND repeat_agreement IS NOT NULL AND cross_order_agreement IS NOT NULL
         THEN excess_squares * n_pairs / (n_pairs - 1) END AS excess_by_pair
  FROM sums
),
errors AS (
  SELECT
    *,
    CASE WHEN repeated_by_pair IS NOT NULL
         THEN sqrt(clustered_variance(repeated_jack * jack, repeated_by_pair, n_sides)) END AS repeat_agreement_se,
    CASE WHEN n_orders > 1
         THEN sqrt(clustered_variance(unanimity_jack * jack, repeat_unanimity * (1 - repeat_unanimity) / n_orders, n_sides))
         END AS repeat_unanimity_se,
    CASE WHEN crossed_by_pair IS NOT NULL
         THEN sqrt(clustered_variance(crossed_jack * jack, crossed_by_pair, n_sides)) END AS cross_order_agreement_se,
    CASE WHEN excess_by_pair IS NOT NULL
         THEN sqrt(clustered_variance(excess_jack * jack, excess_by_pair, n_sides)) END AS position_excess_conflict_se,
    sqrt(repeated_by_pair) AS repeat_agreement_se_these_items,
    sqrt(crossed_by_pair) AS cross_order_agreement_se_these_items,
    sqrt(excess_by_pair) AS position_excess_conflict_se_these_items
  FROM variances
),
-- four means in one list, two quantiles in another: a macro is written out wherever it stands
bounded AS (
  SELECT
    *,
    list_transform([
        {'p': repeat_agreement, 'n': CASE WHEN n_clusters >= 5 THEN n_orders END, 'se': repeat_agreement_se,
          'df': n_clusters - 1},
        {'p': cross_order_agreement, 'n': CASE WHEN n_clusters >= 5 THEN n_cross_order_pairs END,
          'se': cross_order_agreement_se, 'df': n_clusters - 1},
        {'p': repeat_agreement, 'n': n_orders, 'se': repeat_agreement_se_these_items, 'df': n_orders - 1},
        {'p': cross_order_agreement, 'n': n_cross_order_pairs, 'se': cross_order_agreement_se_these_items,
          'df': n_cross_order_pairs - 1}
      ], LAMBDA bp_m: wilson_mean(bp_m.p, bp_m.n, bp_m.se, df := bp_m.df)) AS ends,
    wilson_clustered(repeat_unanimity, n_orders, repeat_unanimity_se, n_clusters) AS unanimity_ends,
    list_transform([
        CASE WHEN position_excess_conflict_se > 1e-9 AND n_clusters >= 5 THEN n_clusters - 1 END,
        CASE WHEN position_excess_conflict_se_these_items > 1e-9 THEN n_pairs - 1 END
      ], LAMBDA bp_df: t_two_sided_95(bp_df)) AS quantiles
  FROM errors
),
named AS (
  SELECT
    *,
    ends[1] AS repeat_ends,
    ends[2] AS cross_ends,
    ends[3] AS repeat_ends_these,
    ends[4] AS cross_ends_these,
    quantiles[1] * position_excess_conflict_se AS half_width,
    quantiles[2] * position_excess_conflict_se_these_items AS half_width_these
  FROM bounded
)
SELECT
  study, cell.*,
  n_pairs,
  n_clusters,
  n_orders,
  repeat_agreement,
  repeat_agreement_se,
  repeat_ends.lo AS repeat_agreement_lo,
  repeat_ends.hi AS repeat_agreement_hi,
  repeat_agreement_se_these_items,
  repeat_ends_these.lo AS repeat_agreement_lo_these_items,
  repeat_ends_these.hi AS repeat_agreement_hi_these_items,
  n_unanimous,
  repeat_unanimity,
  repeat_unanimity_se,
  unanimity_ends.lo AS repeat_unanimity_lo,
  unanimity_ends.hi AS repeat_unanimity_hi,
  wilson_lo(n_unanimous, n_orders) AS repeat_unanimity_lo_these_items,
  wilson_hi(n_unanimous, n_orders) AS repeat_unanimity_hi_these_items,
  n_cross_order_pairs,
  cross_order_agreement,
  cross_order_agreement_se,
  cross_ends.lo AS cross_order_agreement_lo,
  cross_ends.hi AS cross_order_agreement_hi,
  cross_order_agreement_se_these_items,
  cross_ends_these.lo AS cross_order_agreement_lo_these_items,
  cross_ends_these.hi AS cross_order_agreement_hi_these_items,
  position_excess_conflict,
  position_excess_conflict_se,
  share_difference(position_excess_conflict - half_width) AS position_excess_conflict_lo,
  share_difference(position_excess_conflict + half_width) AS position_excess_conflict_hi,
  position_excess_conflict_se_these_items,
  share_difference(position_excess_conflict - half_width_these) AS position_excess_conflict_lo_these_items,
  share_difference(position_excess_conflict + half_width_these) AS position_excess_conflict_hi_these_items
FROM named;
