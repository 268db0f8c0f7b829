-- grain: study, template_id, judge, candidate
-- question: How does a judge rate a candidate model's outputs over all statements?
-- source: item_status of task likert, one score per item; n_rated items under n_rubrics statements, of n_prompts prompts.
-- estimators:
--   - score: the mean of the items' scores
--   - score_se: clustered by statement (CR1), where statements share prompts in two ways, by these too (shared_variance),
--     never below that of items as draws; the interval with it for statements in general, by t over the fewer of
--     statements and prompts, less one
-- reference: Cameron, Gelbach and Miller 2011 (two ways); clustered, student_t.
-- nulls: the interval below 5 statements or prompts, or where all scores are alike; score_se below 2 statements.

CREATE OR REPLACE VIEW metric_ratings_overall AS
WITH scored AS (
  SELECT
    study, template_id, judge(item_status) AS judge, candidate, rubric_id, score,
    coalesce(nullif(unit_id, ''), item) AS prompt,
    score - avg(score) OVER (PARTITION BY study, template_id, judge(item_status), candidate) AS residual
  FROM item_status
  WHERE task = 'likert' AND score IS NOT NULL
),
-- a cluster's squared sum is the sum over its rows of what the row has times what the cluster has
clustered AS (
  SELECT
    *,
    sum(residual) OVER (PARTITION BY study, template_id, judge, candidate, rubric_id)
      AS of_rubric,
    sum(residual) OVER (PARTITION BY study, template_id, judge, candidate, prompt)
      AS of_prompt,
    sum(residual) OVER (PARTITION BY study, template_id, judge, candidate, rubric_id, prompt)
      AS of_cell
  FROM scored
),
sums AS (
  SELECT
    study, template_id, judge, candidate,
    count(*) AS n_rated,
    count(DISTINCT rubric_id) AS n_rubrics,
    count(DISTINCT prompt) AS n_prompts,
    count(DISTINCT rubric_id || chr(31) || prompt) AS n_cells,
    avg(score) AS score,
    sum(residual * of_rubric) AS by_rubric,
    sum(residual * of_prompt) AS by_prompt,
    sum(residual * of_cell) AS by_cell,
    sum(residual * residual) AS spread
  FROM clustered
  GROUP BY study, template_id, judge, candidate
),
measured AS (
  SELECT
    *,
    CASE WHEN n_rubrics > 1
         THEN sqrt(greatest(
           by_rubric * n_rubrics / (n_rubrics - 1) / n_rated / n_rated
             + shared_variance(by_prompt, n_prompts, by_cell, n_cells, n_rated),
           spread / (n_rated - 1) / n_rated)) END AS score_se,
    CASE WHEN least(n_rubrics, n_prompts) >= 5 AND spread > 1e-9
         THEN t_two_sided_95(least(n_rubrics, n_prompts) - 1) END AS t
  FROM sums
)
SELECT
  study, template_id, judge.*, candidate,
  n_rubrics, n_prompts, n_rated,
  score,
  score_se,
  score - t * score_se AS score_lo,
  score + t * score_se AS score_hi
FROM measured;
