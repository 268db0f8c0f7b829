-- grain: study, cell
-- question: Does a judge prefer the longer of two texts?
-- source: the wins of pair_status that hold in both orders, of all votes (lo_part, hi_part), with the texts' lengths
--   (item_lengths): a pair is won by either text as far as the votes of one order and those of the other, each with each,
--   name it, so that asking more often moves no rate. n_pairs have such a win; n_longer_won and n_shorter_won count those
--   that go to the longer text, or the shorter, more often. An empty text counts as one character. Each pair is counted
--   for both of its n_clusters items that differ in length from another's, or for its prompt where pairs are models'
--   outputs, as in pair_clusters. Pairs that lists imply are left out.
-- estimators:
--   - longer_win_rate: wins of the longer text, of all wins of pairs with different lengths
--   - longer_win_rate_se: for items in general (clustered_variance); longer_win_rate_lo and longer_win_rate_hi with it, as
--     wilson_clustered
--   - p_longer: that longer_win_rate is 1/2, for items in general, by t over n_clusters - 1: below 0.05 exactly where 1/2
--     is outside the interval, as both are Wilson's with the same effective size
--   - longer_mde: the smallest share above 1/2 that p_longer would have found with power 0.8 (the t quantile of 0.8 to
--     1e-3)
--   - p_longer_these_items, longer_win_rate_lo_these_items, longer_win_rate_hi_these_items: the exact sign test of
--     n_longer_won against n_shorter_won, and Clopper-Pearson, which inverts it; where votes split, the sign-flip test of
--     the pairs' differences (sign_flip_z), of at least 6 that differ, and its inversion (sign_flip_ratio)
--   - longer_mde_these_items: the smallest share that the sign test finds with power 0.8; where votes split, by the error
--     of pairs as draws
--   - longer_win_rate_min, longer_win_rate_max: what the n_open pairs of different lengths without a vote in an order
--     leave open: all lost by the longer text, or all won
--   - log_length_ratio: mean over wins of ln(length of winner / length of loser); above 0 the winner is longer
--   - log_length_ratio_se: for items in general (clustered_variance), the interval by t over n_clusters - 1
--   - log_length_ratio_se_these_items: pairs being draws, sd / sqrt(n) with one vote per order
--   - log_length_ratio_lo_these_items, log_length_ratio_hi_these_items: with it, by t over n_pairs - 1
--   - length_correlation: correlation of winning (+1, -1) with the log ratio, through the origin, which is the same
--     whichever item is called the first
-- reference: own definitions; clopper_pearson, clustered, sign_test_mde, wilson_clustered.
-- nulls: longer_win_rate and its p are NULL where no pair differs in length; what is of items in general below 5 of them,
--   of these items, where votes split, below 6 pairs with more wins of either,
--   longer_mde and longer_mde_these_items where so few pairs reveal no share, not even one of 1, the errors of log_length_ratio below 2 pairs,
--   its intervals also where all log ratios are alike, length_correlation where every one is 0.
-- note: longer texts may be better texts: this says what goes with winning, not what the judge looks at. By simulation
--   intervals for items in general hold the truth in .93 to .96 with 20 items.

