-- grain: study, rubric_id, template_a, provider_a, request_model_a, thinking_a, template_b, provider_b,
--   request_model_b, thinking_b
-- question: On how many pairs were two templates of one judge, or two judges with one template, both consistent?
-- source: pair_status. compared says what differs: `template` or `judge`. n pairs have a majority in both orders from
--   either; consistent is the same majority in both, a tie included.

CREATE OR REPLACE VIEW paired_counts AS
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
)
SELECT
  study, rubric_id, compared,
  template_a, provider_a, request_model_a, thinking_a, template_b, provider_b, request_model_b, thinking_b,
  n, n_consistent_a, n_consistent_b, n_a_only, n_b_only
FROM comparisons
JOIN counts
  ON counts.cell_a = comparisons.cell_a
  AND counts.cell_b = comparisons.cell_b;
