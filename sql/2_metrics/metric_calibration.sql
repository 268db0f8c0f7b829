-- grain: study, template_id, provider, request_model, thinking
-- question: When a judge says that it is 80 % sure, is it right 80 % of the time?
-- source: judged_truths, right being what people say (`truths`), over all tasks and statements of the template. n
--   counts verdicts with both a truth and a confidence. Left out and counted: n_no_confidence and n_no_truth, which
--   overlap.
-- estimators:
--   - accuracy: n_correct / n, Wilson
--   - confidence_mean: mean of the stated confidences
--   - overconfidence: mean confidence - accuracy, calibration in the large
--   - brier: mean of (confidence - right)^2 with a standard error clustered by statement and input (CR1)
--   - brier_reliability, brier_resolution, brier_uncertainty: brier = reliability - resolution + uncertainty + what the
--     bins' width leaves, over ten bins, a bin being least(floor(10 confidence + 1e-9), 9)
--   - ece10, mce10: mean, and largest, gap between a bin's mean confidence and accuracy
--   - auroc: chance that a right verdict has the higher confidence, by rank sum, ties half
-- reference: Murphy 1973 (parts of the Brier score).
-- nulls: all rates are NULL where n is 0, brier_se below two inputs, auroc where all verdicts are right, or all wrong.
-- note: ece10 is biased upwards when n is small: read it beside n and brier.

CREATE OR REPLACE VIEW metric_calibration AS
WITH judged AS (
  SELECT
    study, template_id, provider, request_model, thinking, rubric_id, unit_id, is_correct, confidence,
    is_correct IS NOT NULL AND confidence IS NOT NULL AS is_in,
    CASE WHEN is_correct THEN 1.0 ELSE 0.0 END AS hit,
    least(floor(10 * confidence + 1e-9), 9) AS bin
  FROM judged_truths
),
scored AS (
  SELECT
    *,
    power(confidence - hit, 2) AS loss,
    avg(power(confidence - hit, 2)) OVER whole AS brier,
    avg(hit) OVER whole AS accuracy,
    avg(hit) OVER binned AS bin_accuracy,
    avg(confidence) OVER binned AS bin_confidence,
    rank() OVER (
      PARTITION BY study, template_id, provider, request_model, thinking, is_in ORDER BY confidence
    ) + (count(*) OVER (
      PARTITION BY study, template_id, provider, request_model, thinking, is_in, confidence
    ) - 1) / 2 AS midrank
  FROM judged
  WINDOW
    whole AS (PARTITION BY study, template_id, provider, request_model, thinking, is_in),
    binned AS (PARTITION BY study, template_id, provider, request_model, thinking, is_in, bin)
),
by_input AS (
  SELECT
    study, template_id, provider, request_model, thinking, rubric_id, unit_id, is_in,
    count(*) AS n,
    count(*) FILTER (WHERE confidence IS NULL) AS n_no_confidence,
    count(*) FILTER (WHERE is_correct IS NULL) AS n_no_truth,
    count(*) FILTER (WHERE is_correct) AS n_correct,
    sum(confidence) AS sum_confidence,
    sum(loss - brier) AS residual,
    sum(loss) AS sum_loss,
    sum(power(bin_confidence - bin_accuracy, 2)) AS sum_reliability,
    sum(power(bin_accuracy - accuracy, 2)) AS sum_resolution,
    sum(abs(bin_confidence - bin_accuracy)) AS sum_gap,
    max(abs(bin_confidence - bin_accuracy)) AS max_gap,
    sum(CASE WHEN is_correct THEN midrank END) AS rank_sum
  FROM scored
  GROUP BY study, template_id, provider, request_model, thinking, rubric_id, unit_id, is_in
),
sums AS (
  SELECT
    study, template_id, provider, request_model, thinking,
    count(*) FILTER (WHERE is_in) AS n_inputs,
    coalesce(CAST(sum(n) FILTER (WHERE is_in) AS BIGINT), 0) AS n,
    CAST(sum(n_no_confidence) AS BIGINT) AS n_no_confidence,
    CAST(sum(n_no_truth) AS BIGINT) AS n_no_truth,
    coalesce(CAST(sum(n_correct) FILTER (WHERE is_in) AS BIGINT), 0) AS n_correct,
    sum(sum_confidence) FILTER (WHERE is_in) AS sum_confidence,
    sum(residual * residual) FILTER (WHERE is_in) AS residual_squares,
    sum(sum_loss) FILTER (WHERE is_in) AS sum_loss,
    sum(sum_reliability) FILTER (WHERE is_in) AS sum_reliability,
    sum(sum_resolution) FILTER (WHERE is_in) AS sum_resolution,
    sum(sum_gap) FILTER (WHERE is_in) AS sum_gap,
    max(max_gap) FILTER (WHERE is_in) AS mce10,
    sum(rank_sum) FILTER (WHERE is_in) AS rank_sum
  FROM by_input
  GROUP BY study, template_id, provider, request_model, thinking
)
SELECT
  study, template_id, provider, request_model, thinking,
  n, n_inputs, n_no_confidence, n_no_truth, n_correct,
  n_correct / nullif(n, 0) AS accuracy,
  wilson_lo(n_correct, n) AS accuracy_lo,
  wilson_hi(n_correct, n) AS accuracy_hi,
  sum_confidence / nullif(n, 0) AS confidence_mean,
  sum_confidence / nullif(n, 0) - n_correct / nullif(n, 0) AS overconfidence,
  sum_loss / nullif(n, 0) AS brier,
  CASE WHEN n_inputs > 1 THEN sqrt(residual_squares * n_inputs / (n_inputs - 1)) / n END AS brier_se,
  sum_reliability / nullif(n, 0) AS brier_reliability,
  sum_resolution / nullif(n, 0) AS brier_resolution,
  n_correct / nullif(n, 0) * (1 - n_correct / nullif(n, 0)) AS brier_uncertainty,
  sum_gap / nullif(n, 0) AS ece10,
  mce10,
  (rank_sum - n_correct * (n_correct + 1) / 2) / nullif(n_correct * (n - n_correct), 0) AS auroc
FROM sums;
