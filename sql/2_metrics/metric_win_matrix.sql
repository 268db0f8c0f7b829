-- grain: study, template_id, judge, candidate_a, candidate_b
-- question: Which of two candidate models does a judge prefer over all statements, counting only what holds in both
--   orders?
-- source: candidate_pairs over all statements; the columns of metric_win_matrix_by_rubric.
-- estimators:
--   - consistency: as in metric_win_matrix_by_rubric; the interval for statements in general, wilson_clustered
--   - consistency_se: clustered by statement (CR1), where statements share prompts in two ways, by prompts too
--     (shared_variance)
--   - consistency_lo_these_statements, consistency_hi_these_statements: for other prompts under the same statements:
--     Wilson, or wilson_clustered by prompts where one has several pairs, of several outputs (unit_id), or by several
--     statements that share its outputs, or repeats split; pairs that show no spread count as one observation a prompt then
--   - win_rate_half: as in metric_win_matrix_by_rubric; the interval wilson_clustered, of no more observations than the pairs
--     are worth as draws, which with halves is more than their number
--   - win_rate_half_lo_these_statements, win_rate_half_hi_these_statements, p_win_rate_these_statements: for other prompts
--     under the same statements, by the methods of metric_win_matrix_by_rubric: the sign test of the wins and
--     matched_difference, where a prompt has several pairs (several outputs, or several statements) the sign-flip test
--     of the prompts' leads and its inversion
--   - consistency_min, consistency_max, win_rate_half_min, win_rate_half_max: as in metric_win_matrix_by_rubric
--   - net: as in metric_win_matrix_by_rubric
--   - win_rate_half_se, net_se: as consistency_se
--   - p_win_rate: that win_rate_half is 1/2, for statements in general, by t over n_rubrics - 1, or over prompts - 1
--     where they are shared and fewer: below 0.05 exactly where 1/2 is outside the interval, as both are Wilson's with
--     the same effective size
--   - q_bh: Benjamini and Hochberg's, over the p_win_rate of one judge's matrix
--   - win_rate_mde: the smallest win_rate_half above 1/2 that p_win_rate would have found with power 0.8 (the t quantile
--     of 0.8 to 1e-3)
--   - rank_correlation: Pearson's r between the rank with a first and minus the rank with b first, of each vote with each
-- reference: SpecEval: its prompt_correlation is rank_correlation, its match_fraction is consistency; Benjamini and
--   Hochberg 1995; wilson_clustered.
-- nulls: the intervals, p and mde for statements in general are NULL below 5 statements, or shared prompts
--   (metric_win_matrix_by_rubric has the sign test on each), the clustered errors below 2, a rate where n_both is 0; mde
--   also where so few statements would not even reveal a rate of 1; consistency's ends for these statements below 5
--   prompts, where one has several pairs, or repeats split; p_win_rate_these_statements without a win, it and the ends
--   beside it where metric_win_matrix_by_rubric's are.

