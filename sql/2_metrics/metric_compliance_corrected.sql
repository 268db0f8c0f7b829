-- grain: study, template_id, judge, candidate
-- question: How often does a candidate model comply, once the judge's errors are corrected by people's labels?
-- source: item_status over all statements, an output counting by the part of a judge's verdicts on it that are true,
--   with the labels of `truths`; n_rubrics statements have a judged output, n_rubrics_labelled a labelled one. On
--   n_label_drawn of the n_labelled people are drawn, such as two who differ: such a label is 1/2, as left out it would
--   leave those that are easy to label, which are no random part.
-- estimators:
--   - compliance: the judge's own rate over all
--   - compliance_min, compliance_max: what the n_null outputs, answered without a verdict and out of the rate, leave
--     open: all of them failed, or all complied
--   - people_compliance: the rate of the labels alone, of the labelled outputs
--   - effective_labels: how many labels of one weight are worth the n_labelled (Kish 1965); each counts by its weight
--     in `truths`, in all figures but the numbers of labels
--   - sensitivity, specificity: of the judge's verdicts on the n_labelled outputs, n_label_true and n_label_false, each
--     that is drawn being half of either
--   - ppi_compliance: PPI++ (prediction_powered), to be preferred where the labelled outputs are a random part of all,
--     or of each stratum of them: those who drew the labels by `label` have the strata on record, and of others nobody
--     knows
--   - ppi_weight: how far the judge is believed
--   - ppi_compliance_min, ppi_compliance_max, rogan_gladen_compliance_min, rogan_gladen_compliance_max: what the n_null
--     outputs leave open, n_null_labelled of which have a label that then counts: whatever the judge says of them,
--     PPI++ with this weight, and Rogan-Gladen, are inside
--   - rogan_gladen_compliance: the judge's rate on the n_unlabelled outputs, corrected by its sensitivity and
--     specificity, for labels that were collected elsewhere, on outputs as hard for it: not on those that judges differ
--     on (five times as likely to be labelled, without weights, of a true .76 it was .93 on average; PPI++ was .75)
--   - compliance_se, people_compliance_se, ppi_compliance_se, rogan_gladen_compliance_se: for statements in general,
--     clustered by statement (CR1), where statements share outputs, or prompts, in two ways, by these too
--     (shared_variance), and the ends _lo and _hi with them: the first three as wilson_clustered, the last by t, cut
--     off at 0 and 1, none less than that of outputs as draws. Labels that agree count as effective_labels observations
--   - compliance_lo_these_statements, compliance_hi_these_statements, people_compliance_lo_these_statements,
--     people_compliance_hi_these_statements, ppi_compliance_se_these_statements, ppi_compliance_lo_these_statements,
--     ppi_compliance_hi_these_statements, rogan_gladen_compliance_se_these_statements,
--     rogan_gladen_compliance_lo_these_statements, rogan_gladen_compliance_hi_these_statements: for other outputs on
--     the same statements, outputs being draws: Wilson, of halves and of repeats that split wilson_mean, and for the
--     corrected the normal interval cut off at 0 and 1; where statements share them, clustered by output or prompt:
--     wilson_clustered, and t
--   - ppi_lacks, rogan_gladen_lacks: why there is no interval for statements in general: labels, statements (labelled
--     ones), prompts (labelled ones, which statements share), or judge (it says the same whatever the truth is)
--   - ppi_n_labels, rogan_gladen_n_labels: how many labels, spread over five statements or more, would do: 5, and for
--     Rogan-Gladen as many as have 5 of the rarer label in 19 of 20 draws, at the share (k + 1) / (n + 2) of it
-- reference: PPI++ and Rogan-Gladen as in prediction_powered and rogan_gladen; clustered by the same linearisations;
--   Cameron, Gelbach and Miller 2011 (two ways); clustered, wilson_clustered.
-- nulls: no interval where fewer than 5 outputs (for Rogan-Gladen 5 of either label) are labelled, for statements in
--   general where labels are on fewer than 5 of them, or of the prompts that they share, for these statements where the
--   labelled show no spread: the error would be a number from nothing. rogan_gladen_compliance is NULL where the
--   judge's sensitivity and specificity add up to 1.05 or less, and so are its bounds where they may do so.
-- note: a prompt with its outputs is what statements share; the outputs of one that is of one statement are draws of
--   their own.

