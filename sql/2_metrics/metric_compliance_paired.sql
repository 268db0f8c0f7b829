-- grain: study, template_id, judge, candidate_a, candidate_b
-- question: Of two candidate models that answered the same inputs, which one complies more often, by one judge?
-- source: item_status of task compliance, the inputs on which both have a verdict for a statement, an output counting by
--   the part of a judge's verdicts on it that are true, without criteria that take points (below 0 in criteria_points).
--   The row of provider `panel` compares by the majority of the judges.
-- estimators:
--   - rate_a, rate_b: the share of these inputs on which a, and b, complies, all repeats counted
--   - diff: rate of a - rate of b
--   - diff_se: for statements in general, clustered by them (CR1), where they share inputs in two ways, by inputs too
--     (shared_variance), and no less than that of inputs (matched_variance)
--   - diff_lo, diff_hi, p_diff: with it, all by t over n_rubrics - 1, or over inputs - 1 where these are fewer, the ends
--     cut at -1 and 1
--   - q_bh: Benjamini and Hochberg's, over p_diff of the study's comparisons that have one: of all models and their
--     panel; people's are a family of their own
--   - diff_mde: the smallest difference, for statements in general, that p_diff would have found with power of about
--     0.8 (matched_difference_mde)
--   - diff_se_cr0: clustered by statement without CR1's correction
--   - diff_se_naive: as if inputs were independent
--   - p_diff_these_statements, diff_lo_these_statements, diff_hi_these_statements: for other inputs under the same
--     statements, inputs being draws: the exact McNemar test of n_a_only against n_b_only and its inversion
--     (matched_difference); where a model has several outputs for an input (unit_id), statements share them, or repeats split, the
--     sign-flip test of the inputs' differences (sign_flip_z) and its inversion. Either way p is below 0.05 exactly
--     where 0 is outside
-- reference: clustered, matched_difference, mcnemar, student_t.
-- nulls: what is of statements in general is NULL below 5 of them or of inputs, diff_mde also where so few would reveal no difference, not
--   even one of 1, diff_se below 2, a p where no input tells the two
--   apart; q_bh with p_diff; with several outputs or statements for an input and fewer than 6 inputs that tell them
--   apart, what is of these statements, the interval also where all inputs differ alike, or a few hold nearly all.
-- note: where a model has several outputs for an input they are averaged; n_a_only counts where the average of a is
--   higher.

