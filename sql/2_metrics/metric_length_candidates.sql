-- grain: study, template_id, provider, request_model, thinking, candidate_a, candidate_b
-- question: Does a candidate model win because its outputs are longer?
-- source: candidate_pairs with a judgment in both orders, and item_lengths.
-- estimators:
--   - chars_mean_a, chars_mean_b: mean characters of the outputs of a, and of b
--   - length_ratio: geometric mean of length of a / length of b
--   - win_rate_half: as in metric_win_matrix, over the n_pairs with known lengths
--   - win_rate_longer, win_rate_shorter: win_rate_half apart for the pairs where a wrote more, and less, with Wilson
--     intervals
--   - win_rate_balanced: the mean of the two: what a would win if it wrote the longer text in half of the pairs
-- reference: own definitions: a simple control by two strata, without a model; it leaves length differences within a
--   stratum as they are.
-- nulls: NULL where a stratum is empty: then length and model cannot be told apart.

CREATE OR REPLACE VIEW metric_length_candidates AS
WITH measured AS (
  SELECT
    candidate_pairs.study, candidate_pairs.template_id, candidate_pairs.provider, candidate_pairs.request_model,
    candidate_pairs.thinking, candidate_pairs.candidate_a, candidate_pairs.candidate_b,
    CASE candidate_pairs.winner WHEN 'a' THEN 1.0 WHEN 'b' THEN 0.0 ELSE 0.5 END AS points,
    CAST(a.n_chars AS DOUBLE) AS chars_a,
    CAST(b.n_chars AS DOUBLE) AS chars_b
  FROM candidate_pairs
  LEFT JOIN item_lengths AS a ON a.study = candidate_pairs.study AND a.item = candidate_pairs.item_a
  LEFT JOIN item_lengths AS b ON b.study = candidate_pairs.study AND b.item = candidate_pairs.item_b
  WHERE candidate_pairs.winner IN ('a', 'b', 'tie', 'inconsistent')
),
sums AS (
  SELECT
    study, template_id, provider, request_model, thinking, candidate_a, candidate_b,
    count(chars_a + chars_b) AS n_pairs,
    count(*) - count(chars_a + chars_b) AS n_no_length,
    count(*) FILTER (WHERE chars_a > chars_b) AS n_longer,
    count(*) FILTER (WHERE chars_a < chars_b) AS n_shorter,
    count(*) FILTER (WHERE chars_a = chars_b) AS n_same_length,
    avg(CASE WHEN chars_b IS NOT NULL THEN chars_a END) AS chars_mean_a,
    avg(CASE WHEN chars_a IS NOT NULL THEN chars_b END) AS chars_mean_b,
    exp(avg(ln(CASE chars_a WHEN 0 THEN 1 ELSE chars_a END) - ln(CASE chars_b WHEN 0 THEN 1 ELSE chars_b END)))
      AS length_ratio,
    CAST(sum(points) FILTER (WHERE chars_a > chars_b) AS DOUBLE) AS points_longer,
    CAST(sum(points) FILTER (WHERE chars_a < chars_b) AS DOUBLE) AS points_shorter,
    CAST(sum(points) FILTER (WHERE chars_a + chars_b IS NOT NULL) AS DOUBLE) AS points
  FROM measured
  GROUP BY study, template_id, provider, request_model, thinking, candidate_a, candidate_b
)
SELECT
  study, template_id, provider, request_model, thinking, candidate_a, candidate_b,
  n_pairs, n_no_length, n_longer, n_shorter, n_same_length,
  chars_mean_a, chars_mean_b, length_ratio,
  points / nullif(n_pairs, 0) AS win_rate_half,
  points_longer / nullif(n_longer, 0) AS win_rate_longer,
  wilson_lo(points_longer, n_longer) AS win_rate_longer_lo,
  wilson_hi(points_longer, n_longer) AS win_rate_longer_hi,
  points_shorter / nullif(n_shorter, 0) AS win_rate_shorter,
  wilson_lo(points_shorter, n_shorter) AS win_rate_shorter_lo,
  wilson_hi(points_shorter, n_shorter) AS win_rate_shorter_hi,
  (points_longer / nullif(n_longer, 0) + points_shorter / nullif(n_shorter, 0)) / 2 AS win_rate_balanced
FROM sums;
