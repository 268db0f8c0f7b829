-- grain: study, task, template_id, rubric_id, provider, request_model, thinking, candidate
-- question: How does a judge rate a candidate model's outputs on one statement or trait?
-- source: item_status of the tasks that give a score (likert, prompts), one score per item, the mean of a judge's
--   repeats. Provider `panel` holds the mean over the judges.
-- estimators:
--   - score: the mean of the items' scores, error sd / sqrt(n), and a t interval over the items
--   - score_sd: their standard deviation
--   - score_lowest, score_highest: the least and the largest score
-- reference: own definitions; student_t.
-- nulls: n_null items were answered without a score: they are out, never the lowest rating. score is NULL where n_rated
--   is 0, its error for a single item, its interval also where all scores are alike: no spread to see.

CREATE OR REPLACE VIEW metric_ratings AS
WITH counts AS (
  SELECT
    study, task, template_id, rubric_id, provider, request_model, thinking, candidate,
    count(score) AS n_rated,
    count(*) FILTER (WHERE status <> 'pending' AND score IS NULL) AS n_null,
    count(*) FILTER (WHERE status = 'pending') AS n_pending,
    avg(score) AS score,
    stddev_samp(score) AS score_sd,
    min(score) AS score_lowest,
    max(score) AS score_highest
  FROM item_status
  WHERE task IN ('likert', 'prompts')
  GROUP BY study, task, template_id, rubric_id, provider, request_model, thinking, candidate
),
staged AS (
  SELECT *, CASE WHEN score_sd > 0 THEN t_two_sided_95(n_rated - 1) END AS t
  FROM counts
)
SELECT
  study, task, template_id, rubric_id, provider, request_model, thinking, candidate,
  n_rated, n_null, n_pending,
  score,
  score_sd / sqrt(nullif(n_rated, 0)) AS score_se,
  score - t * score_sd / sqrt(nullif(n_rated, 0)) AS score_lo,
  score + t * score_sd / sqrt(nullif(n_rated, 0)) AS score_hi,
  score_sd, score_lowest, score_highest
FROM staged
WHERE n_rated > 0 OR task = 'likert';
