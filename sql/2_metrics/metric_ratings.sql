-- grain: study, task, cell, candidate
-- question: How does a judge rate a candidate model's outputs on one statement or trait?
-- source: item_status of the tasks that give a score (likert, prompts), one score per item, the mean of a judge's
--   repeats. Provider `panel` holds the mean over the judges.
-- estimators:
--   - score: the mean of the items' scores, error sd / sqrt(n), and a t interval over the items; where a prompt
--     (unit_id) has several, the error clustered by prompts (CR1) if it is larger, and t over these
--   - score_sd: their standard deviation
--   - score_lowest, score_highest: the least and the largest score
-- reference: own definitions; student_t.
-- nulls: n_null items were answered without a score: they are out, never the lowest rating. score is NULL where n_rated
--   is 0, its error for a single item, its interval also where all scores are alike, or of one prompt:
--   no spread to see.

CREATE OR REPLACE VIEW metric_ratings AS
WITH prompts AS (
  SELECT
    study, task, cell(item_status) AS cell, candidate,
    coalesce(nullif(unit_id, ''), item) AS prompt,
    count(score) AS n_rated,
    count(*) FILTER (WHERE status <> 'pending' AND score IS NULL) AS n_null,
    count(*) FILTER (WHERE status = 'pending') AS n_pending,
    sum(score) AS total,
    var_pop(score) AS variance,
    min(score) AS score_lowest,
    max(score) AS score_highest
  FROM item_status
  WHERE task IN ('likert', 'prompts')
  GROUP BY study, task, cell, candidate, coalesce(nullif(unit_id, ''), item)
),
centred AS (
  SELECT *, total - n_rated * (sum(total) OVER cell / nullif(sum(n_rated) OVER cell, 0)) AS residual
  FROM prompts
  WINDOW cell AS (PARTITION BY study, task, cell, candidate)
),
counts AS (
  SELECT
    study, task, cell, candidate,
    CAST(sum(n_rated) AS BIGINT) AS n_rated,
    CAST(sum(n_null) AS BIGINT) AS n_null,
    CAST(sum(n_pending) AS BIGINT) AS n_pending,
    sum(total) / nullif(sum(n_rated), 0) AS score,
    count(total) AS n_prompts,
    max(n_rated) > 1 AS has_several,
    sum(residual * residual) AS by_prompt,
    -- of a prompt the squares about its own mean, and its mean's about that of all
    sum(n_rated * variance + residual * residual / nullif(n_rated, 0)) AS squares,
    min(score_lowest) AS score_lowest,
    max(score_highest) AS score_highest
  FROM centred
  GROUP BY study, task, cell, candidate
),
spread AS (
  SELECT
    *,
    CASE WHEN n_rated > 1 THEN CASE WHEN score_highest > score_lowest THEN sqrt(squares / (n_rated - 1)) ELSE 0.0 END END
      AS score_sd
  FROM counts
),
staged AS (
  SELECT
    *,
    greatest(
      score_sd / sqrt(nullif(n_rated, 0)),
      CASE WHEN has_several AND n_prompts > 1 THEN sqrt(by_prompt * n_prompts / (n_prompts - 1)) / n_rated ELSE 0.0 END
    ) AS score_se,
    CASE WHEN score_sd > 1e-9 AND n_prompts > 1 THEN t_two_sided_95(n_prompts - 1) END AS t
  FROM spread
)
SELECT
  study, task, cell.*, candidate,
  n_rated, n_null, n_pending,
  score,
  CASE WHEN score_sd IS NOT NULL THEN score_se END AS score_se,
  score - t * score_se AS score_lo,
  score + t * score_se AS score_hi,
  score_sd, score_lowest, score_highest
FROM staged
WHERE n_rated > 0 OR task = 'likert';
