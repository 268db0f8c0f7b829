-- grain: study, cell, list_place
-- question: Does a judge of lists favour what is shown at one place, whatever the items are?
-- source: the listwise rows of results, and imported lists whose places are known. n_lists are the lists, each order by itself, in which the judge named some
--   item, n_ranked those of them that it put in order as a whole; n_unnamed have an answer that names none, or none
--   that could be read, n_pending no answer yet. As each item stands equally often at each place, all places would do
--   alike without a bias. Observations come in n_clusters lists, a list and its reverse being one, or units where items
--   have some.
-- estimators:
--   - best_share: the share of the n_lists whose item at this place was named the best, of several each a part
--   - best_share_min, best_share_max: what the n_unnamed leave open: none of them names what is at this place, or all do
--   - best_share_se: for lists in general, of the ratio of sums over clusters (linearised, G / (G - 1))
--   - best_share_lo, best_share_hi: Wilson with the effective size p (1 - p) / se^2, by t over n_clusters - 1
--   - best_share_balanced: what it is without a bias: 1 / n_places where all lists are of one size, else the mean of
--     each list's own
--   - p_best_share: that best_share is best_share_balanced, by the same effective size and t: below 0.05 exactly where
--     the latter is outside the interval
--   - q_bh: Benjamini and Hochberg's, over p_best_share of all places and cells of the study that have one
--   - mean_rank: the mean rank, 1 being the best, of what stood at this place in the n_ranked, ties sharing theirs
--   - mean_rank_se, mean_rank_lo, mean_rank_hi: as above, by t, cut where ranks end
--   - mean_rank_balanced: (n_places + 1) / 2 in the same way; n_places is the size of the longest list
--   - p_mean_rank: that mean_rank is mean_rank_balanced, by t over n_clusters - 1
-- reference: Youden 1937 (places balanced over items); Korn and Graubard 1998; Benjamini and Hochberg 1995; wilson,
--   student_t.
-- nulls: a mean is NULL without a list to take it of, mean_rank where the best alone was asked for; what is of lists in
--   general is NULL below 5 clusters, of mean_rank also where all of them have the same.

