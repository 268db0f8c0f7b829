-- grain: study, template_id, judge, candidate_a, candidate_b
-- question: How often do people prefer one candidate model to another, by a judge's verdicts corrected by their labels?
-- source: candidate_pairs over all statements, with what `truths` says of the same two outputs. A win is 1, a tie and a
--   pair whose orders disagree 1/2, by all votes of repeats, as in win_rate_half of metric_win_matrix. n_rubrics
--   statements have a pair in n_both, n_rubrics_labelled a labelled one. On n_label_drawn of the n_labelled people are
--   drawn, such as two who differ: such a label is the mean of what they say, as left out it would leave those that are
--   easy to label, which are no random part.
-- estimators:
--   - win_rate_half: the judge's own, over the n_both pairs
--   - win_rate_half_min, win_rate_half_max, ppi_win_rate_min, ppi_win_rate_max: what the n_missing pairs leave open,
--     n_missing_labelled of which have a label that then counts: whatever the judge says of them, win_rate_half, and
--     PPI++ with this weight, are inside
--   - people_win_rate: the mean of the labels alone, of the labelled pairs
--   - effective_labels: how many labels of one weight are worth the n_labelled (Kish 1965); each counts by its weight in
--     `truths`, in all figures but the numbers of labels
--   - ppi_win_rate: PPI++ (prediction_powered), of the n_both pairs if the labelled are a random part of them, or of each
--     stratum of them: those who drew the labels by `label` have the strata on record, and of others nobody knows
--   - ppi_weight: how far the judge is believed
--   - people_win_rate_se, ppi_win_rate_se: for statements in general, clustered by statement (CR1), where statements
--     share prompts in two ways, by prompts too (shared_variance); ppi_win_rate_lo and ppi_win_rate_hi with it, as
--     wilson_clustered. Labels that agree count as effective_labels observations of a rate
--   - people_win_rate_se_these_statements: sd / sqrt(n), where statements share prompts clustered by these
--   - ppi_win_rate_se_these_statements, ppi_win_rate_lo_these_statements, ppi_win_rate_hi_these_statements: for other
--     pairs on the same statements, pairs being draws, where statements share prompts these: normal, or t, cut off at 0
--     and 1
--   - ppi_lacks: why there is no interval for statements in general: labels (fewer than 5), statements (labelled ones),
--     or prompts (labelled ones, which statements share)
-- reference: PPI++ as in prediction_powered, clustered by the same linearisation; Cameron, Gelbach and Miller 2011 (two
--   ways); clustered, wilson_clustered. Rogan-Gladen is for yes and no only, and left out.
-- nulls: no interval where fewer than 5 pairs are labelled, for statements in general where labels are on fewer than 5
--   of them, or of the prompts that they share, for these statements where the labels show no spread; people_win_rate
--   and all of PPI++ are NULL without labels.

