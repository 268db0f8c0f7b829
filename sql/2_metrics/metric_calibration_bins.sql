-- grain: study, template_id, judge, bin
-- question: At each level of stated confidence, how often is a judge right?
-- source: judged_truths, the verdicts with a truth and a confidence, of n_inputs, right in part where people are split, as
--   in metric_calibration:
--   of what people labelled, which says something of the study only where it is a random part of it, or of each stratum.
-- estimators:
--   - bin: least(floor(10 confidence + 1e-9), 9), so bin 7 holds 0.7 up to 0.8 and bin 9 also 1.0
--   - confidence_mean: mean of the confidences in the bin
--   - accuracy: the share of the n verdicts that is right, n_correct of them and a part of the n_split, each by the weight
--     of its unit's label, as confidence_mean
--   - accuracy_se, accuracy_lo, accuracy_hi: for inputs in general, as in metric_calibration
--   - accuracy_lo_these_items, accuracy_hi_these_items: as in metric_calibration
-- reference: the bins of metric_calibration; clustered, wilson, wilson_clustered.
-- nulls: accuracy_se below two inputs, accuracy_lo and accuracy_hi below 5; a bin without verdicts has no row.

CREATE OR REPLACE VIEW metric_calibration_bins AS
WITH by_pair AS (
  SELECT
    study, template_id, judge(judged_truths) AS judge, unit_id,
    least(item_first, item_second) AS item_lo,
    CASE WHEN item_second IS NOT NULL THEN greatest(item_first, item_second) END AS item_hi,
    CAST(least(floor(10 * confidence + 1e-9), 9) AS BIGINT) AS bin,
    count(*) AS n,
    count(*) FILTER (WHERE correct_part = 1) AS n_correct,
    count(*) FILTER (WHERE correct_part > 0 AND correct_part < 1) AS n_split,
    sum(weight) AS w,
    sum(weight * weight) AS w_squares,
    sum(weight * correct_part) AS hits,
    sum(weight * confidence) AS sum_confidence
  FROM judged_truths
  WHERE correct_part IS NOT NULL AND confidence IS NOT NULL
  GROUP BY
    study, template_id, judge, unit_id, least(item_first, item_second),
    CASE WHEN item_second IS NOT NULL THEN greatest(item_first, item_second) END,
    CAST(least(floor(10 * confidence + 1e-9), 9) AS BIGINT)
),
apart AS (
  SELECT
    *,
    hits - w * sum(hits) OVER tenth / sum(w) OVER tenth AS residual
  FROM by_pair
  WINDOW tenth AS (PARTITION BY study, template_id, judge, bin)
),
by_input AS (
  SELECT
    study, template_id, judge, bin,
    sum(n) AS n_here,
    count(*) FILTER (WHERE side = 1) AS n_draws,
    sum(n) FILTER (WHERE side = 1) AS n,
    sum(n_correct) FILTER (WHERE side = 1) AS n_correct,
    sum(n_split) FILTER (WHERE side = 1) AS n_split,
    sum(w) FILTER (WHERE side = 1) AS w,
    sum(w_squares) FILTER (WHERE side = 1) AS w_squares,
    sum(hits) FILTER (WHERE side = 1) AS hits,
    sum(sum_confidence) FILTER (WHERE side = 1) AS sum_confidence,
    sum(residual) AS residual,
    sum(residual * residual) FILTER (WHERE side = 1) AS pair_squares
  FROM apart
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE side = 1 OR (unit_id = '' AND item_hi IS NOT NULL)
  GROUP BY
    study, template_id, judge, bin, unit_id,
    CASE WHEN unit_id <> '' THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END
),
counts AS (
  SELECT
    study, template_id, judge, bin,
    count(*) AS n_inputs,
    CAST(sum(n) AS BIGINT) AS n,
    CAST(sum(n_draws) AS BIGINT) AS n_draws,
    CAST(sum(n_correct) AS BIGINT) AS n_correct,
    CAST(sum(n_split) AS BIGINT) AS n_split,
    sum(w) * sum(w) / sum(w_squares) AS n_effective,
    sum(sum_confidence) / sum(w) AS confidence_mean,
    round(sum(hits), 9) / round(sum(w), 9) AS accuracy,
    sum(n_here) / sum(n) AS n_sides,
    sum(residual * residual) / sum(w) / sum(w) AS squares,
    sum(pair_squares) / sum(w) / sum(w) AS by_pair
  FROM by_input
  GROUP BY study, template_id, judge, bin
),
corrected AS (
  SELECT *, squares * n_inputs / nullif(n_inputs - 1, 0) AS by_input
  FROM counts
),
errors AS (
  SELECT *, CASE WHEN n_inputs > 1 THEN sqrt(clustered_variance(by_input, by_pair, n_sides)) END AS accuracy_se
  FROM corrected
),
sized AS (
  SELECT *, CASE WHEN accuracy > 0 AND accuracy < 1 THEN n_effective ELSE n_draws * (n_effective / n) END AS n_most
  FROM errors
),
bounded AS (
  SELECT *, wilson_clustered(accuracy, n_most, accuracy_se, n_inputs) AS ends
  FROM sized
)
SELECT
  study, template_id, judge.*, bin,
  n, n_inputs, n_correct, n_split, confidence_mean,
  accuracy,
  accuracy_se,
  ends.lo AS accuracy_lo,
  ends.hi AS accuracy_hi,
  wilson_lo(accuracy * n_effective, n_effective) AS accuracy_lo_these_items,
  wilson_hi(accuracy * n_effective, n_effective) AS accuracy_hi_these_items
FROM bounded;
