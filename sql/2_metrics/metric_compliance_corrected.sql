-- grain: study, template_id, provider, request_model, thinking, candidate
-- question: How often does a candidate model comply, once the judge's errors are corrected by people's labels?
-- source: the majorities of item_status over all statements, with the labels of `truths`; n_rubrics statements have a
--   judged output, n_rubrics_labelled a labelled one.
-- estimators:
--   - compliance: the judge's own rate over all
--   - compliance_min, compliance_max: what the n_null outputs, answered without a verdict and out of the rate, leave
--     open: all of them failed, or all complied
--   - people_compliance: the rate of the labels alone, of the labelled outputs
--   - sensitivity, specificity: of the judge on the n_labelled outputs, n_label_true and n_label_false
--   - ppi_compliance: PPI++ (prediction_powered), to be preferred where the labelled outputs are a random part of all,
--     each with the same chance; no chance is on record, and no label has a weight
--   - ppi_weight: how far the judge is believed
--   - ppi_compliance_min, ppi_compliance_max, rogan_gladen_compliance_min, rogan_gladen_compliance_max: what the n_null
--     outputs leave open, n_null_labelled of which have a label that then counts: whatever the judge says of them, PPI++
--     with this weight, and Rogan-Gladen, are inside
--   - rogan_gladen_compliance: the judge's rate on the n_unlabelled outputs, corrected by its sensitivity and
--     specificity, for labels that were collected elsewhere
--   - compliance_se, people_compliance_se, ppi_compliance_se, rogan_gladen_compliance_se: for statements in general,
--     clustered by statement (CR1), and the ends _lo and _hi with them: the first three as wilson_clustered, the last
--     by t, cut off at 0 and 1. Labels that agree count as n_labelled observations of a rate
--   - compliance_lo_these_statements, compliance_hi_these_statements, people_compliance_lo_these_statements,
--     people_compliance_hi_these_statements, ppi_compliance_se_these_statements, ppi_compliance_lo_these_statements,
--     ppi_compliance_hi_these_statements, rogan_gladen_compliance_se_these_statements,
--     rogan_gladen_compliance_lo_these_statements, rogan_gladen_compliance_hi_these_statements: for other outputs on
--     the same statements, outputs being draws: Wilson, and for the corrected the normal interval cut off at 0 and 1
--   - ppi_lacks, rogan_gladen_lacks: why there is no interval for statements in general: labels, statements (labelled
--     ones), or judge (it says the same whatever the truth is)
--   - ppi_n_labels, rogan_gladen_n_labels: how many labels, spread over five statements or more, would do: 5, and for
--     Rogan-Gladen as many as have 5 of the rarer label in 19 of 20 draws, at the share (k + 1) / (n + 2) of it
-- reference: PPI++ and Rogan-Gladen as in prediction_powered and rogan_gladen; clustered by the same linearisations;
--   clustered, wilson_clustered.
-- nulls: no interval where fewer than 5 outputs (for Rogan-Gladen 5 of either label) are labelled, for statements in
--   general where labels are on fewer than 5 of them, for these statements where the labelled show no spread: the error
--   would be a number from nothing. rogan_gladen_compliance is NULL where the judge's sensitivity and specificity add
--   up to 1.05 or less, and so are its bounds where they may do so.
-- note: statements, or outputs under these, are the draws: where statements share prompts, all is for the same prompts.

