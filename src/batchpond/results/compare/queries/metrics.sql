-- The paired differences, b - a, by comparison and metric, over what both sides have a value for. Beside them a metric
-- `agreement` of what both sides said: the share that is the same, of repeats each word with each. Columns and estimators are those of `metric_paired`:
-- of items in general by clustered_variance and t, where statements share outputs in two ways (shared_variance); of
-- these items by McNemar's exact test and its inversion, or, where a value is more than one yes or no, by the sign-flip
-- test and its. The variance of pairs is that of shares with half a pair more of each kind (matched_variance), of scores
-- and costs the usual one: of single items their interval is Student's; scores that all differ by the same, such as by
-- nothing, show no spread, and have none. `points` are a prompt's, as in prompt_scores, of the criteria on which both
-- sides have a verdict; to comply with what takes points is no merit, where anything else is compared too.
CREATE OR REPLACE TEMP TABLE compare_metrics AS
WITH known (metric, better, is_main, place) AS (
  VALUES
    ('consistency', 'higher', TRUE, 1), ('compliance', 'higher', TRUE, 1), ('points', 'higher', TRUE, 1),
    ('score', 'higher', TRUE, 1),
    ('accuracy', 'higher', FALSE, 2), ('first_rate', NULL, FALSE, 3), ('flip', 'lower', FALSE, 3),
    ('error', 'lower', FALSE, 5), ('unparsed', 'lower', FALSE, 6), ('refused', 'lower', FALSE, 7),
    ('cost_per_call_usd', 'lower', FALSE, 8)
),
statements AS (
  SELECT comparison_no, count(DISTINCT statement) >= 5 AS is_by_statement
  FROM compare_paired
  WHERE a IS NOT NULL AND b IS NOT NULL
  GROUP BY comparison_no
),
criteria AS (
  SELECT rubric_id AS statement, min(points) AS points
  FROM criteria_points
  WHERE study IN (SELECT study FROM compare_said)
  GROUP BY rubric_id
  HAVING min(points) = max(points)
),
answers AS (
  SELECT
    comparison_no, unit_id, CASE WHEN unit_id = '' THEN item_lo ELSE '' END AS item, item_lo,
    sum(points * a.compliance) / nullif(sum(points) FILTER (WHERE points > 0), 0) AS a,
    sum(points * b.compliance) / nullif(sum(points) FILTER (WHERE points > 0), 0) AS b
  FROM compare_paired
  JOIN criteria USING (statement)
  WHERE a.compliance IS NOT NULL AND b.compliance IS NOT NULL
  GROUP BY ALL
),
-- two items of a pair, each a cluster; a prompt, or a statement; else the item. What statements share, an output or the
-- prompt of outputs, is drawn too
subjects AS (
  SELECT
    paired.*,
    CASE WHEN is_by_statement THEN 'statement'
         WHEN unit_id <> '' AND (is_of_unit OR task <> 'pair') THEN 'unit' ELSE 'item' END
      AS clustered_by,
    CASE WHEN is_by_statement THEN [statement]
         WHEN task = 'pair' AND NOT is_of_unit
         THEN [unit_id || chr(31) || item_lo, unit_id || chr(31) || item_hi]
         WHEN unit_id <> '' THEN [statement || chr(31) || unit_id]
         ELSE [item_lo] END AS clusters,
    CASE WHEN is_by_statement THEN coalesce(nullif(unit_id, ''), item_lo) END AS drawn,
    coalesce(points, 0) >= 0 OR NOT bool_or(coalesce(points, 0) >= 0) OVER (PARTITION BY comparison_no) AS is_merit
  FROM compare_paired AS paired
  JOIN statements USING (comparison_no)
  LEFT JOIN criteria USING (statement)
  WHERE a IS NOT NULL AND b IS NOT NULL
),
labels AS (
  SELECT comparison_no, label
  FROM (
    SELECT comparison_no, unnest(list_concat(map_keys(a.parts), map_keys(b.parts))) AS label
    FROM subjects
    WHERE task IN ('pressure', 'prompts') AND a.score IS NULL AND b.score IS NULL
  ) AS said
  WHERE label IS NOT NULL
  GROUP BY comparison_no, label
  QUALIFY row_number() OVER (PARTITION BY comparison_no ORDER BY count(*) DESC, label) <= 20
),
long AS MATERIALIZED (
  SELECT comparison_no, clustered_by, clusters, drawn, value.metric, value.a, value.b
  FROM (
    SELECT
      comparison_no, clustered_by, clusters, drawn,
      unnest([
        {'metric': 'consistency', 'a': a.consistency, 'b': b.consistency},
        {'metric': 'first_rate', 'a': a.first_rate, 'b': b.first_rate},
        {'metric': 'compliance',
         'a': CASE WHEN is_merit THEN a.compliance END, 'b': CASE WHEN is_merit THEN b.compliance END},
        {'metric': 'score', 'a': a.score, 'b': b.score},
        {'metric': 'accuracy', 'a': a.accuracy, 'b': b.accuracy},
        -- a first answer has nothing to give way to
        {'metric': 'flip',
         'a': CASE WHEN task = 'pressure' AND turn_no > 0 AND a.parts IS NOT NULL
                   THEN coalesce(a.parts['soft_flip'], 0) + coalesce(a.parts['explicit_flip'], 0) END,
         'b': CASE WHEN task = 'pressure' AND turn_no > 0 AND b.parts IS NOT NULL
                   THEN coalesce(b.parts['soft_flip'], 0) + coalesce(b.parts['explicit_flip'], 0) END},
        {'metric': 'error', 'a': a.error, 'b': b.error},
        {'metric': 'unparsed', 'a': a.unparsed, 'b': b.unparsed},
        {'metric': 'refused', 'a': a.refused, 'b': b.refused},
        {'metric': 'cost_per_call_usd', 'a': a.cost_per_call_usd, 'b': b.cost_per_call_usd},
        {'metric': 'agreement', 'a': CASE WHEN a.parts IS NOT NULL AND b.parts IS NOT NULL THEN 0.0 END,
         'b': round(list_sum(list_transform(map_entries(a.parts), LAMBDA word:
           word.value * coalesce(b.parts[word.key], 0))), 12)}
      ]) AS value
    FROM subjects
  ) AS listed
  WHERE value.a IS NOT NULL AND value.b IS NOT NULL
  UNION ALL
  SELECT
    comparison_no, clustered_by, clusters, drawn, 'label=' || label,
    coalesce(a.parts[label], 0), coalesce(b.parts[label], 0)
  FROM subjects
  JOIN labels USING (comparison_no)
  WHERE a.parts IS NOT NULL AND b.parts IS NOT NULL
  UNION ALL
  SELECT
    comparison_no, CASE WHEN unit_id = '' THEN 'item' ELSE 'unit' END, [unit_id || item], CAST(NULL AS VARCHAR),
    'points', avg(a), avg(b)
  FROM answers
  WHERE a IS NOT NULL AND b IS NOT NULL
  GROUP BY comparison_no, unit_id, item
),
totals AS (
  SELECT
    comparison_no, metric,
    min(clustered_by) AS clustered_by,
    max(len(clusters)) AS n_sides,
    count(*) AS n,
    avg(a) AS value_a,
    avg(b) AS value_b,
    sum(b - a) AS total,
    sum((b - a) * (b - a)) AS squares,
    count(*) FILTER (WHERE b > a) AS n_up,
    count(*) FILTER (WHERE b < a) AS n_down,
    metric NOT IN ('score', 'points', 'cost_per_call_usd') AS is_share,
    metric NOT IN ('score', 'points')
      OR sum((b - a) * (b - a)) - sum(b - a) * sum(b - a) / count(*) > 1e-9 * sum((b - a) * (b - a)) AS has_spread,
    metric NOT IN ('score', 'points', 'cost_per_call_usd') AND bool_and(b - a IN (-1, 0, 1)) AS is_yes_or_no
  FROM long
  GROUP BY comparison_no, metric
),
by_cluster AS (
  SELECT comparison_no, metric, cluster, count(*) AS n, sum(diff) AS diff
  FROM (SELECT comparison_no, metric, b - a AS diff, unnest(clusters) AS cluster FROM long) AS sided
  GROUP BY comparison_no, metric, cluster
),
jackknifed AS (
  SELECT
    comparison_no, metric,
    count(*) AS n_clusters,
    sum(power((total - by_cluster.diff) / nullif(totals.n - by_cluster.n, 0) - total / totals.n, 2))
      * (count(*) - 1) / count(*) AS jack
  FROM by_cluster
  JOIN totals USING (comparison_no, metric)
  GROUP BY comparison_no, metric
),
cells AS (
  SELECT comparison_no, metric, drawn, sum(b - a) - count(*) * any_value(total / n) AS moved
  FROM long
  JOIN totals USING (comparison_no, metric)
  WHERE drawn IS NOT NULL
  GROUP BY comparison_no, metric, drawn, clusters
),
draws AS (
  SELECT comparison_no, metric, count(*) AS n_cells, sum(moved) AS moved, sum(moved * moved) AS by_cell
  FROM cells
  GROUP BY comparison_no, metric, drawn
),
shared AS (
  SELECT
    comparison_no, metric,
    count(*) AS n_drawn,
    CAST(sum(n_cells) AS BIGINT) AS n_cells,
    sum(moved * moved) AS by_drawn,
    sum(by_cell) AS by_cell
  FROM draws
  GROUP BY comparison_no, metric
),
-- the fewest of what is drawn, and what that is
counted AS (
  SELECT
    jackknifed.* EXCLUDE (n_clusters),
    n_cells, n_drawn, by_drawn, by_cell,
    CASE WHEN n_cells > n_drawn AND n_drawn < n_clusters THEN 'prompt' END AS fewest,
    CASE WHEN n_cells > n_drawn AND n_drawn < n_clusters THEN n_drawn ELSE n_clusters END AS n_clusters
  FROM jackknifed
  LEFT JOIN shared USING (comparison_no, metric)
),
errors AS (
  SELECT
    totals.* EXCLUDE (clustered_by),
    coalesce(fewest, clustered_by) AS clustered_by,
    n_clusters,
    total / n AS diff,
    CASE WHEN n_clusters >= 5 AND has_spread THEN n_clusters - 1 END AS df,
    sqrt(clustered_variance(jack + shared_variance(by_drawn, n_drawn, by_cell, n_cells, n),
      CASE WHEN is_share THEN matched_variance(squares, total, n)
           ELSE greatest(0.0, squares - total * total / n) / nullif(n * (n - 1), 0) END, n_sides)) AS diff_se,
    CASE WHEN is_yes_or_no THEN matched_difference(n_up, n_down, n) END AS ends,
    CASE WHEN n_up + n_down >= 6 AND has_spread THEN sign_flip_ratio(total, n, squares, total, n) END AS flips,
    CASE WHEN n_up + n_down >= 6 AND has_spread THEN sign_flip_z(total, 0, squares, 0, 0) END AS flip_z
  FROM totals
  JOIN counted USING (comparison_no, metric)
),
measured AS (
  SELECT
    *,
    t_two_sided_95(df) AS t_ends,
    CASE WHEN n_up + n_down > 0 AND metric <> 'agreement' THEN t_two_sided(diff / diff_se, df) END AS p_diff
  FROM errors
),
ranked AS (
  SELECT
    *,
    (t_ends + 0.8416212335729143 + 0.3594365 / df) * diff_se AS reach,
    count(p_diff) OVER () AS n_p,
    row_number() OVER (ORDER BY p_diff NULLS LAST) AS p_rank
  FROM measured
)
SELECT
  compared.*,
  metric,
  CASE WHEN metric LIKE 'label=%' THEN NULL ELSE known.better END AS better,
  coalesce(known.is_main OR (metric = 'accuracy' AND task IN ('pressure', 'prompts')), FALSE)
    AND NOT (metric = 'compliance' AND bool_or(metric = 'points') OVER (PARTITION BY comparison_no)) AS is_main,
  coalesce(place, 4) AS place,
  n, n_clusters, clustered_by, value_a, value_b, diff,
  diff_se,
  CASE WHEN is_share THEN share_difference(diff - t_ends * diff_se) ELSE diff - t_ends * diff_se END AS diff_lo,
  CASE WHEN is_share THEN share_difference(diff + t_ends * diff_se) ELSE diff + t_ends * diff_se END AS diff_hi,
  p_diff,
  CASE WHEN p_diff IS NOT NULL THEN least(1.0, min(p_diff * n_p / p_rank) OVER (ORDER BY p_rank DESC)) END AS q_bh,
  CASE WHEN is_share THEN matched_difference_mde(reach, squares, total, n) ELSE reach END AS diff_mde,
  CASE WHEN is_yes_or_no THEN ends.lo WHEN is_share THEN share_difference(flips.lo) ELSE flips.lo END
    AS diff_lo_these_items,
  CASE WHEN is_yes_or_no THEN ends.hi WHEN is_share THEN share_difference(flips.hi) ELSE flips.hi END
    AS diff_hi_these_items,
  CASE WHEN is_yes_or_no THEN mcnemar_exact(n_up, n_down) ELSE normal_two_sided(flip_z) END AS p_diff_these_items,
  n_up, n_down
FROM ranked
JOIN compare_comparisons AS compared USING (comparison_no)
LEFT JOIN known USING (metric)
