-- grain: study, template_id, judge, candidate
-- question: How often does a candidate model comply over all statements, and how far is this judge from the others?
-- source: the counts of metric_compliance, by statement and by prompt, an item counting by the part of a judge's
--   verdicts on it that are true, without criteria that take points (below 0 in criteria_points), to comply with which
--   is no merit.
-- estimators:
--   - compliance: the mean over the n_valid items; the interval, for statements in general, wilson_clustered
--   - compliance_se: clustered by statement (CR1), where statements share outputs, or prompts, in two ways, by these
--     too (shared_variance)
--   - compliance_se_cr0: clustered by statement alone, without CR1's correction
--   - compliance_lo_these_statements, compliance_hi_these_statements: for other prompts under the same statements:
--     Wilson, or wilson_clustered by prompts where one has several outputs, or several statements that share its
--     outputs, or repeats split; outputs that show no spread count as one observation a prompt then
--   - compliance_se_naive: as if outputs were independent
--   - compliance_naive: interval ends (compliance_naive_lo, compliance_naive_hi) of Wilson, outputs being draws
--   - compliance_min, compliance_max: as in metric_compliance
--   - judges_mean: the mean over the n_judges models that judged this candidate, with the t interval over judges that
--     SpecEval prints (it knows nothing of the spread over inputs), cut at 0 and 1; without those that were asked about
--     fewer than nine tenths of the outputs that another was asked about, which saw another sample
--   - judge_delta: compliance - judges_mean, the judge's bias; NULL for such a judge, or panel
-- reference: SpecEval (judges_mean, judge_delta); Cameron, Gelbach and Miller 2011 (two ways); clustered,
--   wilson_clustered.
-- nulls: the interval of compliance is NULL below 5 statements, or shared prompts, compliance_se below 2, its ends for
--   these statements below 5 prompts, where one has several outputs, or repeats split, judges_mean without a model that
--   judged the candidate, its interval below 2 and where all of them say the same.
-- note: the panel, and people whose labels were imported under the same template, are no part of judges_mean; their
--   judge_delta says how far they are from the judges.