CREATE OR REPLACE VIEW metric_length AS
WITH lengths AS MATERIALIZED (
  SELECT study, item, n_chars FROM item_lengths
),
pairs AS (
  SELECT
    pair_status.*,
    cell(pair_status) AS cell,
    pair_status.lo_part + pair_status.hi_part AS won,
    pair_status.lo_part - pair_status.hi_part AS lead_lo,
    -- not greatest(), which takes a length that is not known for 1
    ln(CASE lo.n_chars WHEN 0 THEN 1 ELSE lo.n_chars END) - ln(CASE hi.n_chars WHEN 0 THEN 1 ELSE hi.n_chars END)
      AS log_ratio_lo,
    lo.n_chars - hi.n_chars AS difference_lo,
    CASE WHEN coalesce(pair_status.candidate_lo, pair_status.candidate_hi) IS NULL THEN 2 ELSE 1 END AS n_sides
  FROM pair_status
  LEFT JOIN lengths AS lo ON lo.study = pair_status.study AND lo.item = pair_status.item_lo
  LEFT JOIN lengths AS hi ON hi.study = pair_status.study AND hi.item = pair_status.item_hi
  WHERE (pair_status.lo_part + pair_status.hi_part > 0
      OR (pair_status.lo_part IS NULL AND pair_status.status IN ('undecided', 'missing_reverse')))
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
    study, cell,
    max(n_sides) AS n_sides,
    count(difference_lo) FILTER (WHERE won > 0) AS n_known,
    count(*) FILTER (WHERE won > 0 AND difference_lo IS NULL) AS n_no_length,
    count(*) FILTER (WHERE won > 0 AND lead_lo * difference_lo > 0) AS n_longer,
    count(*) FILTER (WHERE won > 0 AND lead_lo * difference_lo < 0) AS n_shorter,
    count(*) FILTER (WHERE won > 0 AND difference_lo = 0) AS n_same,
    count(*) FILTER (WHERE won IS NULL AND difference_lo <> 0) AS n_open,
    coalesce(sum(CASE WHEN difference_lo IS NOT NULL THEN won END), 0) AS known,
    coalesce(sum(CASE WHEN difference_lo <> 0 THEN won END), 0) AS differ,
    coalesce(sum(CASE WHEN difference_lo <> 0 THEN won * won END), 0) AS differ_squares,
    coalesce(sum(CASE WHEN difference_lo > 0 THEN lo_part WHEN difference_lo < 0 THEN hi_part END), 0) AS longer,
    coalesce(sum(CASE WHEN difference_lo > 0 THEN lo_part * lo_part WHEN difference_lo < 0 THEN hi_part * hi_part END), 0)
      AS longer_squares,
    coalesce(sum(CASE WHEN difference_lo > 0 THEN lo_part * won WHEN difference_lo < 0 THEN hi_part * won END), 0)
      AS longer_differ,
    coalesce(sum(lead_lo * log_ratio_lo), 0) AS log_ratio,
    coalesce(sum(won * log_ratio_lo * log_ratio_lo), 0) AS squares,
    coalesce(sum(lead_lo * lead_lo * log_ratio_lo * log_ratio_lo), 0) AS lead_squares,
    coalesce(sum(lead_lo * log_ratio_lo * won), 0) AS lead_won,
    coalesce(sum(CASE WHEN difference_lo IS NOT NULL THEN won * won END), 0) AS won_squares
  FROM sided
  GROUP BY study, cell, unit_id, cluster_item
),
left_out AS (
  SELECT
    *,
    -- what is left of all by rounding is none
    (sum(longer / n_sides) OVER cell - longer) / nullif(round(sum(differ / n_sides) OVER cell - differ, 9), 0)
      - sum(longer / n_sides) OVER cell / nullif(sum(differ / n_sides) OVER cell, 0) AS rate_moved,
    (sum(log_ratio / n_sides) OVER cell - log_ratio) / nullif(round(sum(known / n_sides) OVER cell - known, 9), 0)
      - sum(log_ratio / n_sides) OVER cell / nullif(sum(known / n_sides) OVER cell, 0) AS ratio_moved
  FROM clusters
  WINDOW cell AS (PARTITION BY study, cell)
),
sums AS (
  SELECT
    study, cell,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n_known) / nullif(sum(n_known / n_sides), 0) END AS n_sides,
    count(*) FILTER (WHERE differ > 0) AS n_clusters,
    CAST(round(sum(n_known / n_sides)) AS BIGINT) AS n_pairs,
    CAST(round(sum(n_no_length / n_sides)) AS BIGINT) AS n_no_length,
    CAST(round(sum(n_longer / n_sides)) AS BIGINT) AS n_longer_won,
    CAST(round(sum(n_shorter / n_sides)) AS BIGINT) AS n_shorter_won,
    round(sum(known / n_sides), 9) AS known,
    round(sum(differ / n_sides), 9) AS differ,
    round(sum(longer / n_sides), 9) AS longer,
    round(sum(differ_squares / n_sides), 9) AS differ_squares,
    round(sum(longer_squares / n_sides), 9) AS longer_squares,
    round(sum(longer_differ / n_sides), 9) AS longer_differ,
    CAST(round(sum(n_same / n_sides)) AS BIGINT) AS n_same_length,
    CAST(round(sum(n_open / n_sides)) AS BIGINT) AS n_open,
    sum(log_ratio / n_sides) / nullif(sum(known / n_sides), 0) AS log_length_ratio,
    sum(squares / n_sides) AS squares,
    sum(lead_squares / n_sides) AS lead_squares,
    sum(lead_won / n_sides) AS lead_won,
    sum(won_squares / n_sides) AS won_squares,
    sum(CASE WHEN differ > 0 THEN rate_moved * rate_moved END) AS rate_squares,
    sum(CASE WHEN n_known > 0 THEN ratio_moved * ratio_moved END) AS ratio_squares
  FROM left_out
  GROUP BY study, cell
),
rates AS (
  SELECT
    *,
    longer / nullif(differ, 0) AS longer_win_rate,
    -- a pair's residual is what goes to the longer text, or its log ratio, less its wins times the rate
    greatest(0.0, longer_squares - 2 * longer / nullif(differ, 0) * longer_differ
      + longer * longer / nullif(differ * differ, 0) * differ_squares) / nullif(differ * differ, 0) AS rate_by_pair,
    CASE WHEN lead_squares - 2 * log_length_ratio * lead_won + log_length_ratio * log_length_ratio * won_squares
           > 1e-12 * lead_squares
         THEN lead_squares - 2 * log_length_ratio * lead_won + log_length_ratio * log_length_ratio * won_squares
         ELSE 0 END * n_pairs / nullif(n_pairs - 1, 0) / nullif(known * known, 0) AS ratio_by_pair,
    -- a draw for each pair, that goes to the longer text or to the shorter
    differ_squares = differ AND longer_squares = longer AS is_one_vote,
    (n_clusters - 1) / nullif(n_clusters, 0) AS jack,
    CASE WHEN n_clusters >= 5 THEN n_clusters - 1 END AS df
  FROM sums
),
errors AS (
  SELECT
    *,
    sqrt(clustered_variance(jack * rate_squares, rate_by_pair, n_sides))
      AS longer_win_rate_se,
    CASE WHEN n_pairs > 1 THEN sqrt(clustered_variance(jack * ratio_squares, ratio_by_pair, n_sides)) END
      AS log_length_ratio_se,
    sqrt(ratio_by_pair) AS log_length_ratio_se_these_items,
    n_longer_won + n_shorter_won AS n_won,
    4 * (longer_squares - longer_differ) + differ_squares AS lead_lead,
    t_two_sided_95(df) AS t_ends,
    CASE WHEN ratio_by_pair > 0 THEN t_two_sided_95(n_pairs - 1) END AS t_these
  FROM rates
),
sized AS (
  SELECT
    *,
    CASE WHEN ratio_by_pair > 0 THEN t_ends END AS t_ratio,
    CASE WHEN df > 0 THEN mean_size(longer_win_rate, differ, longer_win_rate_se) END AS n_effective,
    CASE WHEN n_won >= 6 AND NOT is_one_vote
         THEN sign_flip_ratio(longer, differ, longer_squares, longer_differ, differ_squares) END AS flip_ends,
    CASE WHEN n_won >= 6 THEN sign_flip_z(2 * longer - differ, 0, lead_lead, 0, 0) END AS flip_z,
    CASE WHEN n_won >= 6 THEN (1.959963984540054 + 0.8416212335729143) * sqrt(lead_lead) / (2 * differ) END AS flip_reach
  FROM errors
)
SELECT
  study, cell.*,
  n_pairs, n_no_length, n_longer_won, n_shorter_won, n_same_length, n_open, n_clusters,
  longer_win_rate,
  longer_win_rate_se,
  wilson_lo(longer_win_rate * n_effective, n_effective, t_ends) AS longer_win_rate_lo,
  wilson_hi(longer_win_rate * n_effective, n_effective, t_ends) AS longer_win_rate_hi,
  t_two_sided((2 * longer_win_rate - 1) * sqrt(n_effective), df) AS p_longer,
  CASE WHEN n_effective > 0
       THEN share_difference_mde(0.5 + (t_ends + 0.8416212335729143 + 0.3594365 / df) / (2 * sqrt(n_effective))) END
    AS longer_mde,
  CASE WHEN is_one_vote THEN clopper_pearson_lo(n_longer_won, n_won) WHEN flip_ends.lo < 0 THEN 0.0 ELSE flip_ends.lo END
    AS longer_win_rate_lo_these_items,
  CASE WHEN is_one_vote THEN clopper_pearson_hi(n_longer_won, n_won) ELSE share_difference(flip_ends.hi) END
    AS longer_win_rate_hi_these_items,
  CASE WHEN is_one_vote THEN binom_test_half(n_longer_won, n_won) ELSE normal_two_sided(flip_z) END
    AS p_longer_these_items,
  CASE WHEN is_one_vote THEN sign_test_mde(n_won) ELSE share_difference_mde(0.5 + flip_reach) END AS longer_mde_these_items,
  longer / nullif(differ + n_open, 0) AS longer_win_rate_min,
  (longer + n_open) / nullif(differ + n_open, 0) AS longer_win_rate_max,
  log_length_ratio,
  log_length_ratio_se,
  log_length_ratio - t_ratio * log_length_ratio_se AS log_length_ratio_lo,
  log_length_ratio + t_ratio * log_length_ratio_se AS log_length_ratio_hi,
  log_length_ratio_se_these_items,
  log_length_ratio - t_these * log_length_ratio_se_these_items AS log_length_ratio_lo_these_items,
  log_length_ratio + t_these * log_length_ratio_se_these_items AS log_length_ratio_hi_these_items,
  log_length_ratio * sqrt(known / nullif(squares, 0)) AS length_correlation
FROM sized;