CREATE OR REPLACE VIEW metric_compliance_paired AS
WITH rates AS (
  SELECT
    item_status.study, template_id, item_status.rubric_id, judge(item_status) AS judge, unit_id, candidate,
    avg(true_part) AS rate,
    min(item) AS an_output
  FROM item_status
  LEFT JOIN criteria_points
    ON criteria_points.study = item_status.study
    AND criteria_points.rubric_id = item_status.rubric_id
  WHERE task = 'compliance' AND candidate IS NOT NULL AND coalesce(points, 0) >= 0
  GROUP BY item_status.study, template_id, item_status.rubric_id, judge, unit_id, candidate
),
paired AS (
  SELECT
    a.study, a.template_id, a.rubric_id, a.judge,
    a.candidate AS candidate_a, b.candidate AS candidate_b,
    CASE a.unit_id WHEN '' THEN chr(31) || a.rubric_id ELSE a.unit_id || chr(31) || a.an_output END AS input,
    a.rate AS rate_a, b.rate AS rate_b, a.rate - b.rate AS diff
  FROM rates AS a
  JOIN rates AS b
    ON b.study = a.study
    AND b.template_id = a.template_id
    AND b.rubric_id = a.rubric_id
    AND b.judge = a.judge
    AND b.unit_id = a.unit_id
    AND b.candidate > a.candidate
  WHERE a.rate IS NOT NULL AND b.rate IS NOT NULL
),
drawn AS (
  SELECT
    *,
    CAST(sum(diff) OVER inputs AS DOUBLE) AS input_diff,
    CAST(count(*) OVER inputs AS DOUBLE) AS input_n
  FROM paired
  WINDOW inputs AS (PARTITION BY study, template_id, judge, candidate_a, candidate_b, input)
),
-- a sum over inputs of their squares is one over rows of what the input has times what the row has
by_rubric AS (
  SELECT
    study, template_id, rubric_id, judge, candidate_a, candidate_b,
    count(*) AS n,
    sum(rate_a) AS sum_a,
    sum(rate_b) AS sum_b,
    sum(diff) AS sum_diff,
    sum(diff * diff) AS sum_squares,
    count(*) FILTER (WHERE diff > 0) AS n_a_only,
    count(*) FILTER (WHERE diff < 0) AS n_b_only,
    count(*) FILTER (WHERE diff NOT IN (-1, 0, 1)) AS n_parts,
    max(input_n) AS n_of_input,
    sum(1 / input_n) AS n_inputs,
    coalesce(sum(CASE WHEN input_diff <> 0 THEN 1 / input_n END), 0) AS n_leads,
    sum(input_diff * diff) AS diff_diff,
    sum(input_n * diff) AS diff_n,
    sum(input_n) AS n_n
  FROM drawn
  GROUP BY study, template_id, rubric_id, judge, candidate_a, candidate_b
),
centred AS (
  SELECT
    *,
    sum_diff - n * (sum(sum_diff) OVER whole / sum(n) OVER whole) AS residual
  FROM by_rubric
  WINDOW whole AS (PARTITION BY study, template_id, judge, candidate_a, candidate_b)
),
sums AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b,
    count(*) AS n_rubrics,
    CAST(sum(n) AS BIGINT) AS n,
    CAST(sum(n_a_only) AS BIGINT) AS n_a_only,
    CAST(sum(n_b_only) AS BIGINT) AS n_b_only,
    CAST(sum(sum_diff) AS DOUBLE) AS total_diff,
    CAST(sum(sum_squares) AS DOUBLE) AS total_squares,
    sum(n_parts) = 0 AND max(n_of_input) <= 1 AS is_one_draw,
    CAST(round(sum(n_inputs)) AS BIGINT) AS n_inputs,
    CAST(round(sum(n_leads)) AS BIGINT) AS n_leads,
    CAST(sum(diff_diff) AS DOUBLE) AS diff_diff,
    CAST(sum(diff_n) AS DOUBLE) AS diff_n,
    CAST(sum(n_n) AS DOUBLE) AS n_n,
    sum(sum_a) / sum(n) AS rate_a,
    sum(sum_b) / sum(n) AS rate_b,
    sum(sum_diff) / sum(n) AS diff,
    sqrt(sum(residual * residual)) / sum(n) AS diff_se_cr0,
    -- what is left of equal differences by rounding is none
    sum(sum_squares) / sum(n) - power(sum(sum_diff) / sum(n), 2) AS spread
  FROM centred
  GROUP BY study, template_id, judge, candidate_a, candidate_b
),
measured AS (
  SELECT
    *,
    -- (total - n d)^2 <= z^2 (the inputs' squares about it), a quadratic in d
    CAST(n AS DOUBLE) * n - 3.841458820694124 * n_n AS curve,
    n * total_diff - 3.841458820694124 * diff_n AS slope,
    total_diff * total_diff - 3.841458820694124 * diff_diff AS level,
    diff_se_cr0 * diff_se_cr0 * n_rubrics / nullif(n_rubrics - 1, 0)
      + shared_variance(diff_diff - 2 * diff * diff_n + diff * diff * n_n, n_inputs, total_squares - total_diff * diff, n, n)
      AS by_statement,
    matched_variance(total_squares, total_diff, n) AS by_input,
    sqrt(CASE WHEN spread > 1e-15 THEN spread ELSE 0.0 END / n) AS diff_se_naive,
    CASE WHEN n_rubrics >= 5 AND (n_inputs >= 5 OR n_inputs = n) THEN least(n_rubrics, n_inputs) - 1 END AS df
  FROM sums
),
staged AS (
  SELECT
    *,
    CASE WHEN by_statement IS NOT NULL THEN sqrt(clustered_variance(by_statement, by_input, 1)) END AS diff_se,
    t_two_sided_95(df) AS t_ends,
    matched_difference(n_a_only, n_b_only, n) AS ends,
    sign_flip_z(total_diff, 0, diff_diff, 0, 0) AS flip_z,
    CASE WHEN n_leads >= 6 AND curve > 0 AND slope * slope - curve * level > 1e-12 * slope * slope
         THEN sqrt(slope * slope - curve * level) / curve END AS flip_width
  FROM measured
),
tested AS (
  SELECT *, CASE WHEN n_a_only + n_b_only > 0 THEN t_two_sided(diff / diff_se, df) END AS p_diff
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
  n_rubrics, n, n_a_only, n_b_only, rate_a, rate_b,
  diff,
  diff_se,
  share_difference(diff - t_ends * diff_se) AS diff_lo,
  share_difference(diff + t_ends * diff_se) AS diff_hi,
  p_diff,
  CASE WHEN p_diff IS NOT NULL
       THEN least(1.0, min(p_diff * n_p / p_rank) OVER (
         PARTITION BY study, judge.provider = 'human' ORDER BY p_rank DESC)) END AS q_bh,
  matched_difference_mde((t_ends + 0.8416212335729143 + 0.3594365 / df) * diff_se, total_squares, total_diff, n)
    AS diff_mde,
  diff_se_cr0,
  diff_se_naive,
  CASE WHEN is_one_draw THEN ends.lo ELSE share_difference(slope / curve - flip_width) END AS diff_lo_these_statements,
  CASE WHEN is_one_draw THEN ends.hi ELSE share_difference(slope / curve + flip_width) END AS diff_hi_these_statements,
  CASE WHEN is_one_draw THEN mcnemar_exact(n_a_only, n_b_only)
       WHEN n_leads >= 6 THEN normal_two_sided(flip_z) END AS p_diff_these_statements
FROM ranked;
