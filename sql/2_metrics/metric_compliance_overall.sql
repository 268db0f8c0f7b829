-- grain: study, template_id, provider, request_model, thinking, candidate
-- question: How often does a candidate model comply over all statements, and how far is this judge from the others?
-- source: the counts of metric_compliance.
-- estimators:
--   - compliance: n_compliant / n_valid, the interval wilson_clustered
--   - compliance_se: clustered by statement (CR1)
--   - compliance_se_cr0: compliance_se without CR1's correction
--   - compliance_se_naive: as if inputs were independent
--   - compliance_naive: interval ends (compliance_naive_lo, compliance_naive_hi) of plain Wilson
--   - compliance_min, compliance_max: as in metric_compliance
--   - judges_mean: the mean over the n_judges models that judged this candidate, with the t interval over judges that
--     SpecEval prints (it knows nothing of the spread over inputs), cut at 0 and 1
--   - judge_delta: compliance - judges_mean, the judge's bias
-- reference: SpecEval (judges_mean, judge_delta); wilson_clustered.
-- nulls: the interval of compliance is NULL below 5 statements, compliance_se below 2, judges_mean without a model that
--   judged the candidate, its interval below 2 and where all of them say the same.
-- note: statements alone are the draws: where they share prompts, the interval is for the same prompts. The panel, and
--   people whose labels were imported under the same template, are no part of judges_mean; their judge_delta says how far
--   they are from the judges.

CREATE OR REPLACE VIEW metric_compliance_overall AS
WITH centred AS (
  SELECT
    *,
    n_compliant - n_valid * (sum(n_compliant) OVER whole / nullif(sum(n_valid) OVER whole, 0)) AS residual
  FROM metric_compliance
  WINDOW whole AS (PARTITION BY study, template_id, provider, request_model, thinking, candidate)
),
counts AS (
  SELECT
    study, template_id, provider, request_model, thinking, candidate,
    count(*) FILTER (WHERE n_valid > 0) AS n_rubrics,
    CAST(sum(n_answered) AS BIGINT) AS n_answered,
    CAST(sum(n_valid) AS BIGINT) AS n_valid,
    CAST(sum(n_compliant) AS BIGINT) AS n_compliant,
    CAST(sum(n_null) AS BIGINT) AS n_null,
    CAST(sum(n_pending) AS BIGINT) AS n_pending,
    sum(residual * residual) AS residual_squares
  FROM centred
  GROUP BY study, template_id, provider, request_model, thinking, candidate
),
measured AS (
  SELECT
    *,
    n_compliant / nullif(n_valid, 0) AS compliance,
    sqrt(residual_squares) / nullif(n_valid, 0) AS compliance_se_cr0,
    CASE WHEN n_rubrics > 1
         THEN sqrt(residual_squares * n_rubrics / (n_rubrics - 1)) / n_valid END AS compliance_se
  FROM counts
),
compared AS (
  SELECT
    *,
    count(of_judge) OVER candidates AS n_judges,
    avg(of_judge) OVER candidates AS judges_mean,
    stddev_samp(of_judge) OVER candidates AS judges_sd
  FROM (SELECT *, CASE WHEN provider NOT IN ('panel', 'human') THEN compliance END AS of_judge FROM measured)
  WINDOW candidates AS (PARTITION BY study, template_id, candidate)
),
staged AS (
  SELECT
    *,
    wilson_clustered(compliance, n_valid, compliance_se, n_rubrics) AS ends,
    CASE WHEN judges_sd > 0 THEN t_quantile(0.975, n_judges - 1) END * judges_sd / sqrt(nullif(n_judges, 0))
      AS half_width
  FROM compared
)
SELECT
  study, template_id, provider, request_model, thinking, candidate,
  n_rubrics, n_answered, n_valid, n_compliant, n_null, n_pending,
  compliance,
  compliance_se,
  ends.lo AS compliance_lo,
  ends.hi AS compliance_hi,
  compliance_se_cr0,
  sqrt(compliance * (1 - compliance) / nullif(n_valid, 0)) AS compliance_se_naive,
  wilson_lo(n_compliant, n_valid) AS compliance_naive_lo,
  wilson_hi(n_compliant, n_valid) AS compliance_naive_hi,
  n_compliant / nullif(n_answered, 0) AS compliance_min,
  (n_compliant + n_null) / nullif(n_answered, 0) AS compliance_max,
  n_judges,
  judges_mean,
  judges_sd / sqrt(nullif(n_judges, 0)) AS judges_mean_se,
  CASE WHEN half_width IS NOT NULL THEN greatest(0.0, judges_mean - half_width) END AS judges_mean_lo,
  CASE WHEN half_width IS NOT NULL THEN least(1.0, judges_mean + half_width) END AS judges_mean_hi,
  compliance - judges_mean AS judge_delta
FROM staged;
