-- grain: study, cell
-- question: Does a judge favour the item shown first, or second, whatever the items are?
-- source: the votes of pair_status, every one of them, as pair_clusters adds them up by item: n_both pairs have votes
--   in both orders, n_left_out do not, n_decided a winner in both; n_primacy, n_recency and n_discordant are statuses,
--   of majorities of repeats. n_clusters items (prompts, where pairs are models' outputs) have a pair with votes in
--   both orders; n_flipped pairs have a vote for the first in both orders, or for the second in both, and alone say
--   anything: n_clusters_flipped items (or prompts) have one.
-- estimators:
--   - position_logodds: by how much the log-odds of an item rise when it is shown first (as much as they fall when it
--     is second), by Mantel and Haenszel over all votes, each pair a stratum of its own (logodds_matched): free of the
--     items' quality, above 0 when the first is favoured; ties are no votes
--   - position_logodds_se: for items in general (clustered_variance)
--   - position_logodds_lo, position_logodds_hi, p_position: for items in general, all by t over
--     n_clusters_flipped - 1
--   - position_logodds_se_these_items: of the pairs (logodds_matched_variance)
--   - p_position_these_items, position_logodds_lo_these_items, position_logodds_hi_these_items: with one vote per order
--     the exact test of n_primacy in n_discordant (exact McNemar) and Clopper-Pearson's ends of that share, as
--     log-odds; with repeats the sign-flip test of the pairs (sign_flip_z) and its inversion, or, where all flips go
--     one way and there is nothing to weigh them against, Clopper-Pearson's end of n_flipped in n_flipped. Either way p
--     is below 0.05 exactly where 0 is outside
--   - position_logodds_mde: the smallest log-odds, for items in general, that p_position would have found with power
--     0.8 (logodds_matched_mde, by the t quantiles of 0.975 and 0.8, the latter to 1e-3); about, as it goes by the
--     error that was seen, and NULL where it would have found none
--   - q_bh: Benjamini and Hochberg's, over p_position of the cells of the study that have one
--   - position_item_sd: how much items differ in it: the standard deviation of an item's own position log-odds, where
--     that of a pair is the mean of its two items', by the method of moments; 0 where items differ no more than chance
--   - p_position_items: whether they differ at all, by the squares of the items' sums against a chi-square with the
--     same mean and variance (Satterthwaite)
-- reference: Mantel and Haenszel 1959; Benjamini and Hochberg 1995; clustered, mcnemar, clopper_pearson.
-- nulls: no flipped pair is no evidence: p and log-odds are NULL then, not 1. For items in general NULL below 5 items
--   with a flipped pair. An end that is at infinity is NULL; with repeats and fewer than 6 flipped pairs, which no test
--   could tell from chance, p_position_these_items and its ends are. position_item_sd and p_position_items are NULL for
--   prompts and lists, where no item has two pairs with a flip, and with fewer than five flips to either place: of a
--   judge that all but always names the same one nothing is known of how items differ. What is of these items is NULL
--   for lists, whose pairs are no draws.
-- note: shares and rates that people quote are in metric_position_rates. What is said of items in general is careful where
--   these are few: by simulation its interval held the truth in .97 to .99 of sets with 20 items, in .985 to .99 with
--   15, and in .99 to 1.00 with 10 and 12; without an effect p_position was below 0.05 in .008 to .015 of sets with 15,
--   and in .001 to .007 with 10 and 12.

CREATE OR REPLACE VIEW metric_position_bias AS
WITH clusters AS (
  SELECT
    *,
    cell(pair_clusters) AS cell,
    sum(first_won / n_sides) OVER cell AS r,
    sum(second_won / n_sides) OVER cell AS s,
    sum(first_squares / n_sides) OVER cell AS rr,
    sum(second_squares / n_sides) OVER cell AS ss,
    sum(products / n_sides) OVER cell AS rs
  FROM pair_clusters
  WINDOW cell AS (PARTITION BY study, cell(pair_clusters))
),
estimated AS (
  SELECT
    *,
    (rr + ss) / nullif(r + s, 0) AS w,
    r - first_won AS r_others,
    s - second_won AS s_others
  FROM clusters
),
left_out AS (
  SELECT
    *,
    logodds_matched(r, s, w) AS logodds,
    0.5 * ln((r_others + w / 2) / (s_others + w / 2)) AS logodds_others,
    -- e^-logodds and e^logodds, under which the two terms are alike
    sqrt((s + w / 2) / (r + w / 2)) AS of_first,
    sqrt((r + w / 2) / (s + w / 2)) AS of_second
  FROM estimated
),
scored AS (
  SELECT
    *,
    first_won * of_first - second_won * of_second AS excess,
    first_squares * of_first * of_first - 2 * products + second_squares * of_second * of_second AS excess_squares,
    first_won * of_first + second_won * of_second AS size,
    first_squares * of_first * of_first + 2 * products + second_squares * of_second * of_second AS size_squares
  FROM left_out
),
counts AS (
  SELECT
    study, cell,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n_pairs) / nullif(sum(n_pairs / n_sides), 0) END AS n_sides,
    max(list_kind) AS list_kind,
    CAST(round(sum(n_pairs / n_sides)) AS BIGINT) AS n_pairs,
    CAST(round(sum(n_both / n_sides)) AS BIGINT) AS n_both,
    CAST(round(sum(n_decided / n_sides)) AS BIGINT) AS n_decided,
    CAST(round(sum(n_primacy / n_sides)) AS BIGINT) AS n_primacy,
    CAST(round(sum(n_recency / n_sides)) AS BIGINT) AS n_recency,
    CAST(round(sum((n_primacy + n_recency) / n_sides)) AS BIGINT) AS n_discordant,
    CAST(round(sum((n_undecided + n_missing_reverse) / n_sides)) AS BIGINT) AS n_left_out,
    CAST(round(sum(n_pairs_pending / n_sides)) AS BIGINT) AS n_pairs_pending,
    CAST(round(sum(n_terms / n_sides)) AS BIGINT) AS n_flipped,
    count(*) FILTER (WHERE n_crossed > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters,
    count(*) FILTER (WHERE n_terms > 0 AND (n_sides < 3 OR cluster_item <> '')) AS n_clusters_flipped,
    max(votes_max) <= 2 AND sum(n_terms) = sum(n_primacy + n_recency) AS is_one_vote,
    max(r) AS r, max(s) AS s, max(rr) AS rr, max(ss) AS ss, max(rs) AS rs, max(w) AS w,
    max(logodds) AS position_logodds,
    sum((logodds_others - logodds) * (logodds_others - logodds)) AS moved_squares,
    sum(excess * excess) AS item_squares,
    sum(excess_squares) AS pair_squares,
    -- the variance of a sum of products of different pairs; of their fourth powers only the size is known
    2 * (sum(excess_squares * excess_squares)
      - sum(excess_squares) * power(sum(size_squares) / nullif(sum(size), 0), 2)) AS item_squares_variance,
    sum(size / n_sides) AS size,
    sum(size * excess_squares) AS sized_squares,
    sum(size * size) AS size_squares,
    sum(size * size) - sum(size_squares) AS size_products
  FROM scored
  GROUP BY study, cell
),
variances AS (
  SELECT
    *,
    moved_squares * (n_clusters - 1) / nullif(n_clusters, 0) AS v_jack,
    logodds_matched_variance(r, s, rr, ss, rs, w) AS v_pair,
    CASE WHEN n_flipped >= 6 THEN sign_flip_z(r, s, rr, ss, rs) END AS flip_z,
    -- what the items' squares come to by chance: less than the pairs' squares, as the mean is taken off
    CASE WHEN n_sides = 2 AND size_products > 1e-9 AND item_squares_variance > 1e-9 AND least(r, s) >= 5 * w
         THEN pair_squares - 2 * sized_squares / size + pair_squares / 2 * size_squares / (size * size) END AS by_chance
  FROM counts
),
errors AS (
  SELECT
    *,
    sqrt(v_pair) AS position_logodds_se_these_items,
    CASE WHEN n_clusters_flipped >= 5 THEN sqrt(clustered_variance(v_jack, v_pair, n_sides)) END AS position_logodds_se,
    CASE WHEN n_clusters_flipped >= 5 THEN n_clusters_flipped - 1 END AS df,
    2 * by_chance * item_squares / item_squares_variance AS spread,
    2 * by_chance * by_chance / item_squares_variance AS spread_df
  FROM variances
),
quantiles AS (
  SELECT
    *,
    position_logodds / position_logodds_se AS t,
    t_two_sided_95(df) AS t_ends,
    -- the normal quantile of 0.8, and (z^3 + z) / 4 for the degrees of freedom
    0.8416212335729143 + 0.3594365 / nullif(df, 0) AS t_power,
    clopper_pearson_lo(n_primacy, n_discordant) AS share_lo,
    clopper_pearson_hi(n_primacy, n_discordant) AS share_hi,
    -- Clopper-Pearson's lower end of n in n
    CASE WHEN n_flipped > 0 THEN power(0.025, 1 / CAST(n_flipped AS DOUBLE)) END AS all_lo
  FROM errors
),
measured AS (
  SELECT
    *,
    CASE WHEN position_logodds_se > 1e-9 THEN t_two_sided(t, df) END AS p_position,
    CASE WHEN is_one_vote THEN mcnemar_exact(n_primacy, n_recency) ELSE normal_two_sided(flip_z) END
      AS p_position_these_items,
    CASE WHEN is_one_vote THEN CASE WHEN share_lo > 0 THEN 0.5 * ln(share_lo / (1 - share_lo)) END
         WHEN s = 0 AND flip_z > 1.959963984540054 THEN 0.5 * ln(all_lo / (1 - all_lo))
         WHEN n_flipped >= 6 THEN sign_flip_lo(r, s, rr, ss, rs) END AS position_logodds_lo_these_items,
    CASE WHEN is_one_vote THEN CASE WHEN share_hi < 1 THEN 0.5 * ln(share_hi / (1 - share_hi)) END
         WHEN r = 0 AND flip_z < -1.959963984540054 THEN -0.5 * ln(all_lo / (1 - all_lo))
         WHEN n_flipped >= 6 THEN sign_flip_hi(r, s, rr, ss, rs) END AS position_logodds_hi_these_items
  FROM quantiles
),
ranked AS (
  SELECT
    *,
    count(p_position) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_position NULLS LAST) AS p_rank
  FROM measured
)
SELECT
  study, cell.*,
  n_pairs, n_both, n_decided, n_discordant, n_primacy, n_recency,
  n_left_out, n_pairs_pending, n_flipped, n_clusters, n_clusters_flipped,
  position_logodds,
  position_logodds_se,
  position_logodds - t_ends * position_logodds_se AS position_logodds_lo,
  position_logodds + t_ends * position_logodds_se AS position_logodds_hi,
  p_position,
  CASE WHEN p_position IS NOT NULL
       THEN least(1.0, min(p_position * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  logodds_matched_mde(position_logodds, position_logodds_se, t_ends, t_power, df) AS position_logodds_mde,
  CASE WHEN list_kind IS NULL THEN position_logodds_se_these_items END AS position_logodds_se_these_items,
  CASE WHEN list_kind IS NULL THEN position_logodds_lo_these_items END AS position_logodds_lo_these_items,
  CASE WHEN list_kind IS NULL THEN position_logodds_hi_these_items END AS position_logodds_hi_these_items,
  CASE WHEN list_kind IS NULL THEN p_position_these_items END AS p_position_these_items,
  CASE WHEN spread IS NOT NULL THEN sqrt(greatest(0.0, 4 * (item_squares - by_chance) / size_products)) END
    AS position_item_sd,
  CASE WHEN spread IS NOT NULL THEN chi2_sf(spread, spread_df) END AS p_position_items
FROM ranked;
