-- grain: study, judge
-- question: How consistent is each judge over all templates and rubrics, and which position does it favour, how much?
-- source: pair_clusters, added up over templates and rubrics before anything else, and then what metric_consistency and
--   metric_position_bias make of one cell: consistency_decided with the interval for items in general, clustered by
--   item (so that the same pair under several templates is not taken for several), and the log-odds of the first
--   position, each pair under each template being a stratum of its own; p_position by t, q_bh over the study's judges.
--   NULL below 5 items with a decided pair, or with one that flips, which alone say anything. judge is the model's
--   name, with all that names it where several have that. n_cells is how many templates and rubrics it judged
--   by. first_share is what the log-odds come to for two items that are equal otherwise: how often the one shown first
--   wins; first_share_mde is the smallest that p_position would have found with power 0.8 (logodds_matched_mde), NULL
--   where it would have found none.
CREATE OR REPLACE VIEW report_judges AS
WITH placed AS (
  SELECT
    *,
    judge(pair_clusters) AS judge,
    -- a part of its cell, of which all parts together are one
    1 / CAST(count(*) OVER (PARTITION BY study, template_id, rubric_id, judge(pair_clusters)) AS DOUBLE)
      AS cell_part
  FROM pair_clusters
),
clusters AS (
  SELECT
    study, judge, cluster_unit, cluster_item,
    sum(cell_part) AS cell_parts,
    -- lists are no items
    bool_or(n_sides < 3 OR cluster_item <> '') AS is_item,
    -- a pair whole, and the part of it that makes it one over all clusters
    sum(wins) AS wins,
    sum(flips) AS flips,
    sum(n_decided) AS decided,
    sum(n_crossed) AS n_crossed,
    sum(n_terms) AS n_terms,
    sum(first_won) AS first_won,
    sum(second_won) AS second_won,
    sum(n_pairs) AS n_pairs,
    sum(n_pairs / n_sides) AS pairs_once,
    sum(wins / n_sides) AS wins_once,
    sum(flips / n_sides) AS flips_once,
    sum(win_squares / n_sides) AS win_squares_once,
    sum(flip_squares / n_sides) AS flip_squares_once,
    sum(win_flips / n_sides) AS win_flips_once,
    sum(n_consistent_win / n_sides) AS consistent_once,
    sum(n_primacy / n_sides) AS primacy_once,
    sum(n_recency / n_sides) AS recency_once,
    sum(n_decided / n_sides) AS decided_once,
    sum(n_repeated / n_sides) AS repeated_once,
    sum(n_both / n_sides) AS judged_once,
    sum(first_won / n_sides) AS first_once,
    sum(second_won / n_sides) AS second_once,
    sum(first_squares / n_sides) AS first_squares_once,
    sum(second_squares / n_sides) AS second_squares_once,
    sum(products / n_sides) AS products_once
  FROM placed
  GROUP BY study, judge, cluster_unit, cluster_item
),
totals AS (
  SELECT
    *,
    round(sum(wins_once) OVER judge, 12) AS wins_all,
    round(sum(flips_once) OVER judge, 12) AS flips_all,
    round(sum(decided_once) OVER judge) AS decided_all,
    sum(first_once) OVER judge AS r,
    sum(second_once) OVER judge AS s,
    sum(first_squares_once) OVER judge AS rr,
    sum(second_squares_once) OVER judge AS ss,
    sum(products_once) OVER judge AS rs
  FROM clusters
  WINDOW judge AS (PARTITION BY study, judge)
),
sized AS (
  SELECT *, (rr + ss) / nullif(r + s, 0) AS w FROM totals
),
left_out AS (
  SELECT
    *,
    logodds_matched(r, s, w) AS logodds,
    0.5 * ln((r - first_won + w / 2) / (s - second_won + w / 2)) AS logodds_others,
    CASE WHEN decided_all > decided
         THEN (wins_all - wins) / (wins_all + flips_all - wins - flips) - wins_all / (wins_all + flips_all) END
      AS decided_moved
  FROM sized
),
counts AS (
  SELECT
    study, judge,
    CAST(round(sum(cell_parts)) AS BIGINT) AS n_cells,
    coalesce(sum(n_pairs) / nullif(sum(pairs_once), 0), 1) AS n_sides,
    CAST(round(sum(pairs_once)) AS BIGINT) AS n_pairs,
    CAST(round(sum(judged_once)) AS BIGINT) AS n_both,
    CAST(round(sum(repeated_once)) AS BIGINT) AS n_repeated,
    CAST(max(decided_all) AS BIGINT) AS n_decided,
    CAST(round(sum(consistent_once)) AS BIGINT) AS n_consistent_win,
    CAST(round(sum(primacy_once)) AS BIGINT) AS n_primacy,
    CAST(round(sum(recency_once)) AS BIGINT) AS n_recency,
    count(*) FILTER (WHERE decided > 0 AND is_item) AS n_clusters_decided,
    count(*) FILTER (WHERE n_crossed > 0 AND is_item) AS n_clusters,
    count(*) FILTER (WHERE n_terms > 0 AND is_item) AS n_clusters_flipped,
    max(wins_all) AS wins,
    max(wins_all + flips_all) AS decided,
    sum(win_squares_once) AS win_squares,
    sum(flip_squares_once) AS flip_squares,
    sum(win_flips_once) AS win_flips,
    max(logodds) AS position_logodds,
    logodds_matched_variance(max(r), max(s), max(rr), max(ss), max(rs), max(w)) AS logodds_pair,
    sum((logodds_others - logodds) * (logodds_others - logodds)) AS logodds_squares,
    sum(CASE WHEN decided > 0 THEN decided_moved * decided_moved END) AS decided_squares
  FROM left_out
  GROUP BY study, judge
),
rates AS (
  SELECT *, wins / nullif(decided, 0) AS consistency_decided FROM counts
),
errors AS (
  SELECT
    *,
    sqrt(clustered_variance(decided_squares * (n_clusters_decided - 1) / nullif(n_clusters_decided, 0),
      greatest(0.0, power(1 - consistency_decided, 2) * win_squares + power(consistency_decided, 2) * flip_squares
        - 2 * consistency_decided * (1 - consistency_decided) * win_flips) / (decided * decided), n_sides)) AS decided_se,
    CASE WHEN n_clusters_flipped >= 5
         THEN sqrt(clustered_variance(logodds_squares * (n_clusters - 1) / n_clusters, logodds_pair, n_sides)) END
      AS logodds_se,
    CASE WHEN n_clusters_decided >= 5 THEN t_two_sided_95(n_clusters_decided - 1) END AS t_decided,
    CASE WHEN n_clusters_flipped >= 5 THEN n_clusters_flipped - 1 END AS df
  FROM rates
),
tested AS (
  SELECT
    *,
    CASE WHEN t_decided > 0 THEN mean_size(consistency_decided, decided, decided_se) END AS n_effective,
    t_two_sided_95(df) AS t_ends,
    -- as in metric_position_bias
    0.8416212335729143 + 0.3594365 / nullif(df, 0) AS t_power,
    CASE WHEN logodds_se > 1e-9 THEN t_two_sided(position_logodds / logodds_se, df) END AS p_position
  FROM errors
),
ranked AS (
  SELECT
    *,
    count(p_position) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_position NULLS LAST) AS p_rank
  FROM tested
)
SELECT
  study, judge.*,
  CASE WHEN count(*) OVER (PARTITION BY study, judge.request_model) = 1 THEN judge.request_model
       ELSE judge_name(judge) END AS judge,
  n_cells, n_pairs, n_both, n_repeated, n_decided, n_consistent_win, n_primacy, n_recency, n_clusters,
  consistency_decided,
  wilson_lo(consistency_decided * n_effective, n_effective, t_decided) AS consistency_decided_lo,
  wilson_hi(consistency_decided * n_effective, n_effective, t_decided) AS consistency_decided_hi,
  position_logodds,
  position_logodds - t_ends * logodds_se AS position_logodds_lo,
  position_logodds + t_ends * logodds_se AS position_logodds_hi,
  1 / (1 + exp(-position_logodds)) AS first_share,
  1 / (1 + exp(t_ends * logodds_se - position_logodds)) AS first_share_lo,
  1 / (1 + exp(-position_logodds - t_ends * logodds_se)) AS first_share_hi,
  1 / (1 + exp(-logodds_matched_mde(position_logodds, logodds_se, t_ends, t_power, df))) AS first_share_mde,
  p_position,
  CASE WHEN p_position IS NOT NULL
       THEN least(1.0, min(p_position * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh
FROM ranked;