CREATE OR REPLACE VIEW metric_compliance_corrected AS
WITH judged AS (
  SELECT
    item_status.study, item_status.template_id, item_status.rubric_id, item_status.provider, item_status.request_model,
    item_status.thinking, item_status.candidate,
    CASE item_status.value WHEN 'true' THEN 1 WHEN 'false' THEN 0 END AS f,
    CASE truths.truth WHEN 'true' THEN 1 WHEN 'false' THEN 0 END AS y
  FROM item_status
  LEFT JOIN truths
    ON truths.study = item_status.study
    AND truths.task = item_status.task
    AND truths.rubric_id = item_status.rubric_id
    AND truths.unit_id = item_status.unit_id
    AND truths.item_lo = item_status.item
    AND coalesce(truths.turn_no, -1) = coalesce(item_status.turn_no, -1)
  WHERE item_status.task = 'compliance'
    AND (item_status.value IN ('true', 'false') OR (item_status.value IS NULL AND item_status.status <> 'pending'))
    AND item_status.provider <> 'human'
),
statements AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, candidate,
    count(f) AS judged_here,
    count(f + y) AS labelled_here,
    count(*) - count(f) AS null_here,
    count(*) FILTER (WHERE f IS NULL AND y = 1) AS null_true_here,
    count(*) FILTER (WHERE f IS NULL AND y = 0) AS null_false_here,
    coalesce(sum(f), 0) AS compliant_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f END), 0) AS labelled_compliant_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN y END), 0) AS true_here,
    coalesce(sum(f * y), 0) AS both_true_here,
    count(*) FILTER (WHERE f + y = 0) AS both_false_here
  FROM judged
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, candidate
),
totals AS (
  SELECT
    *,
    judged_here - labelled_here AS unlabelled_here,
    compliant_here - labelled_compliant_here AS unlabelled_compliant_here,
    labelled_here - true_here AS false_here,
    CAST(sum(judged_here) OVER cell AS BIGINT) AS n_judged,
    CAST(sum(labelled_here) OVER cell AS BIGINT) AS n_labelled,
    CAST(sum(compliant_here) OVER cell AS BIGINT) AS n_compliant,
    CAST(sum(labelled_compliant_here) OVER cell AS BIGINT) AS n_labelled_compliant,
    CAST(sum(true_here) OVER cell AS BIGINT) AS n_label_true,
    CAST(sum(both_true_here) OVER cell AS BIGINT) AS n_both_true
  FROM statements
  WINDOW cell AS (PARTITION BY study, template_id, provider, request_model, thinking, candidate)
),
rates AS (
  SELECT
    *,
    n_judged - n_labelled AS n_unlabelled,
    n_labelled - n_label_true AS n_label_false,
    n_compliant / nullif(n_judged, 0) AS compliance,
    n_label_true / nullif(n_labelled, 0) AS people,
    n_both_true / nullif(n_label_true, 0) AS sensitivity,
    (n_labelled - n_label_true - n_labelled_compliant + n_both_true) / nullif(n_labelled - n_label_true, 0)
      AS specificity,
    (n_compliant - n_labelled_compliant) / nullif(n_judged - n_labelled, 0) AS rate,
    ppi_weight(n_labelled, n_judged, n_label_true, n_labelled_compliant, n_both_true, n_compliant, n_compliant)
      AS weight
  FROM totals
),
corrected AS (
  SELECT *, rogan_gladen(rate, sensitivity, specificity) AS rg
  FROM rates
),
moved AS (
  SELECT
    *,
    (compliant_here - judged_here * compliance) / nullif(n_judged, 0) AS judge_moved,
    (true_here - labelled_here * people) / nullif(n_labelled, 0) AS people_moved,
    ppi_moved(labelled_here, judged_here, true_here, labelled_compliant_here, compliant_here, n_labelled, n_judged,
      n_label_true, n_labelled_compliant, n_compliant, weight) AS ppi_moved,
    rogan_gladen_moved(unlabelled_compliant_here, unlabelled_here, both_true_here, true_here, both_false_here,
      false_here, rate, n_unlabelled, sensitivity, n_label_true, specificity, n_label_false, rg) AS rg_moved
  FROM corrected
),
cells AS (
  SELECT
    study, template_id, provider, request_model, thinking, candidate,
    count(*) FILTER (WHERE judged_here > 0) AS n_rubrics,
    count(*) FILTER (WHERE labelled_here > 0) AS n_rubrics_labelled,
    max(n_judged) AS n_judged,
    CAST(sum(null_here) AS BIGINT) AS n_null,
    CAST(sum(null_true_here) AS BIGINT) AS n_null_true,
    CAST(sum(null_false_here) AS BIGINT) AS n_null_false,
    max(n_labelled) AS n_labelled,
    max(n_unlabelled) AS n_unlabelled,
    max(n_label_true) AS n_label_true,
    max(n_label_false) AS n_label_false,
    max(n_compliant) AS n_compliant,
    max(n_labelled_compliant) AS n_labelled_compliant,
    max(n_both_true) AS n_both_true,
    max(compliance) AS compliance,
    max(people) AS people,
    max(sensitivity) AS sensitivity,
    max(specificity) AS specificity,
    max(rate) AS rate,
    max(weight) AS ppi_weight,
    max(rg) AS rg,
    sum(judge_moved * judge_moved) AS judge_squares,
    sum(people_moved * people_moved) AS people_squares,
    sum(ppi_moved * ppi_moved) AS ppi_squares,
    sum(rg_moved * rg_moved) AS rg_squares
  FROM moved
  GROUP BY study, template_id, provider, request_model, thinking, candidate
  HAVING max(moved.n_judged) > 0
),
-- what the judge may have said of the n_null outputs: of the unlabelled, and of those that people called true and false
opened AS (
  SELECT
    *,
    n_null_true + n_null_false AS n_null_labelled,
    n_unlabelled + n_null - n_null_true - n_null_false AS unlabelled_in_all,
    n_labelled + n_null_true + n_null_false AS labelled_in_all,
    n_compliant - n_labelled_compliant AS unlabelled_compliant,
    n_both_true / nullif(n_label_true + n_null_true, 0) AS sensitivity_min,
    (n_both_true + n_null_true) / nullif(n_label_true + n_null_true, 0) AS sensitivity_max,
    (n_label_false - n_labelled_compliant + n_both_true) / nullif(n_label_false + n_null_false, 0) AS specificity_min,
    (n_label_false - n_labelled_compliant + n_both_true + n_null_false) / nullif(n_label_false + n_null_false, 0)
      AS specificity_max
  FROM cells
),
measured AS (
  SELECT
    *,
    n_label_true + n_null_true - ppi_weight * n_labelled_compliant AS ppi_rest,
    unlabelled_compliant / nullif(unlabelled_in_all, 0) AS rate_min,
    (unlabelled_compliant + n_null - n_null_labelled) / nullif(unlabelled_in_all, 0) AS rate_max,
    ppi_mean(n_labelled, n_judged, n_label_true, n_labelled_compliant, n_compliant, ppi_weight) AS ppi,
    ppi_mean_se(n_labelled, n_judged, n_label_true, n_label_true, n_labelled_compliant, n_labelled_compliant,
      n_both_true, n_compliant, n_compliant, ppi_weight) AS ppi_se,
    rogan_gladen_se(rate, n_unlabelled, sensitivity, n_label_true, specificity, n_label_false) AS rg_se,
    CASE WHEN n_rubrics > 1 THEN judge_squares * n_rubrics / (n_rubrics - 1) END AS judge_clustered,
    CASE WHEN n_rubrics_labelled > 1 THEN n_rubrics_labelled / (n_rubrics_labelled - 1) END AS cr1,
    CASE WHEN n_rubrics >= 5 THEN n_rubrics - 1 END AS judge_df,
    CASE WHEN n_rubrics_labelled >= 5 AND n_labelled >= 5 THEN n_rubrics_labelled - 1 END AS labelled_df
  FROM opened
),
errors AS (
  SELECT
    *,
    greatest(0.0, least(1.0, ppi)) AS ppi_inside,
    CASE WHEN judge_clustered IS NOT NULL
         THEN sqrt(clustered_variance(judge_clustered, compliance * (1 - compliance) / n_judged, 1)) END AS compliance_se,
    CASE WHEN cr1 IS NOT NULL
         THEN sqrt(clustered_variance(cr1 * people_squares, people * (1 - people) / n_labelled, 1)) END AS people_se,
    CASE WHEN cr1 IS NOT NULL THEN sqrt(clustered_variance(cr1 * ppi_squares, ppi_se * ppi_se, 1)) END AS ppi_general_se,
    CASE WHEN cr1 * rg_squares IS NOT NULL
         THEN sqrt(clustered_variance(cr1 * rg_squares, rg_se * rg_se, 1)) END AS rg_general_se,
    coalesce(ppi_weight * rate_min, 0) + (ppi_rest - ppi_weight * n_null_labelled) / labelled_in_all AS ppi_min,
    coalesce(ppi_weight * rate_max, 0) + ppi_rest / labelled_in_all AS ppi_max,
    -- Rogan-Gladen goes one way with either error, whatever the other is: its ends are at the corners
    sensitivity_min + specificity_min > 1.05 AS is_rg_closed,
    least(rogan_gladen(rate_min, sensitivity_min, specificity_min), rogan_gladen(rate_min, sensitivity_max, specificity_min),
      rogan_gladen(rate_min, sensitivity_min, specificity_max), rogan_gladen(rate_min, sensitivity_max, specificity_max))
      AS rg_min,
    greatest(rogan_gladen(rate_max, sensitivity_min, specificity_min),
      rogan_gladen(rate_max, sensitivity_max, specificity_min), rogan_gladen(rate_max, sensitivity_min, specificity_max),
      rogan_gladen(rate_max, sensitivity_max, specificity_max)) AS rg_max,
    CASE WHEN ppi > 0 AND ppi < 1 AND ppi_se > 0 THEN n_judged ELSE n_labelled END AS ppi_size_max,
    t_two_sided_quantile(0.05, judge_df) AS judge_t,
    t_two_sided_quantile(0.05, labelled_df) AS t
  FROM measured
),
sized AS (
  SELECT
    *,
    effective_size(compliance, n_judged, compliance_se) AS judge_size,
    effective_size(people, n_labelled, people_se) AS people_size,
    effective_size(ppi_inside, ppi_size_max, ppi_general_se) AS ppi_size,
    CASE WHEN n_label_true >= 5 AND n_label_false >= 5 AND rg_general_se > 0 THEN t * rg_general_se END AS rg_reach
  FROM errors
)
SELECT
  study, template_id, provider, request_model, thinking, candidate,
  n_rubrics,
  n_rubrics_labelled,
  n_judged,
  n_labelled,
  n_unlabelled,
  n_label_true,
  n_label_false,
  n_null,
  n_null_labelled,
  compliance,
  compliance_se,
  wilson_lo(compliance * judge_size, judge_size, judge_t) AS compliance_lo,
  wilson_hi(compliance * judge_size, judge_size, judge_t) AS compliance_hi,
  wilson_lo(n_compliant, n_judged) AS compliance_lo_these_statements,
  wilson_hi(n_compliant, n_judged) AS compliance_hi_these_statements,
  n_compliant / (n_judged + n_null) AS compliance_min,
  (n_compliant + n_null) / (n_judged + n_null) AS compliance_max,
  people AS people_compliance,
  people_se AS people_compliance_se,
  wilson_lo(people * people_size, people_size, t) AS people_compliance_lo,
  wilson_hi(people * people_size, people_size, t) AS people_compliance_hi,
  wilson_lo(n_label_true, n_labelled) AS people_compliance_lo_these_statements,
  wilson_hi(n_label_true, n_labelled) AS people_compliance_hi_these_statements,
  sensitivity,
  specificity,
  ppi_weight,
  CASE WHEN ppi IS NOT NULL THEN ppi_inside END AS ppi_compliance,
  ppi_general_se AS ppi_compliance_se,
  wilson_lo(ppi_inside * ppi_size, ppi_size, t) AS ppi_compliance_lo,
  wilson_hi(ppi_inside * ppi_size, ppi_size, t) AS ppi_compliance_hi,
  ppi_se AS ppi_compliance_se_these_statements,
  CASE WHEN n_labelled >= 5 AND ppi_se > 0 THEN greatest(0.0, ppi - 1.959963984540054 * ppi_se) END
    AS ppi_compliance_lo_these_statements,
  CASE WHEN n_labelled >= 5 AND ppi_se > 0 THEN least(1.0, ppi + 1.959963984540054 * ppi_se) END
    AS ppi_compliance_hi_these_statements,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi_min)) END AS ppi_compliance_min,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi_max)) END AS ppi_compliance_max,
  CASE WHEN n_labelled < 5 THEN 'labels' WHEN n_rubrics_labelled < 5 THEN 'statements' END AS ppi_lacks,
  CAST(5 AS BIGINT) AS ppi_n_labels,
  CASE WHEN rg IS NOT NULL THEN greatest(0.0, least(1.0, rg)) END AS rogan_gladen_compliance,
  rg_general_se AS rogan_gladen_compliance_se,
  CASE WHEN rg_reach > 0 THEN greatest(0.0, rg - rg_reach) END AS rogan_gladen_compliance_lo,
  CASE WHEN rg_reach > 0 THEN least(1.0, rg + rg_reach) END AS rogan_gladen_compliance_hi,
  rg_se AS rogan_gladen_compliance_se_these_statements,
  CASE WHEN n_label_true >= 5 AND n_label_false >= 5 AND rg_se > 0
       THEN greatest(0.0, rg - 1.959963984540054 * rg_se) END AS rogan_gladen_compliance_lo_these_statements,
  CASE WHEN n_label_true >= 5 AND n_label_false >= 5 AND rg_se > 0
       THEN least(1.0, rg + 1.959963984540054 * rg_se) END AS rogan_gladen_compliance_hi_these_statements,
  CASE WHEN is_rg_closed AND rg IS NOT NULL THEN greatest(0.0, least(1.0, rg_min)) END AS rogan_gladen_compliance_min,
  CASE WHEN is_rg_closed AND rg IS NOT NULL THEN greatest(0.0, least(1.0, rg_max)) END AS rogan_gladen_compliance_max,
  CASE WHEN n_label_true < 5 OR n_label_false < 5 THEN 'labels'
       WHEN rg IS NULL THEN 'judge'
       WHEN n_rubrics_labelled < 5 THEN 'statements' END AS rogan_gladen_lacks,
  CAST(ceil(9.153519 * (n_labelled + 2) / (1 + least(n_label_true, n_label_false))) AS BIGINT)
    AS rogan_gladen_n_labels
FROM sized;
