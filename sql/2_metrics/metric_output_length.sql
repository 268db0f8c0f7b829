-- grain: study, candidate
-- question: How long are the outputs of each candidate model?
-- source: the items of pair_judgments and item_judgments that are known to be a model's output, each once, with the
--   characters of item_lengths.
-- estimators:
--   - chars_mean: mean of the outputs' characters, chars_mean_se = chars_sd / sqrt(n)
--   - chars_sd: their standard deviation
--   - chars_p50, chars_p95: percentiles, interpolated linearly
-- reference: own definitions.
-- nulls: NULL where no output has a known length (n_no_length counts those without), chars_sd and chars_mean_se for a
--   single output.

CREATE OR REPLACE VIEW metric_output_length AS
WITH pairs AS MATERIALIZED (
  SELECT DISTINCT study, candidate_first, item_first, candidate_second, item_second FROM pair_judgments
),
outputs AS (
  SELECT study, candidate_first AS candidate, item_first AS item FROM pairs
  UNION
  SELECT study, candidate_second AS candidate, item_second AS item FROM pairs
  UNION
  SELECT study, candidate, item FROM item_judgments
),
measured AS (
  SELECT outputs.study, outputs.candidate, item_lengths.n_chars
  FROM outputs
  LEFT JOIN item_lengths ON item_lengths.study = outputs.study AND item_lengths.item = outputs.item
  WHERE outputs.candidate IS NOT NULL
)
SELECT
  study, candidate,
  count(*) AS n_outputs,
  count(*) - count(n_chars) AS n_no_length,
  avg(n_chars) AS chars_mean,
  stddev_samp(n_chars) AS chars_sd,
  stddev_samp(n_chars) / sqrt(nullif(count(n_chars), 0)) AS chars_mean_se,
  quantile_cont(n_chars, 0.50) AS chars_p50,
  quantile_cont(n_chars, 0.95) AS chars_p95
FROM measured
GROUP BY study, candidate;