CREATE OR REPLACE VIEW metric_win_matrix AS
WITH inputs AS (
  SELECT
    study, template_id, rubric_id, judge(candidate_pairs) AS judge, candidate_a, candidate_b,
    coalesce(nullif(unit_id, ''), item_a || chr(31) || item_b) AS prompt,
    min(item_a) AS an_output,
    count(part_a) AS n_both,
    count(*) FILTER (WHERE winner = 'a') AS n_wins_a,
    count(*) FILTER (WHERE winner = 'b') AS n_wins_b,
    count(*) FILTER (WHERE winner = 'tie') AS n_true_ties,
    count(*) FILTER (WHERE winner = 'inconsistent') AS n_inconsistent,
    count(*) FILTER (WHERE winner = 'missing') AS n_missing,
    count(*) FILTER (WHERE winner = 'pending') AS n_pairs_pending,
    CAST(count(part_a) AS DOUBLE) AS n,
    coalesce(sum(part_a + part_b + part_tie), 0) AS n_same,
    coalesce(sum(0.5::DOUBLE + (part_a - part_b) / 2), 0) AS points,
    coalesce(sum(power(part_a + part_b + part_tie, 2)), 0) AS same_squares,
    coalesce(sum(power(0.5::DOUBLE + (part_a - part_b) / 2, 2)), 0) AS point_squares,
    sum(CASE WHEN part_a IS NOT NULL THEN lead_a_first END) AS sum_x,
    sum(CASE WHEN part_a IS NOT NULL THEN -lead_b_first END) AS sum_y,
    sum(-lead_a_first * lead_b_first) AS sum_xy,
    sum(CASE WHEN part_a IS NOT NULL THEN decided_a_first END) AS sum_xx,
    sum(CASE WHEN part_a IS NOT NULL THEN decided_b_first END) AS sum_yy
  FROM candidate_pairs
  GROUP BY study, template_id, rubric_id, judge, candidate_a, candidate_b, prompt
),
prompts AS (
  SELECT
    *,
    sum(n) OVER prompts AS prompt_n,
    sum(n_same) OVER prompts AS prompt_same,
    sum(points) OVER prompts AS prompt_points,
    sum(CASE WHEN n > 0 THEN 1 ELSE 0 END) OVER prompts AS prompt_cells
  FROM inputs
  WINDOW prompts AS (
    PARTITION BY study, template_id, judge, candidate_a, candidate_b, prompt, an_output)
),
-- a sum over prompts of their squares is one over rows of what the prompt has times what the row has
rubrics_counted AS (
  SELECT
    study, template_id, rubric_id, judge, candidate_a, candidate_b,
    sum(n_both) AS n_both,
    sum(n_wins_a) AS n_wins_a,
    sum(n_wins_b) AS n_wins_b,
    sum(n_true_ties) AS n_true_ties,
    sum(n_inconsistent) AS n_inconsistent,
    sum(n_missing) AS n_missing,
    sum(n_pairs_pending) AS n_pairs_pending,
    sum(n_same) AS same_all,
    sum(points) AS points_all,
    sum(same_squares) AS same_squares,
    sum(point_squares) AS point_squares,
    sum(sum_x) AS sum_x,
    sum(sum_y) AS sum_y,
    sum(sum_xy) AS sum_xy,
    sum(sum_xx) AS sum_xx,
    sum(sum_yy) AS sum_yy,
    count(*) FILTER (WHERE n > 0) AS n_cells,
    sum(CASE WHEN n > 0 THEN 1 / CAST(prompt_cells AS DOUBLE) ELSE 0 END) AS n_prompts,
    sum(CASE WHEN abs(2 * prompt_points - prompt_n) > 1e-9 THEN 1 / CAST(prompt_cells AS DOUBLE) ELSE 0 END) AS n_leads,
    max(prompt_n) AS n_of_prompt,
    sum(prompt_n * n) AS both_both,
    sum(prompt_same * n_same) AS same_same,
    sum(prompt_n * n_same) AS same_both,
    sum(prompt_points * points) AS points_points,
    sum(prompt_n * points) AS points_both,
    sum(n * n) AS cell_both_both,
    sum(n_same * n_same) AS cell_same_same,
    sum(n_same * n) AS cell_same_both,
    sum(points * points) AS cell_points_points,
    sum(points * n) AS cell_points_both
  FROM prompts
  GROUP BY study, template_id, rubric_id, judge, candidate_a, candidate_b
),
centred AS (
  SELECT
    *,
    points_all - n_both * (sum(points_all) OVER pair / nullif(sum(n_both) OVER pair, 0)) AS residual,
    same_all - n_both * (sum(same_all) OVER pair / nullif(sum(n_both) OVER pair, 0)) AS consistency_residual
  FROM rubrics_counted
  WINDOW pair AS (PARTITION BY study, template_id, judge, candidate_a, candidate_b)
),
counts AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b,
    count(*) FILTER (WHERE n_both > 0) AS n_rubrics,
    CAST(sum(n_both + n_missing) AS BIGINT) AS n_pairs,
    CAST(sum(n_both) AS BIGINT) AS n_both,
    CAST(sum(n_wins_a) AS BIGINT) AS n_wins_a,
    CAST(sum(n_wins_b) AS BIGINT) AS n_wins_b,
    CAST(sum(n_true_ties) AS BIGINT) AS n_true_ties,
    CAST(sum(n_inconsistent) AS BIGINT) AS n_inconsistent,
    CAST(sum(n_missing) AS BIGINT) AS n_missing,
    CAST(sum(n_pairs_pending) AS BIGINT) AS n_pairs_pending,
    sum(residual * residual) AS residual_squares,
    sum(consistency_residual * consistency_residual) AS consistency_squares,
    CAST(sum(n_cells) AS BIGINT) AS n_cells,
    CAST(round(sum(n_prompts)) AS BIGINT) AS n_prompts,
    CAST(round(sum(n_leads)) AS BIGINT) AS n_leads,
    round(sum(same_all), 12) AS n_same,
    round(sum(points_all), 12) AS points,
    sum(same_squares) AS same_squares,
    sum(point_squares) AS point_squares,
    max(n_of_prompt) <= 1 AS is_one_pair,
    -- a draw for each prompt, that holds or does not
    max(n_of_prompt) <= 1 AND sum(same_same) = sum(same_all) AS is_one_vote,
    sum(both_both) AS both_both,
    sum(same_same) AS same_same,
    sum(same_both) AS same_both,
    sum(points_points) AS points_points,
    sum(points_both) AS points_both,
    sum(cell_both_both) AS cell_both_both,
    sum(cell_same_same) AS cell_same_same,
    sum(cell_same_both) AS cell_same_both,
    sum(cell_points_points) AS cell_points_points,
    sum(cell_points_both) AS cell_points_both,
    CAST(sum(n_both) * sum(sum_xy) - sum(sum_x) * sum(sum_y) AS DOUBLE) AS co_xy,
    CAST(sum(n_both) * sum(sum_xx) - sum(sum_x) * sum(sum_x) AS DOUBLE) AS co_xx,
    CAST(sum(n_both) * sum(sum_yy) - sum(sum_y) * sum(sum_y) AS DOUBLE) AS co_yy
  FROM centred
  GROUP BY study, template_id, judge, candidate_a, candidate_b
),
rated AS (
  SELECT
    *,
    points / nullif(n_both, 0) AS win_rate_half,
    points / nullif(n_pairs, 0) AS win_rate_half_min,
    (points + n_missing) / nullif(n_pairs, 0) AS win_rate_half_max,
    n_same / nullif(n_both, 0) AS consistency,
    -- a prompt's lead, as in metric_win_matrix_by_rubric, is twice its points less its pairs
    round(2 * points - n_both, 12) AS lead,
    round(4 * (points_points - points_both) + both_both, 12) AS lead_lead,
    2 * points_both - both_both AS lead_both,
    n_rubrics / nullif(n_rubrics - 1, 0) AS cr1,
    -- a pair's own: n p (1 - p) where none is half
    CASE WHEN same_squares - n_same * n_same / nullif(n_both, 0) > 1e-9
         THEN sqrt(same_squares - n_same * n_same / n_both) / n_both END AS same_by_pair,
    CASE WHEN point_squares - points * points / nullif(n_both, 0) > 1e-9
         THEN sqrt(point_squares - points * points / n_both) / n_both END AS points_by_pair
  FROM counts
),
measured AS (
  SELECT
    *,
    same_same - 2 * consistency * same_both + consistency * consistency * both_both AS same_by_prompt,
    sqrt(CAST(residual_squares * cr1 / nullif(n_both * n_both, 0) AS DOUBLE) + shared_variance(
      points_points - 2 * win_rate_half * points_both + win_rate_half * win_rate_half * both_both, n_prompts,
      cell_points_points - 2 * win_rate_half * cell_points_both + win_rate_half * win_rate_half * cell_both_both, n_cells,
      n_both)) AS win_rate_half_se,
    sqrt(CAST(consistency_squares * cr1 / nullif(n_both * n_both, 0) AS DOUBLE) + shared_variance(
      same_same - 2 * consistency * same_both + consistency * consistency * both_both, n_prompts,
      cell_same_same - 2 * consistency * cell_same_both + consistency * consistency * cell_both_both, n_cells, n_both))
      AS consistency_se,
    mean_size(win_rate_half, n_both, points_by_pair) AS n_most,
    mean_size(consistency, n_both, same_by_pair) AS same_most,
    CASE WHEN n_rubrics >= 5 AND (n_prompts >= 5 OR n_cells = n_prompts)
         THEN CASE WHEN n_prompts < n_rubrics AND n_cells > n_prompts THEN n_prompts ELSE n_rubrics END - 1 END AS df
  FROM rated
),
sized AS (
  SELECT
    *,
    CASE WHEN df > 0 THEN effective_size(win_rate_half, n_most, win_rate_half_se) END AS n_effective,
    CASE WHEN df > 0 THEN effective_size(consistency, same_most, consistency_se) END AS consistency_size,
    t_two_sided_95(df) AS t_ends
  FROM measured
),
tested AS (
  SELECT
    *,
    t_two_sided((2 * win_rate_half - 1) * sqrt(n_effective), df) AS p_win_rate,
    CASE WHEN is_one_pair AND lead_lead = n_leads THEN matched_difference(n_wins_a, n_wins_b, n_both)
         WHEN n_leads >= 6 THEN sign_flip_ratio(lead, n_both, lead_lead, lead_both, both_both) END AS these_ends,
    sign_flip_z(lead, 0, lead_lead, 0, 0) AS leads_z,
    wilson_clustered(consistency, CASE WHEN same_by_prompt > 1e-9 THEN same_most ELSE n_prompts END,
      CASE WHEN same_by_prompt > 1e-9 AND n_prompts > 1
           THEN sqrt(same_by_prompt * n_prompts / (n_prompts - 1)) / n_both END, n_prompts) AS consistency_these
  FROM sized
),
ranked AS (
  SELECT
    *,
    count(p_win_rate) OVER judge AS n_p,
    row_number() OVER (PARTITION BY study, template_id, judge ORDER BY p_win_rate NULLS LAST) AS p_rank
  FROM tested
  WINDOW judge AS (PARTITION BY study, template_id, judge)
)
SELECT
  study, template_id, judge.*, candidate_a, candidate_b,
  n_rubrics, n_pairs, n_both, n_wins_a, n_wins_b, n_true_ties, n_inconsistent, n_missing, n_pairs_pending,
  consistency,
  consistency_se,
  wilson_lo(consistency * consistency_size, consistency_size, t_ends) AS consistency_lo,
  wilson_hi(consistency * consistency_size, consistency_size, t_ends) AS consistency_hi,
  CASE WHEN is_one_vote THEN wilson_lo(n_same, n_both) ELSE consistency_these.lo END AS consistency_lo_these_statements,
  CASE WHEN is_one_vote THEN wilson_hi(n_same, n_both) ELSE consistency_these.hi END AS consistency_hi_these_statements,
  n_same / nullif(n_pairs, 0) AS consistency_min,
  (n_same + n_missing) / nullif(n_pairs, 0) AS consistency_max,
  win_rate_half,
  win_rate_half_se,
  wilson_lo(win_rate_half * n_effective, n_effective, t_ends) AS win_rate_half_lo,
  wilson_hi(win_rate_half * n_effective, n_effective, t_ends) AS win_rate_half_hi,
  0.5 + share_difference(these_ends.lo) / 2 AS win_rate_half_lo_these_statements,
  0.5 + share_difference(these_ends.hi) / 2 AS win_rate_half_hi_these_statements,
  win_rate_half_min,
  win_rate_half_max,
  (2 * points - n_both) / nullif(n_both, 0) AS net,
  2 * win_rate_half_se AS net_se,
  p_win_rate,
  CASE WHEN is_one_pair AND lead_lead = n_leads THEN binom_test_half(n_wins_a, n_wins_a + n_wins_b)
       WHEN n_leads >= 6 THEN normal_two_sided(leads_z) END AS p_win_rate_these_statements,
  CASE WHEN p_win_rate IS NOT NULL
       THEN least(1.0, min(p_win_rate * n_p / p_rank) OVER (
         PARTITION BY study, template_id, judge ORDER BY p_rank DESC)) END AS q_bh,
  CASE WHEN n_effective > 0
       THEN share_difference_mde(0.5 + (t_ends + 0.8416212335729143 + 0.3594365 / df) / (2 * sqrt(n_effective))) END
    AS win_rate_mde,
  co_xy / nullif(sqrt(co_xx * co_yy), 0) AS rank_correlation
FROM ranked;
