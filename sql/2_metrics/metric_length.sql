-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: Does a judge prefer the longer of two texts?
-- source: the consistent wins of pair_status with the texts' lengths (item_lengths). An empty text counts as one
--   character. Each pair is counted for both of its n_clusters items that differ in length from another's, or for its
--   prompt where pairs are models' outputs, as in pair_clusters. Pairs that lists imply are left out.
-- estimators:
--   - longer_win_rate: wins of the longer text of the pairs with different lengths
--   - longer_win_rate_se: for items in general (clustered_variance); longer_win_rate_lo and longer_win_rate_hi with it, as
--     wilson_clustered
--   - p_longer: that longer_win_rate is 1/2, for items in general, by t over n_clusters - 1: below 0.05 exactly where 1/2
--     is outside the interval, as both are Wilson's with the same effective size
--   - longer_mde: the smallest share above 1/2 that p_longer would have found with power 0.8 (the t quantile of 0.8 to
--     1e-3)
--   - p_longer_these_items, longer_win_rate_lo_these_items, longer_win_rate_hi_these_items: the exact sign test of
--     n_longer_won against n_shorter_won, and Clopper-Pearson, which inverts it
--   - longer_mde_these_items: the smallest share that the sign test finds with power 0.8
--   - longer_win_rate_min, longer_win_rate_max: what the n_open pairs of different lengths without a majority in an order
--     leave open: all lost by the longer text, or all won
--   - log_length_ratio: mean of ln(length of winner / length of loser); above 0 the winner is longer
--   - log_length_ratio_se: for items in general (clustered_variance), the interval by t over n_clusters - 1
--   - log_length_ratio_se_these_items: sd / sqrt(n), pairs being draws
--   - log_length_ratio_lo_these_items, log_length_ratio_hi_these_items: with it, by t over n_pairs - 1
--   - length_correlation: correlation of winning (+1, -1) with the log ratio, through the origin, which is the same
--     whichever item is called the first
-- reference: own definitions; clopper_pearson, clustered, sign_test_mde, wilson_clustered.
-- nulls: longer_win_rate and its p are NULL where no pair differs in length; what is of items in general below 5 of them,
--   longer_mde and longer_mde_these_items where so few pairs reveal no share, not even one of 1, the errors of log_length_ratio below 2 pairs,
--   its intervals also where all log ratios are alike, length_correlation where every one is 0.
-- note: longer texts may be better texts: this says what goes with winning, not what the judge looks at.

