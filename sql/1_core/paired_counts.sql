-- grain: study, rubric_id, template_a, provider_a, request_model_a, thinking_a, template_b, provider_b,
--   request_model_b, thinking_b
-- question: On how many pairs were two templates of one judge, or two judges with one template, both consistent?
-- source: pair_status. compared says what differs: `template` or `judge`. n pairs have a majority in both orders from
--   either; consistent is the same majority in both, a tie included. They are those of n_clusters items, each counted
--   for both of its own (n_sides = 2), or of prompts, once, where either item is known to be a model's output, as in
--   pair_clusters. diff_jack is the variance of the difference of the consistent shares that comes from leaving out one
--   of these after the other. Pairs that lists imply are left out: pairs are draws here.

CREATE OR REPLACE VIEW paired_counts AS
WITH flags AS MATERIALIZED (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_lo, item_hi,
    CASE WHEN coalesce(candidate_lo, candidate_hi) IS NULL THEN 2 ELSE 1 END AS n_sides,
    dense_rank() OVER (ORDER BY study, template_id, rubric_id, provider, request_model, thinking) AS cell_no,
    status IN ('consistent_win', 'consistent_tie') AS is_consistent
  FROM pair_status
  WHERE status IN ('consistent_win', 'consistent_tie', 'primacy', 'recency', 'soft_primacy', 'soft_recency')
    AND list_kind IS NULL
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
    unit_id, item_lo, item_hi,
    min(n_sides) AS n_sides,
    list_sort(list(cell_no) FILTER (WHERE is_consistent)) AS yes,
    list_sort(list(cell_no) FILTER (WHERE NOT is_consistent)) AS no
  FROM flags
  GROUP BY study, rubric_id, unit_id, item_lo, item_hi
),
sided AS (
  SELECT
    subjects.unit_id, subjects.n_sides, subjects.yes, subjects.no,
    CASE WHEN subjects.n_sides = 1 THEN '' WHEN sides.side = 1 THEN subjects.item_lo ELSE subjects.item_hi END AS item
  FROM subjects
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE sides.side <= subjects.n_sides
),
patterns AS (
  SELECT
    row_number() OVER (ORDER BY unit_id, item, n_sides, yes, no) AS pattern_no,
    unit_id, item, n_sides, yes, no, count(*) AS n
  FROM sided
  GROUP BY unit_id, item, n_sides, yes, no
),
votes AS MATERIALIZED (
  SELECT pattern_no, unit_id, item, n_sides, n, unnest(yes) AS cell_no, 1 AS consistent FROM patterns
  UNION ALL
  SELECT pattern_no, unit_id, item, n_sides, n, unnest(no) AS cell_no, 0 AS consistent FROM patterns
),
by_cluster AS (
  SELECT
    a.cell_no AS cell_a, b.cell_no AS cell_b,
    max(a.n_sides) AS n_sides,
    sum(a.n) AS n,
    sum(a.n * a.consistent) AS consistent_a,
    sum(a.n * b.consistent) AS consistent_b,
    sum(a.n * a.consistent * (1 - b.consistent)) AS a_only,
    sum(a.n * (1 - a.consistent) * b.consistent) AS b_only
  FROM votes AS a
  JOIN votes AS b
    ON b.pattern_no = a.pattern_no
    AND b.cell_no > a.cell_no
  GROUP BY a.cell_no, b.cell_no, a.unit_id, a.item
),
left_out AS (
  SELECT
    *,
    (sum((a_only - b_only) / n_sides) OVER comparison - (a_only - b_only)) / nullif(sum(n / n_sides) OVER comparison - n, 0)
      - sum((a_only - b_only) / n_sides) OVER comparison / sum(n / n_sides) OVER comparison AS moved
  FROM by_cluster
  WINDOW comparison AS (PARTITION BY cell_a, cell_b)
),
counts AS (
  SELECT
    cell_a, cell_b,
    CASE WHEN min(n_sides) = max(n_sides) THEN max(n_sides)
      ELSE sum(n) / nullif(sum(n / n_sides), 0) END AS n_sides,
    count(*) AS n_clusters,
    CAST(round(sum(n / n_sides)) AS BIGINT) AS n,
    CAST(round(sum(consistent_a / n_sides)) AS BIGINT) AS n_consistent_a,
    CAST(round(sum(consistent_b / n_sides)) AS BIGINT) AS n_consistent_b,
    CAST(round(sum(a_only / n_sides)) AS BIGINT) AS n_a_only,
    CAST(round(sum(b_only / n_sides)) AS BIGINT) AS n_b_only,
    sum(moved * moved) * (count(*) - 1) / count(*) AS diff_jack
  FROM left_out
  GROUP BY cell_a, cell_b
)
SELECT
  study, rubric_id, compared,
  template_a, provider_a, request_model_a, thinking_a, template_b, provider_b, request_model_b, thinking_b,
  n, n_sides, n_clusters, n_consistent_a, n_consistent_b, n_a_only, n_b_only, diff_jack
FROM comparisons
JOIN counts
  ON counts.cell_a = comparisons.cell_a
  AND counts.cell_b = comparisons.cell_b;
