-- grain: study, template_id, provider, request_model, thinking, candidate_a, candidate_b
-- question: Of two candidate models that answered the same inputs, which one complies more often, by one judge?
-- source: item_status of task compliance, the inputs on which both have a verdict for a statement. The row of provider
--   `panel` compares by the majority of the judges.
-- estimators:
--   - rate_a, rate_b: the share of these inputs on which a, and b, complies
--   - diff: rate of a - rate of b, the interval diff -+ t(n_rubrics - 1) diff_se
--   - diff_se: clustered by statement (CR1)
--   - diff_se_cr0: diff_se without CR1's correction
--   - diff_se_naive: as if inputs were independent
--   - p_mcnemar: exact test of n_a_only against n_b_only
-- reference: mcnemar_exact; student_t.
-- nulls: the interval is NULL below 5 statements, diff_se below 2, p_mcnemar where no input tells the two apart.
-- note: where a model has several outputs for an input they are averaged, and the test counts which average is higher.

CREATE OR REPLACE VIEW metric_compliance_paired AS
WITH rates AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, candidate,
    avg(CASE value WHEN 'true' THEN 1.0 ELSE 0.0 END) AS rate
  FROM item_status
  WHERE task = 'compliance' AND value IN ('true', 'false') AND candidate IS NOT NULL
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, unit_id, candidate
),
paired AS (
  SELECT
    a.study, a.template_id, a.rubric_id, a.provider, a.request_model, a.thinking,
    a.candidate AS candidate_a, b.candidate AS candidate_b,
    a.rate AS rate_a, b.rate AS rate_b, a.rate - b.rate AS diff
  FROM rates AS a
  JOIN rates AS b
    ON b.study = a.study
    AND b.template_id = a.template_id
    AND b.rubric_id = a.rubric_id
    AND b.provider = a.provider
    AND b.request_model = a.request_model
    AND coalesce(b.thinking, '') = coalesce(a.thinking, '')
    AND b.unit_id = a.unit_id
    AND b.candidate > a.candidate
),
by_rubric AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, candidate_a, candidate_b,
    count(*) AS n,
    sum(rate_a) AS sum_a,
    sum(rate_b) AS sum_b,
    sum(diff) AS sum_diff,
    sum(diff * diff) AS sum_squares,
    count(*) FILTER (WHERE diff > 0) AS n_a_only,
    count(*) FILTER (WHERE diff < 0) AS n_b_only
  FROM paired
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, candidate_a, candidate_b
),
centred AS (
  SELECT
    *,
    sum_diff - n * (sum(sum_diff) OVER whole / sum(n) OVER whole) AS residual
  FROM by_rubric
  WINDOW whole AS (PARTITION BY study, template_id, provider, request_model, thinking, candidate_a, candidate_b)
),
sums AS (
  SELECT
    study, template_id, provider, request_model, thinking, candidate_a, candidate_b,
    count(*) AS n_rubrics,
    CAST(sum(n) AS BIGINT) AS n,
    CAST(sum(n_a_only) AS BIGINT) AS n_a_only,
    CAST(sum(n_b_only) AS BIGINT) AS n_b_only,
    sum(sum_a) / sum(n) AS rate_a,
    sum(sum_b) / sum(n) AS rate_b,
    sum(sum_diff) / sum(n) AS diff,
    sqrt(sum(residual * residual)) / sum(n) AS diff_se_cr0,
    sqrt(greatest(0.0, sum(sum_squares) / sum(n) - power(sum(sum_diff) / sum(n), 2)) / sum(n)) AS diff_se_naive
  FROM centred
  GROUP BY study, template_id, provider, request_model, thinking, candidate_a, candidate_b
),
measured AS (
  SELECT
    *,
    CASE WHEN n_rubrics > 1 THEN diff_se_cr0 * sqrt(n_rubrics / (n_rubrics - 1)) END AS diff_se
  FROM sums
),
staged AS (
  SELECT *, CASE WHEN n_rubrics >= 5 THEN t_quantile(0.975, n_rubrics - 1) * diff_se END AS half_width
  FROM measured
)
SELECT
  study, template_id, provider, request_model, thinking, candidate_a, candidate_b,
  n_rubrics, n, n_a_only, n_b_only, rate_a, rate_b,
  diff,
  diff_se,
  diff - half_width AS diff_lo,
  diff + half_width AS diff_hi,
  diff_se_cr0,
  diff_se_naive,
  mcnemar_exact(n_a_only, n_b_only) AS p_mcnemar
FROM staged;