CREATE OR REPLACE VIEW metric_length AS
WITH lengths AS MATERIALIZED (
  SELECT study, item, n_chars FROM item_lengths
),
pairs AS (
  SELECT
    pair_status.*,
    pair_status.status = 'consistent_win' AS is_won,
    CASE pair_status.majority_lo_first WHEN 'lo' THEN 1 ELSE -1 END AS sign,
    -- not greatest(), which takes a length that is not known for 1
    ln(CASE lo.n_chars WHEN 0 THEN 1 ELSE lo.n_chars END) - ln(CASE hi.n_chars WHEN 0 THEN 1 ELSE hi.n_chars END)
      AS log_ratio_lo,
    lo.n_chars - hi.n_chars AS difference_lo,
    CASE WHEN coalesce(pair_status.candidate_lo, pair_status.candidate_hi) IS NULL THEN 2 ELSE 1 END AS n_sides
  FROM pair_status
  LEFT JOIN lengths AS lo ON lo.study = pair_status.study AND lo.item = pair_status.item_lo
  LEFT JOIN lengths AS hi ON hi.study = pair_status.study AND hi.item = pair_status.item_hi
  WHERE pair_status.status IN ('consistent_win', 'undecided', 'missing_reverse')
    AND pair_status.list_kind IS NULL
),
sided AS (
  SELECT
    pairs.*,
    CASE WHEN n_sides = 1 THEN '' WHEN sides.side = 1 THEN item_lo ELSE item_hi END AS cluster_item
  FROM pairs
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE sides.side <= n_sides
),
clusters AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    max(n_sides) AS n_sides,
    count(difference_lo) FILTER (WHERE is_won) AS n_known,
    count(*) FILTER (WHERE is_won AND difference_lo IS NULL) AS n_no_length,
    count(*) FILTER (WHERE is_won AND sign * difference_lo > 0) AS n_longer,
    count(*) FILTER (WHERE is_won AND sign * difference_lo < 0) AS n_shorter,
    count(*) FILTER (WHERE is_won AND difference_lo = 0) AS n_same,
    count(*) FILTER (WHERE NOT is_won AND difference_lo <> 0) AS n_open,
    coalesce(sum(sign * log_ratio_lo) FILTER (WHERE is_won), 0) AS log_ratio,
    coalesce(sum(log_ratio_lo * log_ratio_lo) FILTER (WHERE is_won), 0) AS squares
  FROM sided
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, unit_id, cluster_item
),
left_out AS (
  SELECT
    *,
    (sum(n_longer / n_sides) OVER cell - n_longer)
      / nullif(sum((n_longer + n_shorter) / n_sides) OVER cell - n_longer - n_shorter, 0)
      - sum(n_longer / n_sides) OVER cell / nullif(sum((n_longer + n_shorter) / n_sides) OVER cell, 0) AS rate_moved,
    (sum(log_ratio / n_sides) OVER cell - log_ratio) / nullif(sum(n_known / n_sides) OVER cell - n_known, 0)
      - sum(log_ratio / n_sides) OVER cell / nullif(sum(n_known / n_sides) OVER cell, 0) AS ratio_moved
  FROM clusters
  WINDOW cell AS (PARTITION BY study, template_id, rubric_id, provider, request_model, thinking)
),
sums AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n_known) / nullif(sum(n_known / n_sides), 0) END AS n_sides,
    count(*) FILTER (WHERE n_longer + n_shorter > 0) AS n_clusters,
    CAST(round(sum(n_known / n_sides)) AS BIGINT) AS n_pairs,
    CAST(round(sum(n_no_length / n_sides)) AS BIGINT) AS n_no_length,
    CAST(round(sum(n_longer / n_sides)) AS BIGINT) AS n_longer_won,
    CAST(round(sum(n_shorter / n_sides)) AS BIGINT) AS n_shorter_won,
    CAST(round(sum((n_longer + n_shorter) / n_sides)) AS BIGINT) AS n_differ,
    CAST(round(sum(n_same / n_sides)) AS BIGINT) AS n_same_length,
    CAST(round(sum(n_open / n_sides)) AS BIGINT) AS n_open,
    sum(log_ratio / n_sides) / nullif(sum(n_known / n_sides), 0) AS log_length_ratio,
    sum(squares / n_sides) AS squares,
    sum(CASE WHEN n_longer + n_shorter > 0 THEN rate_moved * rate_moved END) AS rate_squares,
    sum(CASE WHEN n_known > 0 THEN ratio_moved * ratio_moved END) AS ratio_squares
  FROM left_out
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
rates AS (
  SELECT
    *,
    n_longer_won / nullif(n_differ, 0) AS longer_win_rate,
    CASE WHEN squares - n_pairs * log_length_ratio * log_length_ratio > 1e-12 * squares
         THEN squares - n_pairs * log_length_ratio * log_length_ratio ELSE 0 END
      / nullif(n_pairs - 1, 0) / nullif(n_pairs, 0) AS ratio_by_pair,
    (n_clusters - 1) / nullif(n_clusters, 0) AS jack,
    CASE WHEN n_clusters >= 5 THEN n_clusters - 1 END AS df
  FROM sums
),
errors AS (
  SELECT
    *,
    sqrt(clustered_variance(jack * rate_squares, longer_win_rate * (1 - longer_win_rate) / n_differ, n_sides))
      AS longer_win_rate_se,
    CASE WHEN n_pairs > 1 THEN sqrt(clustered_variance(jack * ratio_squares, ratio_by_pair, n_sides)) END
      AS log_length_ratio_se,
    sqrt(ratio_by_pair) AS log_length_ratio_se_these_items,
    t_two_sided_95(df) AS t_ends,
    CASE WHEN ratio_by_pair > 0 THEN t_two_sided_95(n_pairs - 1) END AS t_these
  FROM rates
),
sized AS (
  SELECT
    *,
    CASE WHEN ratio_by_pair > 0 THEN t_ends END AS t_ratio,
    CASE WHEN df > 0 THEN effective_size(longer_win_rate, n_differ, longer_win_rate_se) END AS n_effective
  FROM errors
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking,
  n_pairs, n_no_length, n_longer_won, n_shorter_won, n_same_length, n_open, n_clusters,
  longer_win_rate,
  longer_win_rate_se,
  wilson_lo(longer_win_rate * n_effective, n_effective, t_ends) AS longer_win_rate_lo,
  wilson_hi(longer_win_rate * n_effective, n_effective, t_ends) AS longer_win_rate_hi,
  t_two_sided((2 * longer_win_rate - 1) * sqrt(n_effective), df) AS p_longer,
  CASE WHEN n_effective > 0
       THEN share_difference_mde(0.5 + (t_ends + 0.8416212335729143 + 0.3594365 / df) / (2 * sqrt(n_effective))) END
    AS longer_mde,
  clopper_pearson_lo(n_longer_won, n_differ) AS longer_win_rate_lo_these_items,
  clopper_pearson_hi(n_longer_won, n_differ) AS longer_win_rate_hi_these_items,
  binom_test_half(n_longer_won, n_differ) AS p_longer_these_items,
  sign_test_mde(n_differ) AS longer_mde_these_items,
  n_longer_won / nullif(n_differ + n_open, 0) AS longer_win_rate_min,
  (n_longer_won + n_open) / nullif(n_differ + n_open, 0) AS longer_win_rate_max,
  log_length_ratio,
  log_length_ratio_se,
  log_length_ratio - t_ratio * log_length_ratio_se AS log_length_ratio_lo,
  log_length_ratio + t_ratio * log_length_ratio_se AS log_length_ratio_hi,
  log_length_ratio_se_these_items,
  log_length_ratio - t_these * log_length_ratio_se_these_items AS log_length_ratio_lo_these_items,
  log_length_ratio + t_these * log_length_ratio_se_these_items AS log_length_ratio_hi_these_items,
  log_length_ratio * sqrt(n_pairs / nullif(squares, 0)) AS length_correlation
FROM sized;
