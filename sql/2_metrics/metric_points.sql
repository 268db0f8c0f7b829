-- grain: study, template_id, judge, candidate
-- question: How many of the points that criteria give does a candidate model earn, by one judge?
-- source: prompt_scores, each prompt with the same weight; n_prompts have a score, n_valid criteria a verdict, and
--   n_open none.
-- estimators:
--   - score: the mean over prompts, 1 where everything that gives points is met and nothing else; below 0 where faults
--     outweigh the rest
--   - score_se: sd / sqrt(n_prompts), the interval with it for prompts in general, by t over n_prompts - 1
--   - score_min, score_max: the means with all open criteria at their worst, and at their best
-- reference: Arora et al. 2025 (HealthBench), which prints score cut at 0 and 1.
-- nulls: the interval below 5 prompts or where all have the same score, score_se below 2.
-- note: a criterion is counted however often a judge was asked, so that repeats do not move what is estimated.

CREATE OR REPLACE VIEW metric_points AS
WITH sums AS (
  SELECT
    study, template_id, judge(prompt_scores) AS judge, candidate,
    count(score) AS n_prompts,
    CAST(sum(n_valid) AS BIGINT) AS n_valid,
    CAST(sum(n_open) AS BIGINT) AS n_open,
    avg(score) AS score,
    stddev_samp(score) / sqrt(nullif(count(score), 0)) AS score_se,
    avg(score_min) AS score_min,
    avg(score_max) AS score_max
  FROM prompt_scores
  GROUP BY study, template_id, judge, candidate
),
staged AS (
  SELECT *, CASE WHEN n_prompts >= 5 AND score_se > 1e-12 THEN t_two_sided_95(n_prompts - 1) END * score_se AS half_width
  FROM sums
)
SELECT
  study, template_id, judge.*, candidate,
  n_prompts, n_valid, n_open,
  score,
  score_se,
  score - half_width AS score_lo,
  score + half_width AS score_hi,
  score_min,
  score_max
FROM staged;