CREATE OR REPLACE VIEW metric_compliance_overall AS
WITH inputs AS (
  SELECT
    item_status.study, template_id, item_status.rubric_id, judge(item_status) AS judge, candidate,
    coalesce(nullif(unit_id, ''), item) AS prompt,
    min(item) AS an_output,
    count(*) FILTER (WHERE status <> 'pending') AS n_answered,
    count(true_part) AS n_valid,
    count(*) FILTER (WHERE true_part > 0.5) AS n_compliant,
    count(*) FILTER (WHERE status <> 'pending' AND true_part IS NULL) AS n_null,
    count(*) FILTER (WHERE status = 'pending') AS n_pending,
    coalesce(sum(true_part), 0) AS complied,
    coalesce(sum(true_part * true_part), 0) AS squares
  FROM item_status
  LEFT JOIN criteria_points
    ON criteria_points.study = item_status.study
    AND criteria_points.rubric_id = item_status.rubric_id
  WHERE task = 'compliance' AND coalesce(points, 0) >= 0
  GROUP BY
    item_status.study, template_id, item_status.rubric_id, judge, candidate,
    coalesce(nullif(unit_id, ''), item)
),
-- by statement, where prompt is NULL, and by prompt, where rubric_id is: one that statements share is known by its outputs
clusters AS (
  SELECT
    study, template_id, rubric_id, judge, candidate, prompt,
    sum(n_answered) AS n_answered,
    CAST(sum(n_valid) AS DOUBLE) AS n_valid,
    sum(n_compliant) AS n_compliant,
    sum(complied) AS complied,
    sum(squares) AS squares,
    sum(n_null) AS n_null,
    sum(n_pending) AS n_pending,
    count(*) FILTER (WHERE n_valid > 0) AS n_cells,
    sum(complied * complied) AS yes_yes,
    sum(complied * n_valid) AS yes_all,
    CAST(sum(n_valid * n_valid) AS DOUBLE) AS all_all
  FROM inputs
  GROUP BY GROUPING SETS (
    (study, template_id, judge, candidate, rubric_id),
    (study, template_id, judge, candidate, prompt, an_output)
  )
),
counts AS (
  SELECT
    study, template_id, judge, candidate,
    count(*) FILTER (WHERE prompt IS NULL AND n_valid > 0) AS n_rubrics,
    count(*) FILTER (WHERE rubric_id IS NULL AND n_valid > 0) AS n_prompts,
    CAST(sum(n_answered) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_answered,
    CAST(sum(n_valid) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_valid,
    CAST(sum(n_compliant) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_compliant,
    CAST(sum(n_null) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_null,
    CAST(sum(n_pending) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_pending,
    CAST(sum(n_cells) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_cells,
    round(sum(complied) FILTER (WHERE prompt IS NULL), 9) AS complied,
    round(sum(squares) FILTER (WHERE prompt IS NULL), 9) AS squares,
    sum(complied * complied) FILTER (WHERE prompt IS NULL) AS statement_yes_yes,
    sum(complied * n_valid) FILTER (WHERE prompt IS NULL) AS statement_yes_all,
    sum(n_valid * n_valid) FILTER (WHERE prompt IS NULL) AS statement_all_all,
    sum(complied * complied) FILTER (WHERE rubric_id IS NULL) AS prompt_yes_yes,
    sum(complied * n_valid) FILTER (WHERE rubric_id IS NULL) AS prompt_yes_all,
    sum(n_valid * n_valid) FILTER (WHERE rubric_id IS NULL) AS prompt_all_all,
    sum(yes_yes) FILTER (WHERE prompt IS NULL) AS yes_yes,
    sum(yes_all) FILTER (WHERE prompt IS NULL) AS yes_all,
    sum(all_all) FILTER (WHERE prompt IS NULL) AS all_all
  FROM clusters
  GROUP BY study, template_id, judge, candidate
),
rated AS (
  SELECT *, complied / nullif(n_valid, 0) AS p
  FROM counts
),
-- squared residuals about the rate, what is left of none by rounding being none
squared AS (
  SELECT
    *,
    greatest(0.0, statement_yes_yes - 2 * p * statement_yes_all + p * p * statement_all_all) AS by_statement,
    greatest(0.0, prompt_yes_yes - 2 * p * prompt_yes_all + p * p * prompt_all_all) AS by_prompt,
    greatest(0.0, yes_yes - 2 * p * yes_all + p * p * all_all) AS by_cell,
    -- an output's own: n p (1 - p) without parts
    CASE WHEN squares - p * complied > 1e-9 THEN squares - p * complied ELSE 0.0 END AS by_output
  FROM rated
),
measured AS (
  SELECT
    *,
    p AS compliance,
    sqrt(by_output) / nullif(n_valid, 0) AS compliance_se_naive,
    mean_size(p, n_valid, sqrt(by_output) / nullif(n_valid, 0)) AS n_most,
    n_valid = n_prompts AND squares = complied AS is_one_word,
    CASE WHEN n_valid > 0 THEN sqrt(by_statement) / n_valid END AS compliance_se_cr0,
    CASE WHEN n_rubrics > 1
         THEN sqrt(by_statement * n_rubrics / (n_rubrics - 1) / n_valid / n_valid
           + shared_variance(by_prompt, n_prompts, by_cell, n_cells, n_valid)) END AS compliance_se,
    CASE WHEN n_cells > n_prompts THEN least(n_rubrics, n_prompts) ELSE n_rubrics END AS n_draws
  FROM squared
),
-- a judge that was asked about a part of the outputs saw another sample
asked AS (
  SELECT
    *,
    judge.provider <> 'human' AND n_answered + n_pending < 0.9
      * max(CASE WHEN judge.provider <> 'human' THEN n_answered + n_pending END) OVER (PARTITION BY study, template_id, candidate) AS is_part
  FROM measured
),
sampled AS (
  SELECT *, CASE WHEN judge.provider NOT IN ('panel', 'human') AND NOT is_part THEN compliance END AS of_judge
  FROM asked
),
compared AS (
  SELECT
    *,
    count(of_judge) OVER candidates AS n_judges,
    avg(of_judge) OVER candidates AS judges_mean,
    stddev_samp(of_judge) OVER candidates AS judges_sd
  FROM sampled
  WINDOW candidates AS (PARTITION BY study, template_id, candidate)
),
staged AS (
  SELECT
    *,
    wilson_clustered(compliance, n_most, compliance_se, n_draws) AS ends,
    wilson_clustered(compliance, CASE WHEN by_prompt > 1e-9 THEN n_most ELSE n_prompts END,
      CASE WHEN by_prompt > 1e-9 AND n_prompts > 1 THEN sqrt(by_prompt * n_prompts / (n_prompts - 1)) / n_valid END,
      n_prompts) AS these,
    CASE WHEN judges_sd > 1e-9 THEN t_two_sided_95(n_judges - 1) END * judges_sd / sqrt(nullif(n_judges, 0))
      AS half_width
  FROM compared
)
SELECT
  study, template_id, judge.*, candidate,
  n_rubrics, n_answered, n_valid, n_compliant, n_null, n_pending,
  compliance,
  compliance_se,
  ends.lo AS compliance_lo,
  ends.hi AS compliance_hi,
  CASE WHEN is_one_word THEN wilson_lo(complied, n_valid) ELSE these.lo END AS compliance_lo_these_statements,
  CASE WHEN is_one_word THEN wilson_hi(complied, n_valid) ELSE these.hi END AS compliance_hi_these_statements,
  compliance_se_cr0,
  compliance_se_naive,
  wilson_lo(compliance * n_most, n_most) AS compliance_naive_lo,
  wilson_hi(compliance * n_most, n_most) AS compliance_naive_hi,
  complied / nullif(n_answered, 0) AS compliance_min,
  (complied + n_null) / nullif(n_answered, 0) AS compliance_max,
  n_judges,
  judges_mean,
  judges_sd / sqrt(nullif(n_judges, 0)) AS judges_mean_se,
  CASE WHEN half_width IS NOT NULL THEN greatest(0.0, judges_mean - half_width) END AS judges_mean_lo,
  CASE WHEN half_width IS NOT NULL THEN least(1.0, judges_mean + half_width) END AS judges_mean_hi,
  CASE WHEN NOT is_part THEN compliance - judges_mean END AS judge_delta
FROM staged;
