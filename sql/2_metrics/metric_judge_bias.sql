-- grain: study, template_id, judge
-- question: Is a judge stricter or milder than the other judges, over all candidate models?
-- source: the judge_delta of metric_compliance_overall. Only candidates with two model judges or more have a delta
--   worth a mean. The panel is left out.
-- estimators:
--   - delta: the mean of judge_delta over the n_candidates, with a 95 % t interval over the candidates
--   - delta_sd: their standard deviation, which says whether the judge treats all alike
--   - delta_min, delta_max: the least and the largest judge_delta
-- reference: SpecEval (judge bias).
-- nulls: delta_sd, delta_se and the interval are NULL for a single candidate, the interval also where all deltas are
--   alike.

CREATE OR REPLACE VIEW metric_judge_bias AS
WITH deltas AS (
  SELECT
    study, template_id, judge(metric_compliance_overall) AS judge,
    count(judge_delta) AS n_candidates,
    avg(judge_delta) AS delta,
    stddev_samp(judge_delta) AS delta_sd,
    min(judge_delta) AS delta_min,
    max(judge_delta) AS delta_max
  FROM metric_compliance_overall
  WHERE provider <> 'panel' AND n_judges > 1
  GROUP BY study, template_id, judge
),
staged AS (
  SELECT *, CASE WHEN delta_sd > 1e-9 THEN t_two_sided_95(n_candidates - 1) END AS t
  FROM deltas
)
SELECT
  study, template_id, judge.*,
  n_candidates,
  delta,
  delta_sd / sqrt(nullif(n_candidates, 0)) AS delta_se,
  delta - t * delta_sd / sqrt(nullif(n_candidates, 0)) AS delta_lo,
  delta + t * delta_sd / sqrt(nullif(n_candidates, 0)) AS delta_hi,
  delta_sd,
  delta_min,
  delta_max
FROM staged;
