-- grain: study, template_id, judge, candidate_a, candidate_b
-- question: Does a candidate model win because its outputs are longer?
-- source: candidate_pairs with a judgment in both orders, and item_lengths. n_rubrics_longer statements have a pair where
--   a wrote more, n_rubrics_shorter one where it wrote less.
-- estimators:
--   - chars_mean_a, chars_mean_b: mean characters of the outputs of a, and of b
--   - length_ratio: geometric mean of length of a / length of b
--   - win_rate_half: as in metric_win_matrix, over the n_pairs with known lengths
--   - win_rate_longer, win_rate_shorter: win_rate_half apart for the pairs where a wrote more, and less
--   - win_rate_longer_se, win_rate_shorter_se: for statements in general, clustered by them (CR1), where they share prompts
--     in two ways, by prompts too (shared_variance); the intervals with them, as wilson_clustered, of two votes a pair
--   - win_rate_longer_lo_these_statements, win_rate_longer_hi_these_statements, win_rate_shorter_lo_these_statements,
--     win_rate_shorter_hi_these_statements: for other prompts under the same statements: Wilson, or wilson_clustered by
--     prompts where one has several pairs, of several outputs (unit_id), or by several statements that share its
--     outputs, or some are half won, of 5 prompts or more; pairs that show no spread count as one observation a prompt then
--   - win_rate_balanced: the mean of the two: what a would win if it wrote the longer text in half of the pairs
-- reference: own definitions: a simple control by two strata, without a model; it leaves length differences within a
--   stratum as they are. wilson_clustered.
-- nulls: NULL where a stratum is empty: then length and model cannot be told apart; the intervals for statements in
--   general below 5 of them, or of shared prompts, in the stratum, the errors below 2; the intervals for these statements
--   below 5 prompts in it, where one has several pairs.