CREATE OR REPLACE VIEW metric_place_bias AS
WITH placed AS (
  SELECT
    study, cell(results) AS cell, cell_id, list_id, request_id,
    CAST(list_place AS BIGINT) AS list_place, list_rank, outcome IS NOT NULL AS is_settled,
    coalesce(nullif(unit_id, ''), list_id) AS cluster_id,
    parser_id LIKE 'listwise-best-%' AS is_best_alone
  FROM results
  WHERE task = 'listwise' AND coalesce(purpose, '') <> 'shared'
  UNION ALL
  -- each place of a list stands in several of its pairs
  SELECT
    study, cell,
    CAST(cell AS VARCHAR) AS cell_id,
    unit_id AS list_id, request_id, CAST(list_place AS BIGINT) AS list_place, CAST(list_rank AS BIGINT) AS list_rank,
    TRUE AS is_settled, unit_id AS cluster_id, list_kind = 'best' AS is_best_alone
  FROM (
    SELECT DISTINCT
      study, cell(imported_judgments) AS cell, unit_id, request_id, list_kind,
      CASE side WHEN 1 THEN place_first ELSE place_second END AS list_place,
      CASE side WHEN 1 THEN rank_first ELSE rank_second END AS list_rank
    FROM imported_judgments
    CROSS JOIN (VALUES (1), (2)) AS sides (side)
    WHERE list_kind IS NOT NULL AND place_first IS NOT NULL AND coalesce(purpose, '') <> 'shared'
  ) AS places
),
named AS (
  SELECT
    *,
    max(list_place) OVER one_list AS n_places,
    count(list_rank) OVER one_list AS n_named,
    count(CASE WHEN list_rank = 1 THEN 1 END) OVER one_list AS n_best,
    rank() OVER (PARTITION BY study, cell_id, list_id, request_id ORDER BY list_rank)
      + (count(*) OVER (PARTITION BY study, cell_id, list_id, request_id, list_rank) - 1) / 2 AS shared_rank
  FROM placed
  WINDOW one_list AS (PARTITION BY study, cell_id, list_id, request_id)
),
clusters AS (
  SELECT
    study, cell, list_place, cluster_id,
    max(n_places) AS n_places,
    count(*) FILTER (WHERE n_named > 0) AS n_lists,
    count(*) FILTER (WHERE n_named = n_places AND NOT is_best_alone) AS n_ranked,
    sum(CASE WHEN n_named > 0 THEN 1 / n_places ELSE 0 END) AS best_balanced,
    sum(CASE WHEN n_named = n_places AND NOT is_best_alone THEN (n_places + 1) / 2 ELSE 0 END) AS ranks_balanced,
    count(*) FILTER (WHERE n_named = 0 AND is_settled) AS n_unnamed,
    count(*) FILTER (WHERE NOT is_settled) AS n_pending,
    CAST(sum(CASE WHEN list_rank = 1 THEN 1 / n_best ELSE 0 END) AS DOUBLE) AS best,
    CAST(sum(CASE WHEN n_named = n_places AND NOT is_best_alone THEN shared_rank ELSE 0 END) AS DOUBLE) AS ranks
  FROM named
  GROUP BY study, cell, list_place, cluster_id
),
apart AS (
  SELECT
    *,
    best - n_lists * sum(best) OVER place / nullif(sum(n_lists) OVER place, 0) AS best_apart,
    ranks - n_ranked * sum(ranks) OVER place / nullif(sum(n_ranked) OVER place, 0) AS ranks_apart
  FROM clusters
  WINDOW place AS (PARTITION BY study, cell, list_place)
),
sums AS (
  SELECT
    study, cell, list_place,
    max(n_places) AS n_places,
    CAST(sum(n_lists) AS BIGINT) AS n_lists,
    CAST(sum(n_ranked) AS BIGINT) AS n_ranked,
    CAST(sum(n_unnamed) AS BIGINT) AS n_unnamed,
    CAST(sum(n_pending) AS BIGINT) AS n_pending,
    count(*) FILTER (WHERE n_lists > 0) AS n_clusters,
    count(*) FILTER (WHERE n_ranked > 0) AS n_clusters_ranked,
    sum(best) AS best,
    sum(ranks) AS ranks,
    sum(best_balanced) AS best_balanced,
    sum(ranks_balanced) AS ranks_balanced,
    sum(best_apart * best_apart) AS best_squares,
    sum(ranks_apart * ranks_apart) AS ranks_squares
  FROM apart
  GROUP BY study, cell, list_place
),
measured AS (
  SELECT
    *,
    best / nullif(n_lists, 0) AS best_share,
    ranks / nullif(n_ranked, 0) AS mean_rank,
    coalesce(best_balanced / nullif(n_lists, 0), 1 / n_places) AS best_share_balanced,
    coalesce(ranks_balanced / nullif(n_ranked, 0), (n_places + 1) / 2) AS mean_rank_balanced,
    CASE WHEN n_clusters >= 5 THEN sqrt(best_squares * n_clusters / (n_clusters - 1)) / n_lists END AS best_share_se,
    CASE WHEN n_clusters_ranked >= 5
         THEN sqrt(ranks_squares * n_clusters_ranked / (n_clusters_ranked - 1)) / n_ranked END AS mean_rank_se,
    CASE WHEN n_clusters >= 5 THEN n_clusters - 1 END AS df,
    CASE WHEN n_clusters_ranked >= 5 THEN n_clusters_ranked - 1 END AS df_ranked
  FROM sums
),
sized AS (
  SELECT
    *,
    CASE WHEN df IS NULL THEN NULL
         WHEN best_share_se > 1e-9 AND best_share > 0 AND best_share < 1
         THEN best_share * (1 - best_share) / (best_share_se * best_share_se)
         ELSE CAST(n_lists AS DOUBLE) END AS n_effective,
    t_two_sided_95(df) AS t,
    t_two_sided_95(df_ranked) AS t_ranked
  FROM measured
),
tested AS (
  SELECT
    *,
    t_two_sided(
      (best_share - best_share_balanced) * sqrt(n_effective / (best_share_balanced * (1 - best_share_balanced))), df
    ) AS p_best_share,
    CASE WHEN mean_rank_se > 1e-9 THEN t_two_sided((mean_rank - mean_rank_balanced) / mean_rank_se, df_ranked) END
      AS p_mean_rank
  FROM sized
),
ordered AS (
  SELECT
    *,
    count(p_best_share) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_best_share NULLS LAST) AS p_rank
  FROM tested
)
SELECT
  study, cell.*, list_place,
  n_places, n_lists, n_ranked, n_unnamed, n_pending, n_clusters,
  best_share,
  best / nullif(n_lists + n_unnamed, 0) AS best_share_min,
  (best + n_unnamed) / nullif(n_lists + n_unnamed, 0) AS best_share_max,
  best_share_se,
  wilson_lo(best_share * n_effective, n_effective, t) AS best_share_lo,
  wilson_hi(best_share * n_effective, n_effective, t) AS best_share_hi,
  best_share_balanced,
  p_best_share,
  CASE WHEN p_best_share IS NOT NULL
       THEN least(1.0, min(p_best_share * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  mean_rank,
  mean_rank_se,
  CASE WHEN mean_rank_se > 1e-9 THEN greatest(1.0, mean_rank - t_ranked * mean_rank_se) END AS mean_rank_lo,
  CASE WHEN mean_rank_se > 1e-9 THEN least(CAST(n_places AS DOUBLE), mean_rank + t_ranked * mean_rank_se) END
    AS mean_rank_hi,
  mean_rank_balanced,
  p_mean_rank
FROM ordered;
