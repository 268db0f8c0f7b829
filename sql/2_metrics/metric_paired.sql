-- grain: study, rubric_id, template_a, provider_a, request_model_a, thinking_a, template_b, provider_b, request_model_b,
--   thinking_b
-- question: On the pairs that two templates, or two judges, both judged in both orders, is one more consistent?
-- source: pair_status; compared says what differs: `template` (the same judge) or `judge` (the same template). Common are
--   the n pairs with a majority in both orders from either; consistent is the same majority in both, ties included
--   (consistency_all of metric_consistency). diff = rate of a - rate of b, Agresti and Min 2005; p_mcnemar = exact
--   McNemar test of the pairs where only one is consistent, mid-p beside it; q_bh = Benjamini and Hochberg 1995 over the
--   study's comparisons that have a p; diff_mde = the smallest difference that so many discordant pairs reveal with
--   power 0.8 (mcnemar_mde; NULL: none would).
-- p is NULL, not 1, when no pair tells the two apart.

CREATE OR REPLACE VIEW metric_paired AS
WITH flags AS MATERIALIZED (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_lo, item_hi,
    dense_rank() OVER (ORDER BY study, template_id, rubric_id, provider, request_model, thinking) AS cell_no,
    status IN ('consistent_win', 'consistent_tie') AS is_consistent
  FROM pair_status
  WHERE status IN ('consistent_win', 'consistent_tie', 'primacy', 'recency', 'soft_primacy', 'soft_recency')
),
cells AS (
  SELECT DISTINCT study, template_id, rubric_id, provider, request_model, thinking, cell_no FROM flags
),
comparisons AS (
  SELECT
    a.study, a.rubric_id,
    CASE WHEN a.template_id = b.template_id THEN 'judge' ELSE 'template' END AS compared,
    a.cell_no AS cell_a, b.cell_no AS cell_b,
    a.template_id AS template_a, a.provider AS provider_a, a.request_model AS request_model_a, a.thinking AS thinking_a,
    b.template_id AS template_b, b.provider AS provider_b, b.request_model AS request_model_b, b.thinking AS thinking_b
  FROM cells AS a
  JOIN cells AS b
    ON b.study = a.study
    AND b.rubric_id = a.rubric_id
    AND b.cell_no > a.cell_no
    AND (b.template_id = a.template_id
      OR (b.provider = a.provider AND b.request_model = a.request_model
        AND coalesce(b.thinking, '') = coalesce(a.thinking, '')))
),
-- cells in which a pair is consistent, or not, as lists: a pair is looked at once, however many cells share it
subjects AS (
  SELECT
    list_sort(list(cell_no) FILTER (WHERE is_consistent)) AS yes,
    list_sort(list(cell_no) FILTER (WHERE NOT is_consistent)) AS no
  FROM flags
  GROUP BY study, rubric_id, unit_id, item_lo, item_hi
),
patterns AS (
  SELECT row_number() OVER () AS pattern_no, yes, no, count(*) AS n
  FROM subjects
  GROUP BY yes, no
),
votes AS MATERIALIZED (
  SELECT pattern_no, n, unnest(yes) AS cell_no, 1 AS consistent FROM patterns
  UNION ALL
  SELECT pattern_no, n, unnest(no) AS cell_no, 0 AS consistent FROM patterns
),
counts AS (
  SELECT
    a.cell_no AS cell_a, b.cell_no AS cell_b,
    CAST(sum(a.n) AS BIGINT) AS n,
    CAST(sum(a.n * a.consistent) AS BIGINT) AS n_consistent_a,
    CAST(sum(a.n * b.consistent) AS BIGINT) AS n_consistent_b,
    CAST(sum(a.n * a.consistent * (1 - b.consistent)) AS BIGINT) AS n_a_only,
    CAST(sum(a.n * (1 - a.consistent) * b.consistent) AS BIGINT) AS n_b_only
  FROM votes AS a
  JOIN votes AS b
    ON b.pattern_no = a.pattern_no
    AND b.cell_no > a.cell_no
  GROUP BY a.cell_no, b.cell_no
),
measured AS (
  SELECT
    comparisons.*, counts.* EXCLUDE (cell_a, cell_b),
    mcnemar_exact(n_a_only, n_b_only) AS p_mcnemar
  FROM comparisons
  JOIN counts
    ON counts.cell_a = comparisons.cell_a
    AND counts.cell_b = comparisons.cell_b
),
ranked AS (
  SELECT
    *,
    count(p_mcnemar) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_mcnemar NULLS LAST) AS p_rank
  FROM measured
)
SELECT
  study, rubric_id, compared,
  template_a, provider_a, request_model_a, thinking_a, template_b, provider_b, request_model_b, thinking_b,
  n,
  n_consistent_a,
  n_consistent_b,
  n_a_only,
  n_b_only,
  n_consistent_a / n AS consistency_a,
  n_consistent_b / n AS consistency_b,
  (n_consistent_a - n_consistent_b) / n AS diff,
  2 * agresti_min_lo(n_a_only, n_b_only, n) - 1 AS diff_lo,
  2 * agresti_min_hi(n_a_only, n_b_only, n) - 1 AS diff_hi,
  p_mcnemar,
  mcnemar_midp(n_a_only, n_b_only) AS p_mcnemar_midp,
  CASE WHEN p_mcnemar IS NOT NULL
       THEN least(1.0, min(p_mcnemar * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh,
  mcnemar_mde(n_a_only, n_b_only, n) AS diff_mde
FROM ranked;