CREATE OR REPLACE VIEW metric_win_matrix_corrected AS
WITH judged AS (
  SELECT
    pairs.study, pairs.template_id, pairs.rubric_id, judge(pairs) AS judge,
    pairs.candidate_a, pairs.candidate_b, pairs.item_a,
    coalesce(nullif(pairs.unit_id, ''), pairs.item_a || chr(31) || pairs.item_b) AS prompt,
    0.5::DOUBLE + (pairs.part_a - pairs.part_b) / 2 AS f,
    pairs.winner = 'missing' AS is_missing,
    CASE WHEN pairs.winner = 'pending' THEN NULL
         WHEN pairs.item_a < pairs.item_b THEN truths.share ELSE 1 - truths.share END AS y,
    truths.weight AS w,
    truths.n_votes > 0 AND truths.truth IS NULL AS is_drawn
  FROM candidate_pairs AS pairs
  LEFT JOIN truths
    ON truths.study = pairs.study
    AND truths.task = 'pair'
    AND truths.rubric_id = pairs.rubric_id
    AND truths.unit_id = pairs.unit_id
    AND truths.item_lo = least(pairs.item_a, pairs.item_b)
    AND truths.item_hi = greatest(pairs.item_a, pairs.item_b)
  WHERE pairs.provider <> 'human'
),
-- what has no winner goes by HAVING: a filter on it costs thrice the planning, as it is copied through four views
inputs AS MATERIALIZED (
  SELECT
    study, template_id, rubric_id, judge, candidate_a, candidate_b, prompt,
    min(item_a) AS an_output,
    count(f) AS both_here,
    count(f + y) AS labelled_here,
    count(f + y) FILTER (WHERE is_drawn) AS drawn_here,
    count(*) FILTER (WHERE is_missing) AS missing_here,
    count(y) FILTER (WHERE is_missing) AS missing_labelled_here,
    coalesce(sum(CASE WHEN is_missing AND y IS NOT NULL THEN w END), 0) AS missing_w_here,
    coalesce(sum(CASE WHEN is_missing THEN w * y END), 0) AS missing_y_here,
    coalesce(sum(CASE WHEN f + y IS NOT NULL THEN w END), 0) AS w_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * y END), 0) AS y_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN w * f END), 0) AS f_here,
    coalesce(sum(CASE WHEN f + y IS NOT NULL THEN w * w END), 0) AS q_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * w * y END), 0) AS qy_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN w * w * f END), 0) AS qf_here,
    coalesce(sum(CASE WHEN f IS NOT NULL THEN w * w * y * y END), 0) AS qyy_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN w * w * f * f END), 0) AS qff_here,
    coalesce(sum(w * w * y * f), 0) AS qyf_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f END), 0) AS f_1_here,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f * f END), 0) AS ff_1_here,
    coalesce(sum(f), 0) AS fm_here,
    coalesce(sum(f * f), 0) AS ffm_here
  FROM judged
  GROUP BY study, template_id, rubric_id, judge, candidate_a, candidate_b, prompt
  HAVING count(*) FILTER (WHERE is_missing) + count(f) > 0
),
totals AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b,
    CAST(sum(both_here) AS BIGINT) AS n_both,
    CAST(sum(labelled_here) AS BIGINT) AS n_labelled,
    CAST(sum(drawn_here) AS BIGINT) AS n_label_drawn,
    CAST(sum(missing_here) AS BIGINT) AS n_missing,
    CAST(sum(missing_labelled_here) AS BIGINT) AS n_missing_labelled,
    sum(labelled_here) / CAST(nullif(sum(w_here), 0) AS DOUBLE) AS scale,
    sum(missing_w_here) AS missing_w,
    sum(missing_y_here) AS missing_y,
    sum(w_here) AS w_sum,
    sum(y_here) AS y_sum,
    sum(f_here) AS f_sum,
    sum(q_here) AS q_sum,
    sum(qy_here) AS qy_sum,
    sum(qf_here) AS qf_sum,
    sum(qyy_here) AS qyy_sum,
    sum(qff_here) AS qff_sum,
    sum(qyf_here) AS qyf_sum,
    sum(f_1_here) AS f_1,
    sum(ff_1_here) AS ff_1,
    sum(fm_here) AS fm,
    sum(ffm_here) AS ffm
  FROM inputs
  GROUP BY study, template_id, judge, candidate_a, candidate_b
  HAVING sum(both_here) > 0
),
-- with weights that add up to the number of labels
scaled AS (
  SELECT
    *,
    coalesce(scale, 0.0) * y_sum AS y, coalesce(scale, 0.0) * f_sum AS f,
    coalesce(scale * scale, 0.0) * q_sum AS q, coalesce(scale * scale, 0.0) * qy_sum AS qy,
    coalesce(scale * scale, 0.0) * qf_sum AS qf, coalesce(scale * scale, 0.0) * qyy_sum AS qyy,
    coalesce(scale * scale, 0.0) * qff_sum AS qff, coalesce(scale * scale, 0.0) * qyf_sum AS qyf,
    (n_labelled + n_missing_labelled) / CAST(nullif(w_sum + missing_w, 0) AS DOUBLE) AS scale_in_all
  FROM totals
),
weighed AS (
  SELECT *, ppi_weight(n_labelled, n_both, y, f, q, qy, qf, qff, qyf, fm, ffm) AS ppi_weight
  FROM scaled
),
moved AS (
  SELECT
    inputs.study, inputs.template_id, inputs.rubric_id, inputs.judge,
    inputs.candidate_a, inputs.candidate_b, prompt, an_output, both_here, labelled_here,
    (scale * y_here - scale * w_here * y / n_labelled) / nullif(n_labelled, 0) AS people_moved,
    ppi_moved(coalesce(scale * w_here, 0.0), both_here, coalesce(scale * y_here, 0.0), coalesce(scale * f_here, 0.0), fm_here,
      n_labelled, n_both, y, f, fm, ppi_weight) AS ppi_moved
  FROM inputs
  JOIN weighed
    ON weighed.study = inputs.study
    AND weighed.template_id = inputs.template_id
    AND weighed.judge = inputs.judge
    AND weighed.candidate_a = inputs.candidate_a
    AND weighed.candidate_b = inputs.candidate_b
),
-- by statement, where prompt is NULL, and by prompt, where rubric_id is
clusters AS (
  SELECT
    study, template_id, rubric_id, judge, candidate_a, candidate_b, prompt,
    sum(both_here) > 0 AS is_judged,
    sum(labelled_here) > 0 AS is_labelled,
    count(*) FILTER (WHERE both_here > 0) AS n_cells,
    sum(people_moved) AS people_moved,
    sum(people_moved * people_moved) AS people_cells,
    sum(ppi_moved) AS ppi_moved,
    sum(ppi_moved * ppi_moved) AS ppi_cells
  FROM moved
  GROUP BY GROUPING SETS (
    (study, template_id, judge, candidate_a, candidate_b, rubric_id),
    (study, template_id, judge, candidate_a, candidate_b, prompt, an_output)
  )
),
spread AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b,
    count(*) FILTER (WHERE prompt IS NULL AND is_judged) AS n_rubrics,
    count(*) FILTER (WHERE prompt IS NULL AND is_labelled) AS n_rubrics_labelled,
    count(*) FILTER (WHERE rubric_id IS NULL AND is_judged) AS n_prompts,
    count(*) FILTER (WHERE rubric_id IS NULL AND is_labelled) AS n_prompts_labelled,
    CAST(sum(n_cells) FILTER (WHERE prompt IS NULL) AS BIGINT) AS n_cells,
    sum(people_moved * people_moved) FILTER (WHERE prompt IS NULL) AS people_squares,
    sum(people_moved * people_moved) FILTER (WHERE rubric_id IS NULL) AS people_by_prompt,
    sum(people_cells) FILTER (WHERE prompt IS NULL) AS people_by_cell,
    sum(ppi_moved * ppi_moved) FILTER (WHERE prompt IS NULL) AS ppi_squares,
    sum(ppi_moved * ppi_moved) FILTER (WHERE rubric_id IS NULL) AS ppi_by_prompt,
    sum(ppi_cells) FILTER (WHERE prompt IS NULL) AS ppi_by_cell
  FROM clusters
  GROUP BY study, template_id, judge, candidate_a, candidate_b
),
cells AS (
  SELECT
    weighed.*, n_rubrics, n_rubrics_labelled, n_prompts, n_prompts_labelled, n_cells, people_squares, people_by_prompt,
    people_by_cell, ppi_squares, ppi_by_prompt, ppi_by_cell
  FROM weighed
  JOIN spread
    ON spread.study = weighed.study
    AND spread.template_id = weighed.template_id
    AND spread.judge = weighed.judge
    AND spread.candidate_a = weighed.candidate_a
    AND spread.candidate_b = weighed.candidate_b
),
measured AS (
  SELECT
    *,
    CASE WHEN n_labelled > 1
         THEN greatest(0.0, qyy - y / n_labelled * (2 * qy - y / n_labelled * q)) / (n_labelled - 1) / n_labelled END
      AS people_drawn,
    n_labelled * n_labelled / nullif(q, 0) AS effective_labels,
    ppi_mean(n_labelled, n_both, y, f, fm, ppi_weight) AS ppi,
    ppi_mean_se(n_labelled, n_both, y, f, q, qy, qf, qyy, qff, qyf, f_1, ff_1, fm, ffm, ppi_weight) AS ppi_se,
    n_both + n_missing - n_labelled - n_missing_labelled AS unlabelled_in_all,
    -- of all labelled pairs, those without a winner too, weights add up to their number
    scale_in_all * f_sum AS f_in_all,
    scale_in_all * missing_w AS missing_in_all,
    scale_in_all * (y_sum + missing_y - ppi_weight * f_sum) / nullif(n_labelled + n_missing_labelled, 0) AS ppi_rest,
    ppi_weight * scale_in_all * missing_w / nullif(n_labelled + n_missing_labelled, 0) AS ppi_turned,
    CASE WHEN n_rubrics_labelled > 1 THEN n_rubrics_labelled / (n_rubrics_labelled - 1) END AS cr1,
    n_cells > n_prompts AS is_shared,
    CASE WHEN n_cells > n_prompts THEN n_prompts_labelled ELSE n_cells END AS g,
    CASE WHEN n_cells > n_prompts THEN least(n_rubrics_labelled, n_prompts_labelled) ELSE n_rubrics_labelled END
      AS n_draws_labelled
  FROM cells
),
-- either error: statements being drawn, and prompts too where these share them; or prompts alone
varied AS (
  SELECT
    *,
    cr1 * people_squares + shared_variance(people_by_prompt, g, people_by_cell, n_cells, 1) AS people_variance,
    cr1 * ppi_squares + shared_variance(ppi_by_prompt, g, ppi_by_cell, n_cells, 1) AS ppi_variance,
    CASE WHEN NOT is_shared THEN sqrt(people_drawn)
         WHEN g > 1 THEN sqrt(greatest(people_by_prompt * g / (g - 1), people_drawn)) END AS people_these_se,
    CASE WHEN NOT is_shared THEN ppi_se
         WHEN g > 1 THEN sqrt(greatest(ppi_by_prompt * g / (g - 1), ppi_se * ppi_se)) END AS ppi_these_se,
    CASE WHEN is_shared AND g >= 5 THEN g - 1 END AS these_df,
    CASE WHEN n_draws_labelled >= 5 AND n_labelled >= 5 THEN n_draws_labelled - 1 END AS labelled_df
  FROM measured
),
errors AS (
  SELECT
    *,
    greatest(0.0, least(1.0, ppi)) AS ppi_inside,
    coalesce(ppi_weight * (fm - f_in_all + n_missing_labelled - missing_in_all) / nullif(unlabelled_in_all, 0), 0)
      + ppi_rest - ppi_turned AS ppi_min,
    coalesce(ppi_weight * (fm - f_in_all + n_missing - n_missing_labelled) / nullif(unlabelled_in_all, 0), 0) + ppi_rest
      AS ppi_max,
    CASE WHEN people_variance IS NOT NULL THEN sqrt(clustered_variance(people_variance, people_drawn, 1)) END
      AS people_se,
    CASE WHEN ppi_variance IS NOT NULL THEN sqrt(clustered_variance(ppi_variance, ppi_se * ppi_se, 1)) END
      AS ppi_general_se,
    CASE WHEN ppi > 0 AND ppi < 1 AND ppi_se > 1e-9 THEN ppi * (1 - ppi) / (ppi_se * ppi_se) ELSE effective_labels END AS ppi_size_max,
    t_two_sided_95(labelled_df) AS t,
    CASE WHEN is_shared THEN t_two_sided_95(these_df) ELSE 1.959963984540054::DOUBLE END AS these_t
  FROM varied
),
sized AS (
  SELECT *, effective_size(ppi_inside, ppi_size_max, ppi_general_se) AS ppi_size
  FROM errors
)
SELECT
  study, template_id, judge.*, candidate_a, candidate_b,
  n_rubrics,
  n_rubrics_labelled,
  n_both,
  n_labelled,
  n_label_drawn,
  effective_labels,
  n_missing,
  n_missing_labelled,
  fm / n_both AS win_rate_half,
  fm / (n_both + n_missing) AS win_rate_half_min,
  (fm + n_missing) / (n_both + n_missing) AS win_rate_half_max,
  y / nullif(n_labelled, 0) AS people_win_rate,
  people_se AS people_win_rate_se,
  people_these_se AS people_win_rate_se_these_statements,
  ppi_weight,
  CASE WHEN ppi IS NOT NULL THEN ppi_inside END AS ppi_win_rate,
  ppi_general_se AS ppi_win_rate_se,
  wilson_lo(ppi_inside * ppi_size, ppi_size, t) AS ppi_win_rate_lo,
  wilson_hi(ppi_inside * ppi_size, ppi_size, t) AS ppi_win_rate_hi,
  ppi_these_se AS ppi_win_rate_se_these_statements,
  CASE WHEN n_labelled >= 5 AND ppi_se > 1e-9 AND these_t > 0 THEN greatest(0.0, ppi - these_t * ppi_these_se) END
    AS ppi_win_rate_lo_these_statements,
  CASE WHEN n_labelled >= 5 AND ppi_se > 1e-9 AND these_t > 0 THEN least(1.0, ppi + these_t * ppi_these_se) END
    AS ppi_win_rate_hi_these_statements,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi_min)) END AS ppi_win_rate_min,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi_max)) END AS ppi_win_rate_max,
  CASE WHEN n_labelled < 5 THEN 'labels' WHEN n_rubrics_labelled < 5 THEN 'statements'
       WHEN labelled_df IS NULL THEN 'prompts' END AS ppi_lacks
FROM sized;
