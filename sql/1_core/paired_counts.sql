-- grain: study, rubric_id, template_a, judge_a, template_b, judge_b
-- question: On which pairs were two templates of one judge, or two judges with one template, consistent, and how far?
-- source: pair_status. compared says what differs: `template` or `judge`. n pairs have votes in both orders from either;
--   consistent is of each the share of its votes of one order with those of the other that agree, two ties too
--   (lo_part, hi_part, tie_part): consistent_a and consistent_b are sums over the pairs, diff_squares that of the squares
--   of the one less the other. n_consistent_a and n_consistent_b count pairs on which more than half agree, n_a_only and
--   n_b_only those on which one is more consistent: with one vote per order, on which it alone is. The pairs are
--   those of n_clusters items, each counted for both of its own (n_sides = 2), or of prompts, once, where either item is
--   known to be a model's output, as in pair_clusters. diff_jack is the variance of the difference of the consistent
--   shares that comes from leaving out one of these after the other. Pairs that lists imply are left out: pairs are
--   draws here.

CREATE OR REPLACE VIEW paired_counts AS
WITH flags AS MATERIALIZED (
  SELECT
    study, template_id, rubric_id, judge(pair_status) AS judge, unit_id, item_lo, item_hi,
    CASE WHEN coalesce(candidate_lo, candidate_hi) IS NULL THEN 2 ELSE 1 END AS n_sides,
    dense_rank() OVER (ORDER BY study, template_id, rubric_id, judge(pair_status)) AS cell_no,
    round(lo_part + hi_part + tie_part, 12) AS consistent
  FROM pair_status
  WHERE lo_part IS NOT NULL AND list_kind IS NULL
),
cells AS (
  SELECT DISTINCT study, template_id, rubric_id, judge, cell_no FROM flags
),
comparisons AS (
  SELECT
    a.study, a.rubric_id,
    CASE WHEN a.template_id = b.template_id THEN 'judge' ELSE 'template' END AS compared,
    a.cell_no AS cell_a, b.cell_no AS cell_b,
    a.template_id AS template_a, as_judge_a(a.judge) AS judge_a, b.template_id AS template_b, as_judge_b(b.judge) AS judge_b
  FROM cells AS a
  JOIN cells AS b
    ON b.study = a.study
    AND b.rubric_id = a.rubric_id
    AND b.cell_no > a.cell_no
    AND (b.template_id = a.template_id OR b.judge = a.judge)
),
-- a pair's cells, each with how far it is consistent there, as a list: it is looked at once, however many share it
subjects AS (
  SELECT
    unit_id, item_lo, item_hi,
    min(n_sides) AS n_sides,
    list_sort(list({'key': cell_no, 'value': consistent})) AS cells
  FROM flags
  GROUP BY study, rubric_id, unit_id, item_lo, item_hi
),
sided AS (
  SELECT
    subjects.unit_id, subjects.n_sides, subjects.cells,
    CASE WHEN subjects.n_sides = 1 THEN '' WHEN sides.side = 1 THEN subjects.item_lo ELSE subjects.item_hi END AS item
  FROM subjects
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE sides.side <= subjects.n_sides
),
patterns AS (
  SELECT
    row_number() OVER (ORDER BY unit_id, item, n_sides, cells) AS pattern_no,
    unit_id, item, n_sides, cells, count(*) AS n
  FROM sided
  GROUP BY unit_id, item, n_sides, cells
),
said AS (
  SELECT pattern_no, unit_id, item, n_sides, n, unnest(cells) AS cell FROM patterns
),
votes AS MATERIALIZED (
  SELECT pattern_no, unit_id, item, n_sides, n, cell.key AS cell_no, cell.value AS consistent FROM said
),
by_cluster AS (
  SELECT
    a.cell_no AS cell_a, b.cell_no AS cell_b,
    max(a.n_sides) AS n_sides,
    sum(a.n) AS n,
    sum(a.n * a.consistent) AS consistent_a,
    sum(a.n * b.consistent) AS consistent_b,
    sum(a.n * (a.consistent - b.consistent)) AS diff,
    sum(a.n * power(a.consistent - b.consistent, 2)) AS diff_squares,
    sum(CASE WHEN a.consistent > 0.5 THEN a.n ELSE 0 END) AS n_consistent_a,
    sum(CASE WHEN b.consistent > 0.5 THEN a.n ELSE 0 END) AS n_consistent_b,
    sum(CASE WHEN a.consistent > b.consistent THEN a.n ELSE 0 END) AS a_only,
    sum(CASE WHEN a.consistent < b.consistent THEN a.n ELSE 0 END) AS b_only
  FROM votes AS a
  JOIN votes AS b
    ON b.pattern_no = a.pattern_no
    AND b.cell_no > a.cell_no
  GROUP BY a.cell_no, b.cell_no, a.unit_id, a.item
),
left_out AS (
  SELECT
    *,
    (sum(diff / n_sides) OVER comparison - diff) / nullif(sum(n / n_sides) OVER comparison - n, 0)
      - sum(diff / n_sides) OVER comparison / sum(n / n_sides) OVER comparison AS moved
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
    round(sum(consistent_a / n_sides), 12) AS consistent_a,
    round(sum(consistent_b / n_sides), 12) AS consistent_b,
    round(sum(diff_squares / n_sides), 12) AS diff_squares,
    CAST(round(sum(n_consistent_a / n_sides)) AS BIGINT) AS n_consistent_a,
    CAST(round(sum(n_consistent_b / n_sides)) AS BIGINT) AS n_consistent_b,
    CAST(round(sum(a_only / n_sides)) AS BIGINT) AS n_a_only,
    CAST(round(sum(b_only / n_sides)) AS BIGINT) AS n_b_only,
    sum(moved * moved) * (count(*) - 1) / count(*) AS diff_jack
  FROM left_out
  GROUP BY cell_a, cell_b
)
SELECT
  study, rubric_id, compared,
  template_a, judge_a.*, template_b, judge_b.*,
  n, n_sides, n_clusters, consistent_a, consistent_b, diff_squares, n_consistent_a, n_consistent_b, n_a_only, n_b_only,
  diff_jack
FROM comparisons
JOIN counts
  ON counts.cell_a = comparisons.cell_a
  AND counts.cell_b = comparisons.cell_b;