CREATE OR REPLACE VIEW metric_compliance_corrected AS
WITH judged AS (
  SELECT
    item_status.study, item_status.template_id, item_status.rubric_id, judge(item_status) AS judge,
    item_status.candidate, item_status.item,
    coalesce(nullif(item_status.unit_id, ''), item_status.item) AS prompt,
    item_status.true_part AS f,
    truths.share AS y,
    truths.weight AS w
  FROM item_status
  LEFT JOIN truths
    ON truths.study = item_status.study
    AND truths.task = item_status.task
    AND truths.rubric_id = item_status.rubric_id
    AND truths.unit_id = item_status.unit_id
    AND truths.item_lo = item_status.item
    AND coalesce(truths.turn_no, -1) = coalesce(item_status.turn_no, -1)
  WHERE item_status.task = 'compliance'
    AND (item_status.true_part IS NOT NULL OR (item_status.value IS NULL AND item_status.status <> 'pending'))
    AND item_status.provider <> 'human'
),
-- what a statement and a prompt have in common; a prompt that statements share is known by its outputs
inputs AS MATERIALIZED (
  SELECT
    study, template_id, rubric_id, judge, candidate, prompt,
    min(item) AS an_output,
    count(f) AS judged_here,
    count(f + y) AS labelled_here,
    count(f) FILTER (WHERE y = 1) AS label_true_here,
    count(f) FILTER (WHERE y = 0) AS label_false_here,
    count(*) - count(f) AS null_here,
    count(CASE WHEN f IS NULL THEN y END) AS null_labelled_here,
    coalesce(sum(CASE WHEN f IS NULL THEN w * y END), 0) AS null_true_here,
    coalesce(sum(CASE WHEN f IS NULL THEN w * (1 - y) END), 0) AS null_false_here,
    coalesce(sum(f), 0) AS compliant_here,
    coalesce(sum(f * f), 0) AS compliant_squares_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f END), 0) AS labelled_compliant_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f * f END), 0) AS labelled_squares_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN y END), 0) AS said_true_here,
    -- by the labels' weights, and by their squares
    coalesce(sum(CASE WHEN f + y IS NOT NULL THEN w END), 0) AS w_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * y END), 0) AS true_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * (1 - y) END), 0) AS false_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN w * f END), 0) AS f_here,
    coalesce(sum(w * f * y), 0) AS both_true_here,
    coalesce(sum(w * (1 - f) * (1 - y)), 0) AS both_false_here,
    coalesce(sum(CASE WHEN f + y IS NOT NULL THEN w * w END), 0) AS q_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * w * y END), 0) AS qy_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN w * w * f END), 0) AS qf_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * w * y * y END), 0) AS qyy_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN w * w * f * f END), 0) AS qff_here,
    coalesce(sum(w * w * f * y), 0) AS qyf_here
  FROM judged
  GROUP BY study, template_id, rubric_id, judge, candidate, prompt
),
totals AS (
  SELECT
    study, template_id, judge, candidate,
    CAST(sum(judged_here) AS BIGINT) AS n_judged,
    CAST(sum(labelled_here) AS BIGINT) AS n_labelled,
    CAST(sum(label_true_here) AS BIGINT) AS n_label_true,
    CAST(sum(label_false_here) AS BIGINT) AS n_label_false,
    CAST(sum(null_here) AS BIGINT) AS n_null,
    CAST(sum(null_labelled_here) AS BIGINT) AS n_null_labelled,
    sum(labelled_here) / CAST(nullif(sum(w_here), 0) AS DOUBLE) AS scale,
    sum(null_true_here) AS null_true,
    sum(null_false_here) AS null_false,
    round(sum(compliant_here), 9) AS n_compliant,
    round(sum(compliant_squares_here), 9) AS compliant_squares,
    round(sum(labelled_compliant_here), 9) AS n_labelled_compliant,
    round(sum(labelled_squares_here), 9) AS labelled_squares,
    sum(said_true_here) AS said_true,
    sum(w_here) AS w_sum,
    sum(true_here) AS true_sum,
    sum(false_here) AS false_sum,
    sum(f_here) AS f_sum,
    sum(both_true_here) AS both_true,
    sum(both_false_here) AS both_false,
    sum(q_here) AS q_sum,
    sum(qy_here) AS qy_sum,
    sum(qf_here) AS qf_sum,
    sum(qyy_here) AS qyy_sum,
    sum(qff_here) AS qff_sum,
    sum(qyf_here) AS qyf_sum
  FROM inputs
  GROUP BY study, template_id, judge, candidate
  HAVING sum(judged_here) > 0
),
-- with weights that add up to the number of labels
scaled AS (
  SELECT
    *,
    round(coalesce(scale * true_sum, 0.0), 9) AS label_true, round(coalesce(scale * false_sum, 0.0), 9) AS label_false,
    round(coalesce(scale, 0.0) * f_sum, 9) AS f,
    coalesce(scale * scale, 0.0) * q_sum AS q, coalesce(scale * scale, 0.0) * qy_sum AS qy,
    coalesce(scale * scale, 0.0) * qf_sum AS qf, coalesce(scale * scale, 0.0) * qyy_sum AS qyy,
    coalesce(scale * scale, 0.0) * qff_sum AS qff, coalesce(scale * scale, 0.0) * qyf_sum AS qyf
  FROM totals
),
rates AS (
  SELECT
    *,
    n_judged - n_labelled AS n_unlabelled,
    n_label_true + n_label_false = n_labelled AS is_whole,
    n_labelled * n_labelled / nullif(q, 0) AS effective_labels,
    n_compliant / nullif(n_judged, 0) AS compliance,
    label_true / nullif(n_labelled, 0) AS people,
    true_sum * true_sum / nullif(qyy_sum, 0) AS n_true_effective,
    false_sum * false_sum / nullif(q_sum - 2 * qy_sum + qyy_sum, 0) AS n_false_effective,
    both_true / nullif(true_sum, 0) AS sensitivity,
    both_false / nullif(false_sum, 0) AS specificity,
    (n_compliant - f) / nullif(n_judged - n_labelled, 0) AS rate,
    -- an output's own variance: p (1 - p) without parts
    n_compliant - n_compliant * n_compliant / nullif(n_judged, 0) + compliant_squares - n_compliant AS judge_spread,
    qyy - label_true / nullif(n_labelled, 0) * (2 * qy - label_true / nullif(n_labelled, 0) * q) AS people_spread,
    ppi_weight(n_labelled, n_judged, label_true, f, q, qy, qf, qff, qyf, n_compliant, compliant_squares) AS weight
  FROM scaled
),
corrected AS (
  SELECT *, rogan_gladen(rate, sensitivity, specificity) AS rg
  FROM rates
),
moved AS (
  SELECT
    inputs.study, inputs.template_id, inputs.rubric_id, inputs.judge,
    inputs.candidate, prompt, an_output, judged_here, labelled_here,
    (compliant_here - judged_here * compliance) / n_judged AS judge_moved,
    scale * (true_here - w_here * people) / nullif(n_labelled, 0) AS people_moved,
    ppi_moved(coalesce(scale * w_here, 0.0), judged_here, coalesce(scale * true_here, 0.0), coalesce(scale * f_here, 0.0),
      compliant_here, n_labelled, n_judged, label_true, f, n_compliant, weight) AS ppi_moved,
    rogan_gladen_moved(compliant_here - coalesce(scale * f_here, 0.0), judged_here - coalesce(scale * w_here, 0.0),
      both_true_here, true_here, both_false_here, false_here, rate, n_unlabelled, sensitivity, true_sum, specificity,
      false_sum, rg) AS rg_moved
  FROM inputs
  JOIN corrected
    ON corrected.study = inputs.study
    AND corrected.template_id = inputs.template_id
    AND corrected.judge = inputs.judge
    AND coalesce(corrected.candidate, '') = coalesce(inputs.candidate, '')
),
-- by statement, where prompt is NULL, and by prompt, where rubric_id is
clusters AS (
  SELECT
    study, template_id, rubric_id, judge, candidate, prompt,
    sum(judged_here) > 0 AS is_judged,
    sum(labelled_here) > 0 AS is_labelled,
    count(*) FILTER (WHERE judged_here > 0) AS n_cells,
    sum(judge_moved) AS judge_moved,
    sum(judge_moved * judge_moved) AS judge_cells,
    sum(people_moved) AS people_moved,
    sum(people_moved * people_moved) AS people_cells,
    sum(ppi_moved) AS ppi_moved,
    sum(ppi_moved * ppi_moved) AS ppi_cells,
    sum(rg_moved) AS rg_moved,
    sum(rg_moved * rg_moved) AS rg_cells
  FROM moved
  GROUP BY GROUPING SETS (
    (study, template_id, judge, candidate, rubric_id),
    (study, template_id, judge, candidate, prompt, an_output)
  )
),
spread AS (
  SELECT
    study, template_id, judge, candidate,
    count(*) FILTER (WHERE prompt IS NULL AND is_judged) AS n_rubrics,
    count(*) FILTER (WHERE prompt IS NULL AND is_labelled) AS n_rubrics_labelled,
    count(*) FILTER (WHERE rubric_id IS NULL AND is_judged) AS n_prompts,
    count(*) FILTER (WHERE rubric_id IS NULL AND is_labelled) AS n_prompts_labelled,
    CAST(sum(n_cells) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_cells,
    sum(judge_moved * judge_moved) FILTER (WHERE prompt IS NULL) AS judge_squares,
    sum(judge_moved * judge_moved) FILTER (WHERE rubric_id IS NULL) AS judge_by_prompt,
    sum(judge_cells) FILTER (WHERE prompt IS NULL) AS judge_by_cell,
    sum(people_moved * people_moved) FILTER (WHERE prompt IS NULL) AS people_squares,
    sum(people_moved * people_moved) FILTER (WHERE rubric_id IS NULL) AS people_by_prompt,
    sum(people_cells) FILTER (WHERE prompt IS NULL) AS people_by_cell,
    sum(ppi_moved * ppi_moved) FILTER (WHERE prompt IS NULL) AS ppi_squares,
    sum(ppi_moved * ppi_moved) FILTER (WHERE rubric_id IS NULL) AS ppi_by_prompt,
    sum(ppi_cells) FILTER (WHERE prompt IS NULL) AS ppi_by_cell,
    sum(rg_moved * rg_moved) FILTER (WHERE prompt IS NULL) AS rg_squares,
    sum(rg_moved * rg_moved) FILTER (WHERE rubric_id IS NULL) AS rg_by_prompt,
    sum(rg_cells) FILTER (WHERE prompt IS NULL) AS rg_by_cell
  FROM clusters
  GROUP BY study, template_id, judge, candidate
),
cells AS (
  SELECT
    corrected.*, weight AS ppi_weight, n_rubrics, n_rubrics_labelled, n_prompts, n_prompts_labelled, n_cells,
    judge_squares, judge_by_prompt, judge_by_cell,
    people_squares, people_by_prompt, people_by_cell,
    ppi_squares, ppi_by_prompt, ppi_by_cell,
    rg_squares, rg_by_prompt, rg_by_cell
  FROM corrected
  JOIN spread
    ON spread.study = corrected.study
    AND spread.template_id = corrected.template_id
    AND spread.judge = corrected.judge
    AND coalesce(spread.candidate, '') = coalesce(corrected.candidate, '')
),
-- what the judge may have said of the n_null outputs: of the unlabelled, and of those that people called true and false
opened AS (
  SELECT
    *,
    n_unlabelled + n_null - n_null_labelled AS unlabelled_in_all,
    n_labelled + n_null_labelled AS labelled_in_all,
    (n_labelled + n_null_labelled) / CAST(nullif(w_sum + null_true + null_false, 0) AS DOUBLE) AS scale_in_all,
    both_true / nullif(true_sum + null_true, 0) AS sensitivity_min,
    (both_true + null_true) / nullif(true_sum + null_true, 0) AS sensitivity_max,
    both_false / nullif(false_sum + null_false, 0) AS specificity_min,
    (both_false + null_false) / nullif(false_sum + null_false, 0) AS specificity_max
  FROM cells
),
measured AS (
  SELECT
    *,
    scale_in_all * (true_sum + null_true - ppi_weight * f_sum) AS ppi_rest,
    scale_in_all * (null_true + null_false) AS null_in_all,
    (n_compliant + n_null_labelled - coalesce(scale_in_all * (f_sum + null_true + null_false), 0.0))
      / nullif(unlabelled_in_all, 0) AS rate_min,
    (n_compliant + n_null - n_null_labelled - coalesce(scale_in_all * f_sum, 0.0)) / nullif(unlabelled_in_all, 0) AS rate_max,
    ppi_mean(n_labelled, n_judged, label_true, f, n_compliant, ppi_weight) AS ppi,
    ppi_mean_se(n_labelled, n_judged, label_true, f, q, qy, qf, qyy, qff, qyf, n_labelled_compliant, labelled_squares,
      n_compliant, compliant_squares, ppi_weight) AS ppi_se,
    CASE WHEN compliant_squares = n_compliant AND is_whole
         THEN rogan_gladen_se(least(1.0::DOUBLE, greatest(0.0::DOUBLE, rate)), n_unlabelled,
           sensitivity, n_true_effective, specificity, n_false_effective)
         ELSE sqrt(rg_by_cell) END AS rg_se,
    sqrt(CASE WHEN judge_spread > 1e-9 THEN judge_spread ELSE 0.0 END) / n_judged AS judge_se,
    sqrt(CASE WHEN people_spread > 1e-9 THEN people_spread ELSE 0.0 END) / n_labelled AS people_own_se,
    CASE WHEN n_rubrics > 1 THEN judge_squares * n_rubrics / (n_rubrics - 1) END AS judge_clustered,
    CASE WHEN n_rubrics_labelled > 1 THEN n_rubrics_labelled / (n_rubrics_labelled - 1) END AS cr1,
    n_cells > n_prompts AS is_shared,
    CASE WHEN n_cells > n_prompts THEN n_prompts_labelled ELSE n_cells END AS g,
    CASE WHEN n_cells > n_prompts THEN least(n_rubrics, n_prompts) ELSE n_rubrics END AS n_draws,
    CASE WHEN n_cells > n_prompts THEN least(n_rubrics_labelled, n_prompts_labelled) ELSE n_rubrics_labelled END
      AS n_draws_labelled
  FROM opened
),
-- either error: statements being drawn, and prompts too where these share them; or prompts alone
varied AS (
  SELECT
    *,
    mean_size(compliance, n_judged, judge_se) AS judge_most,
    mean_size(people, effective_labels, people_own_se) AS people_most,
    judge_clustered + shared_variance(judge_by_prompt, n_prompts, judge_by_cell, n_cells, 1) AS judge_variance,
    cr1 * people_squares + shared_variance(people_by_prompt, g, people_by_cell, n_cells, 1) AS people_variance,
    cr1 * ppi_squares + shared_variance(ppi_by_prompt, g, ppi_by_cell, n_cells, 1) AS ppi_variance,
    cr1 * rg_squares + shared_variance(rg_by_prompt, g, rg_by_cell, n_cells, 1) AS rg_variance,
    sqrt(CASE WHEN is_shared THEN judge_by_prompt * n_prompts / nullif(n_prompts - 1, 0) END) AS judge_these_se,
    sqrt(CASE WHEN is_shared THEN people_by_prompt * g / nullif(g - 1, 0) END) AS people_these_se,
    CASE WHEN NOT is_shared THEN ppi_se
         WHEN g > 1 THEN sqrt(greatest(ppi_by_prompt * g / (g - 1), ppi_se * ppi_se)) END AS ppi_these_se,
    CASE WHEN NOT is_shared THEN rg_se
         WHEN g > 1 THEN sqrt(greatest(rg_by_prompt * g / (g - 1), rg_se * rg_se)) END AS rg_these_se,
    CASE WHEN is_shared AND g >= 5 THEN g - 1 END AS these_df,
    CASE WHEN n_draws >= 5 THEN n_draws - 1 END AS judge_df,
    CASE WHEN n_draws_labelled >= 5 AND n_labelled >= 5 THEN n_draws_labelled - 1 END AS labelled_df
  FROM measured
),
errors AS (
  SELECT
    *,
    greatest(0.0, least(1.0, ppi)) AS ppi_inside,
    CASE WHEN judge_variance IS NOT NULL
         THEN sqrt(clustered_variance(judge_variance, judge_se * judge_se, 1)) END AS compliance_se,
    CASE WHEN people_variance IS NOT NULL
         THEN sqrt(clustered_variance(people_variance, people_own_se * people_own_se, 1)) END AS people_se,
    CASE WHEN ppi_variance IS NOT NULL THEN sqrt(clustered_variance(ppi_variance, ppi_se * ppi_se, 1)) END
      AS ppi_general_se,
    CASE WHEN rg_variance IS NOT NULL THEN sqrt(clustered_variance(rg_variance, rg_se * rg_se, 1)) END AS rg_general_se,
    coalesce(ppi_weight * rate_min, 0) + (ppi_rest - ppi_weight * null_in_all) / labelled_in_all AS ppi_min,
    coalesce(ppi_weight * rate_max, 0) + ppi_rest / labelled_in_all AS ppi_max,
    -- Rogan-Gladen goes one way with either error, whatever the other is: its ends are at the corners
    sensitivity_min + specificity_min > 1.05 AS is_rg_closed,
    least(rogan_gladen(rate_min, sensitivity_min, specificity_min), rogan_gladen(rate_min, sensitivity_max, specificity_min),
      rogan_gladen(rate_min, sensitivity_min, specificity_max), rogan_gladen(rate_min, sensitivity_max, specificity_max))
      AS rg_min,
    greatest(rogan_gladen(rate_max, sensitivity_min, specificity_min),
      rogan_gladen(rate_max, sensitivity_max, specificity_min), rogan_gladen(rate_max, sensitivity_min, specificity_max),
      rogan_gladen(rate_max, sensitivity_max, specificity_max)) AS rg_max,
    CASE WHEN ppi > 0 AND ppi < 1 AND ppi_se > 1e-9 THEN n_judged ELSE effective_labels END AS ppi_size_max,
    t_two_sided_95(judge_df) AS judge_t,
    t_two_sided_95(labelled_df) AS t,
    CASE WHEN is_shared THEN t_two_sided_95(these_df) ELSE 1.959963984540054::DOUBLE END AS these_t,
    CASE WHEN is_shared THEN wilson_clustered(compliance, judge_most, judge_these_se, n_prompts)
         WHEN compliant_squares = n_compliant
         THEN {'lo': wilson_lo(n_compliant, n_judged), 'hi': wilson_hi(n_compliant, n_judged)}
         ELSE wilson_mean(compliance, n_judged, judge_se * sqrt(n_judged / nullif(n_judged - 1, 0))) END AS judge_these,
    CASE WHEN is_shared THEN wilson_clustered(people, people_most, people_these_se, g)
         WHEN is_whole
         THEN {'lo': wilson_lo(people * effective_labels, effective_labels),
               'hi': wilson_hi(people * effective_labels, effective_labels)}
         ELSE wilson_mean(people, n_labelled, people_own_se * sqrt(n_labelled / nullif(n_labelled - 1, 0))) END
      AS people_these
  FROM varied
),
sized AS (
  SELECT
    *,
    mean_size(compliance, n_judged, compliance_se) AS judge_size,
    mean_size(people, effective_labels, people_se) AS people_size,
    effective_size(ppi_inside, ppi_size_max, ppi_general_se) AS ppi_size,
    CASE WHEN said_true >= 5 AND n_labelled - said_true >= 5 AND rg_general_se > 1e-9 THEN t * rg_general_se END AS rg_reach
  FROM errors
)
SELECT
  study, template_id, judge.*, candidate,
  n_rubrics,
  n_rubrics_labelled,
  n_judged,
  n_labelled,
  n_unlabelled,
  n_label_true,
  n_label_false,
  n_labelled - n_label_true - n_label_false AS n_label_drawn,
  effective_labels,
  n_null,
  n_null_labelled,
  compliance,
  compliance_se,
  wilson_lo(compliance * judge_size, judge_size, judge_t) AS compliance_lo,
  wilson_hi(compliance * judge_size, judge_size, judge_t) AS compliance_hi,
  judge_these.lo AS compliance_lo_these_statements,
  judge_these.hi AS compliance_hi_these_statements,
  n_compliant / (n_judged + n_null) AS compliance_min,
  (n_compliant + n_null) / (n_judged + n_null) AS compliance_max,
  people AS people_compliance,
  people_se AS people_compliance_se,
  wilson_lo(people * people_size, people_size, t) AS people_compliance_lo,
  wilson_hi(people * people_size, people_size, t) AS people_compliance_hi,
  people_these.lo AS people_compliance_lo_these_statements,
  people_these.hi AS people_compliance_hi_these_statements,
  sensitivity,
  specificity,
  ppi_weight,
  CASE WHEN ppi IS NOT NULL THEN ppi_inside END AS ppi_compliance,
  ppi_general_se AS ppi_compliance_se,
  wilson_lo(ppi_inside * ppi_size, ppi_size, t) AS ppi_compliance_lo,
  wilson_hi(ppi_inside * ppi_size, ppi_size, t) AS ppi_compliance_hi,
  ppi_these_se AS ppi_compliance_se_these_statements,
  CASE WHEN n_labelled >= 5 AND ppi_se > 1e-9 AND these_t > 0 THEN greatest(0.0, ppi - these_t * ppi_these_se) END
    AS ppi_compliance_lo_these_statements,
  CASE WHEN n_labelled >= 5 AND ppi_se > 1e-9 AND these_t > 0 THEN least(1.0, ppi + these_t * ppi_these_se) END
    AS ppi_compliance_hi_these_statements,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi_min)) END AS ppi_compliance_min,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi_max)) END AS ppi_compliance_max,
  CASE WHEN n_labelled < 5 THEN 'labels' WHEN n_rubrics_labelled < 5 THEN 'statements'
       WHEN labelled_df IS NULL THEN 'prompts' END AS ppi_lacks,
  CAST(5 AS BIGINT) AS ppi_n_labels,
  CASE WHEN rg IS NOT NULL THEN greatest(0.0, least(1.0, rg)) END AS rogan_gladen_compliance,
  rg_general_se AS rogan_gladen_compliance_se,
  CASE WHEN rg_reach > 0 THEN greatest(0.0, rg - rg_reach) END AS rogan_gladen_compliance_lo,
  CASE WHEN rg_reach > 0 THEN least(1.0, rg + rg_reach) END AS rogan_gladen_compliance_hi,
  rg_these_se AS rogan_gladen_compliance_se_these_statements,
  CASE WHEN said_true >= 5 AND n_labelled - said_true >= 5 AND rg_se > 1e-9 AND these_t > 0
       THEN greatest(0.0, rg - these_t * rg_these_se) END AS rogan_gladen_compliance_lo_these_statements,
  CASE WHEN said_true >= 5 AND n_labelled - said_true >= 5 AND rg_se > 1e-9 AND these_t > 0
       THEN least(1.0, rg + these_t * rg_these_se) END AS rogan_gladen_compliance_hi_these_statements,
  CASE WHEN is_rg_closed AND rg IS NOT NULL THEN greatest(0.0, least(1.0, rg_min)) END AS rogan_gladen_compliance_min,
  CASE WHEN is_rg_closed AND rg IS NOT NULL THEN greatest(0.0, least(1.0, rg_max)) END AS rogan_gladen_compliance_max,
  CASE WHEN said_true < 5 OR n_labelled - said_true < 5 THEN 'labels'
       WHEN rg IS NULL THEN 'judge'
       WHEN n_rubrics_labelled < 5 THEN 'statements'
       WHEN labelled_df IS NULL THEN 'prompts' END AS rogan_gladen_lacks,
  CAST(ceil(9.153519 * (n_labelled + 2) / (1 + least(said_true, n_labelled - said_true))) AS BIGINT)
    AS rogan_gladen_n_labels
FROM sized;
