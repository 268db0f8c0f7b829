-- grain: study, template_id, judge, candidate_a, candidate_b
-- question: Of two candidate models that answered the same prompts, which one earns more points, by one judge?
-- source: prompt_scores, the prompts on which both have a score; on n_differ of them the two differ.
-- estimators:
--   - score_a, score_b: the mean score of a, and of b, over these prompts
--   - diff: score_a - score_b
--   - diff_se: sd of the prompts' differences / sqrt(n_prompts), the interval with it for prompts in general, by t over
--     n_prompts - 1
--   - p_diff: of no difference, with the same
--   - diff_mde: the smallest difference that p_diff would have found with power 0.8 (the t quantile of 0.8 to 1e-3); not
--     cut at 1, as faults make larger ones
--   - q_bh: Benjamini and Hochberg's, over p_diff of the study's comparisons that have one; people's are a family of
--     their own
-- reference: student_t.
-- nulls: interval, p and diff_mde below 5 prompts or where all differ alike, diff_se below 2.

CREATE OR REPLACE VIEW metric_points_paired AS
-- read by both sides
WITH scores AS MATERIALIZED (
  SELECT study, template_id, judge(prompt_scores) AS judge, candidate, prompt, score
  FROM prompt_scores
  WHERE score IS NOT NULL
),
sums AS (
  SELECT
    a.study, a.template_id, a.judge,
    a.candidate AS candidate_a, b.candidate AS candidate_b,
    count(*) AS n_prompts,
    count(*) FILTER (WHERE abs(a.score - b.score) > 1e-12) AS n_differ,
    avg(a.score) AS score_a,
    avg(b.score) AS score_b,
    avg(a.score - b.score) AS diff,
    stddev_samp(a.score - b.score) / sqrt(count(*)) AS diff_se
  FROM scores AS a
  JOIN scores AS b
    ON b.study = a.study
    AND b.template_id = a.template_id
    AND b.judge = a.judge
    AND b.prompt = a.prompt
    AND b.candidate > a.candidate
  GROUP BY a.study, a.template_id, a.judge, a.candidate, b.candidate
),
staged AS (
  SELECT *, CASE WHEN n_prompts >= 5 AND diff_se > 1e-12 THEN n_prompts - 1 END AS df
  FROM sums
),
tested AS (
  SELECT *, t_two_sided_95(df) AS t, t_two_sided(diff / diff_se, df) AS p_diff
  FROM staged
),
ranked AS (
  SELECT
    *,
    count(p_diff) OVER (PARTITION BY study, judge.provider = 'human') AS n_p,
    row_number() OVER (PARTITION BY study, judge.provider = 'human' ORDER BY p_diff NULLS LAST) AS p_rank
  FROM tested
)
SELECT
  study, template_id, judge.*, candidate_a, candidate_b,
  n_prompts, n_differ, score_a, score_b,
  diff,
  diff_se,
  diff - t * diff_se AS diff_lo,
  diff + t * diff_se AS diff_hi,
  (t + 0.8416212335729143 + 0.3594365 / df) * diff_se AS diff_mde,
  p_diff,
  CASE WHEN p_diff IS NOT NULL
       THEN least(1.0, min(p_diff * n_p / p_rank) OVER (
         PARTITION BY study, judge.provider = 'human' ORDER BY p_rank DESC)) END AS q_bh
FROM ranked;