CREATE OR REPLACE VIEW metric_length_candidates AS
WITH lengths AS MATERIALIZED (
  SELECT study, item, CAST(n_chars AS DOUBLE) AS n_chars FROM item_lengths
),
measured AS (
  SELECT
    candidate_pairs.study, candidate_pairs.template_id, candidate_pairs.rubric_id, judge(candidate_pairs) AS judge,
    candidate_pairs.candidate_a, candidate_pairs.candidate_b,
    coalesce(nullif(candidate_pairs.unit_id, ''), candidate_pairs.item_a || chr(31) || candidate_pairs.item_b)
      AS prompt,
    candidate_pairs.item_a,
    0.5::DOUBLE + (candidate_pairs.part_a - candidate_pairs.part_b) / 2 AS points,
    CASE WHEN candidate_pairs.part_a IS NOT NULL THEN a.n_chars END AS chars_a,
    CASE WHEN candidate_pairs.part_a IS NOT NULL THEN b.n_chars END AS chars_b
  FROM candidate_pairs
  LEFT JOIN lengths AS a ON a.study = candidate_pairs.study AND a.item = candidate_pairs.item_a
  LEFT JOIN lengths AS b ON b.study = candidate_pairs.study AND b.item = candidate_pairs.item_b
),
by_prompt AS MATERIALIZED (
  -- named with their table: Spark takes a bare name for the column of that name beside it
  SELECT
    study, template_id, rubric_id, judge, candidate_a, candidate_b, prompt,
    min(item_a) AS an_output,
    count(measured.chars_a + measured.chars_b) AS n_known,
    count(measured.points) AS n_all,
    count(*) FILTER (WHERE measured.chars_a > measured.chars_b) AS longer,
    count(*) FILTER (WHERE measured.chars_a < measured.chars_b) AS shorter,
    count(*) FILTER (WHERE measured.chars_a = measured.chars_b) AS same,
    sum(CASE WHEN measured.chars_b IS NOT NULL THEN measured.chars_a END) AS chars_a,
    sum(CASE WHEN measured.chars_a IS NOT NULL THEN measured.chars_b END) AS chars_b,
    sum(ln(CASE measured.chars_a WHEN 0 THEN 1 ELSE measured.chars_a END)
      - ln(CASE measured.chars_b WHEN 0 THEN 1 ELSE measured.chars_b END)) AS log_ratio,
    coalesce(CAST(sum(measured.points) FILTER (WHERE measured.chars_a > measured.chars_b) AS DOUBLE), 0)
      AS points_longer,
    coalesce(CAST(sum(measured.points) FILTER (WHERE measured.chars_a < measured.chars_b) AS DOUBLE), 0)
      AS points_shorter,
    coalesce(sum(CASE WHEN measured.chars_a > measured.chars_b THEN measured.points * measured.points END), 0)
      AS squares_longer,
    coalesce(sum(CASE WHEN measured.chars_a < measured.chars_b THEN measured.points * measured.points END), 0)
      AS squares_shorter,
    CAST(sum(measured.points) FILTER (WHERE measured.chars_a + measured.chars_b IS NOT NULL) AS DOUBLE) AS points
  FROM measured
  GROUP BY study, template_id, rubric_id, judge, candidate_a, candidate_b, prompt
  HAVING count(measured.points) > 0
),
by_rubric AS (
  SELECT
    study, template_id, rubric_id, judge, candidate_a, candidate_b,
    sum(n_known) AS n_known,
    sum(n_all) AS n_all,
    sum(longer) AS longer,
    sum(shorter) AS shorter,
    sum(same) AS same,
    sum(chars_a) AS chars_a,
    sum(chars_b) AS chars_b,
    sum(log_ratio) AS log_ratio,
    sum(points_longer) AS points_longer,
    sum(points_shorter) AS points_shorter,
    sum(squares_longer) AS squares_longer,
    sum(squares_shorter) AS squares_shorter,
    sum(points) AS points
  FROM by_prompt
  GROUP BY study, template_id, rubric_id, judge, candidate_a, candidate_b
),
centred AS (
  SELECT
    *,
    points_longer - longer * (sum(points_longer) OVER pair / nullif(sum(longer) OVER pair, 0)) AS longer_residual,
    points_shorter - shorter * (sum(points_shorter) OVER pair / nullif(sum(shorter) OVER pair, 0)) AS shorter_residual
  FROM by_rubric
  WINDOW pair AS (PARTITION BY study, template_id, judge, candidate_a, candidate_b)
),
sums AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b,
    CAST(sum(n_known) AS BIGINT) AS n_pairs,
    CAST(sum(n_all - n_known) AS BIGINT) AS n_no_length,
    CAST(sum(longer) AS BIGINT) AS n_longer,
    CAST(sum(shorter) AS BIGINT) AS n_shorter,
    CAST(sum(same) AS BIGINT) AS n_same_length,
    count(*) FILTER (WHERE longer > 0) AS n_rubrics_longer,
    count(*) FILTER (WHERE shorter > 0) AS n_rubrics_shorter,
    sum(chars_a) / nullif(sum(n_known), 0) AS chars_mean_a,
    sum(chars_b) / nullif(sum(n_known), 0) AS chars_mean_b,
    exp(sum(log_ratio) / nullif(sum(n_known), 0)) AS length_ratio,
    sum(points) / nullif(sum(n_known), 0) AS win_rate_half,
    sum(points_longer) AS points_longer,
    sum(points_shorter) AS points_shorter,
    sum(squares_longer) AS squares_longer,
    sum(squares_shorter) AS squares_shorter,
    sum(longer_residual * longer_residual) AS longer_squares,
    sum(shorter_residual * shorter_residual) AS shorter_squares
  FROM centred
  GROUP BY study, template_id, judge, candidate_a, candidate_b
),
prompts AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b, prompt,
    CAST(sum(by_prompt.longer) AS DOUBLE) AS longer,
    CAST(sum(by_prompt.shorter) AS DOUBLE) AS shorter,
    sum(by_prompt.points_longer) AS points_longer,
    sum(by_prompt.points_shorter) AS points_shorter,
    count(*) FILTER (WHERE by_prompt.longer > 0) AS longer_cells,
    sum(by_prompt.points_longer * by_prompt.points_longer) AS longer_cell_points_points,
    sum(by_prompt.points_longer * by_prompt.longer) AS longer_cell_points_n,
    CAST(sum(by_prompt.longer * by_prompt.longer) AS DOUBLE) AS longer_cell_n_n,
    count(*) FILTER (WHERE by_prompt.shorter > 0) AS shorter_cells,
    sum(by_prompt.points_shorter * by_prompt.points_shorter) AS shorter_cell_points_points,
    sum(by_prompt.points_shorter * by_prompt.shorter) AS shorter_cell_points_n,
    CAST(sum(by_prompt.shorter * by_prompt.shorter) AS DOUBLE) AS shorter_cell_n_n
  FROM by_prompt
  GROUP BY study, template_id, judge, candidate_a, candidate_b, prompt, an_output
),
drawn AS (
  SELECT
    study, template_id, judge, candidate_a, candidate_b,
    count(*) FILTER (WHERE longer > 0) AS n_prompts_longer,
    count(*) FILTER (WHERE shorter > 0) AS n_prompts_shorter,
    max(longer) <= 1 AS is_one_longer,
    max(shorter) <= 1 AS is_one_shorter,
    sum(points_longer * points_longer) AS longer_points_points,
    sum(points_longer * longer) AS longer_points_n,
    sum(longer * longer) AS longer_n_n,
    sum(longer_cells) AS longer_cells,
    sum(longer_cell_points_points) AS longer_cell_points_points,
    sum(longer_cell_points_n) AS longer_cell_points_n,
    sum(longer_cell_n_n) AS longer_cell_n_n,
    sum(points_shorter * points_shorter) AS shorter_points_points,
    sum(points_shorter * shorter) AS shorter_points_n,
    sum(shorter * shorter) AS shorter_n_n,
    sum(shorter_cells) AS shorter_cells,
    sum(shorter_cell_points_points) AS shorter_cell_points_points,
    sum(shorter_cell_points_n) AS shorter_cell_points_n,
    sum(shorter_cell_n_n) AS shorter_cell_n_n
  FROM prompts
  GROUP BY study, template_id, judge, candidate_a, candidate_b
),
rates AS (
  SELECT
    sums.*,
    drawn.n_prompts_longer, drawn.n_prompts_shorter, drawn.is_one_longer, drawn.is_one_shorter,
    drawn.longer_points_points, drawn.longer_points_n, drawn.longer_n_n,
    drawn.shorter_points_points, drawn.shorter_points_n, drawn.shorter_n_n,
    drawn.longer_cells, drawn.longer_cell_points_points, drawn.longer_cell_points_n, drawn.longer_cell_n_n,
    drawn.shorter_cells, drawn.shorter_cell_points_points, drawn.shorter_cell_points_n, drawn.shorter_cell_n_n,
    points_longer / nullif(n_longer, 0) AS win_rate_longer,
    points_shorter / nullif(n_shorter, 0) AS win_rate_shorter
  FROM sums
  JOIN drawn
    ON drawn.study = sums.study
    AND drawn.template_id = sums.template_id
    AND drawn.judge = sums.judge
    AND drawn.candidate_a = sums.candidate_a
    AND drawn.candidate_b = sums.candidate_b
),
spread AS (
  SELECT
    *,
    -- a pair's own error: that of p (1 - p) / n where none is half
    CASE WHEN squares_longer - win_rate_longer * points_longer > 1e-9
         THEN sqrt(squares_longer - win_rate_longer * points_longer) / n_longer END AS longer_by_pair,
    CASE WHEN squares_shorter - win_rate_shorter * points_shorter > 1e-9
         THEN sqrt(squares_shorter - win_rate_shorter * points_shorter) / n_shorter END AS shorter_by_pair,
    longer_points_points - 2 * win_rate_longer * longer_points_n + win_rate_longer * win_rate_longer * longer_n_n
      AS longer_by_prompt,
    longer_cell_points_points - 2 * win_rate_longer * longer_cell_points_n
      + win_rate_longer * win_rate_longer * longer_cell_n_n AS longer_by_cell,
    CASE WHEN n_prompts_longer < n_rubrics_longer AND longer_cells > n_prompts_longer
         THEN n_prompts_longer ELSE n_rubrics_longer END AS longer_clusters,
    shorter_points_points - 2 * win_rate_shorter * shorter_points_n + win_rate_shorter * win_rate_shorter * shorter_n_n
      AS shorter_by_prompt,
    shorter_cell_points_points - 2 * win_rate_shorter * shorter_cell_points_n
      + win_rate_shorter * win_rate_shorter * shorter_cell_n_n AS shorter_by_cell,
    CASE WHEN n_prompts_shorter < n_rubrics_shorter AND shorter_cells > n_prompts_shorter
         THEN n_prompts_shorter ELSE n_rubrics_shorter END AS shorter_clusters
  FROM rates
),
sized AS (
  SELECT
    *,
    sqrt(longer_squares * n_rubrics_longer / nullif(n_rubrics_longer - 1, 0) / nullif(n_longer * n_longer, 0)
      + shared_variance(longer_by_prompt, n_prompts_longer, longer_by_cell, longer_cells, n_longer)) AS win_rate_longer_se,
    sqrt(shorter_squares * n_rubrics_shorter / nullif(n_rubrics_shorter - 1, 0) / nullif(n_shorter * n_shorter, 0)
      + shared_variance(shorter_by_prompt, n_prompts_shorter, shorter_by_cell, shorter_cells, n_shorter)) AS win_rate_shorter_se,
    -- a draw for each prompt, that is won or lost; of halves Wilson's is wider than need be
    is_one_longer AND (squares_longer = points_longer OR n_prompts_longer < 5) AS is_longer_plain,
    is_one_shorter AND (squares_shorter = points_shorter OR n_prompts_shorter < 5) AS is_shorter_plain,
    mean_size(win_rate_longer, n_longer, longer_by_pair) AS longer_most,
    mean_size(win_rate_shorter, n_shorter, shorter_by_pair) AS shorter_most,
    CASE WHEN longer_by_prompt > 1e-9 AND n_prompts_longer > 1
         THEN sqrt(longer_by_prompt * n_prompts_longer / (n_prompts_longer - 1)) / n_longer END AS longer_se,
    CASE WHEN shorter_by_prompt > 1e-9 AND n_prompts_shorter > 1
         THEN sqrt(shorter_by_prompt * n_prompts_shorter / (n_prompts_shorter - 1)) / n_shorter END AS shorter_se
  FROM spread
),
bounded AS (
  SELECT
    *,
    wilson_clustered(win_rate_longer, longer_most, win_rate_longer_se, longer_clusters) AS longer_ends,
    wilson_clustered(win_rate_shorter, shorter_most, win_rate_shorter_se, shorter_clusters) AS shorter_ends,
    wilson_clustered(win_rate_longer, CASE WHEN longer_by_prompt > 1e-9 THEN longer_most ELSE n_prompts_longer END, longer_se,
      n_prompts_longer) AS longer_these,
    wilson_clustered(win_rate_shorter, CASE WHEN shorter_by_prompt > 1e-9 THEN shorter_most ELSE n_prompts_shorter END,
      shorter_se, n_prompts_shorter) AS shorter_these
  FROM sized
)
SELECT
  study, template_id, judge.*, candidate_a, candidate_b,
  n_pairs, n_no_length, n_longer, n_shorter, n_same_length, n_rubrics_longer, n_rubrics_shorter,
  chars_mean_a, chars_mean_b, length_ratio,
  win_rate_half,
  win_rate_longer,
  win_rate_longer_se,
  longer_ends.lo AS win_rate_longer_lo,
  longer_ends.hi AS win_rate_longer_hi,
  CASE WHEN is_longer_plain THEN wilson_lo(points_longer, n_longer) ELSE longer_these.lo END
    AS win_rate_longer_lo_these_statements,
  CASE WHEN is_longer_plain THEN wilson_hi(points_longer, n_longer) ELSE longer_these.hi END
    AS win_rate_longer_hi_these_statements,
  win_rate_shorter,
  win_rate_shorter_se,
  shorter_ends.lo AS win_rate_shorter_lo,
  shorter_ends.hi AS win_rate_shorter_hi,
  CASE WHEN is_shorter_plain THEN wilson_lo(points_shorter, n_shorter) ELSE shorter_these.lo END
    AS win_rate_shorter_lo_these_statements,
  CASE WHEN is_shorter_plain THEN wilson_hi(points_shorter, n_shorter) ELSE shorter_these.hi END
    AS win_rate_shorter_hi_these_statements,
  (win_rate_longer + win_rate_shorter) / 2 AS win_rate_balanced
FROM bounded;
