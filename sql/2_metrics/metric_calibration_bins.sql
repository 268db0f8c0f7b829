-- grain: study, template_id, provider, request_model, thinking, bin
-- question: At each level of stated confidence, how often is a judge right?
-- source: judged_truths, the verdicts with a truth and a confidence.
-- estimators:
--   - bin: least(floor(10 confidence + 1e-9), 9), so bin 7 holds 0.7 up to 0.8 and bin 9 also 1.0
--   - confidence_mean: mean of the confidences in the bin
--   - accuracy: n_correct / n, Wilson
-- reference: the bins of metric_calibration; wilson.
-- nulls: none; a bin without verdicts has no row.

CREATE OR REPLACE VIEW metric_calibration_bins AS
WITH counts AS (
  SELECT
    study, template_id, provider, request_model, thinking,
    CAST(least(floor(10 * confidence + 1e-9), 9) AS BIGINT) AS bin,
    count(*) AS n,
    count(*) FILTER (WHERE is_correct) AS n_correct,
    avg(confidence) AS confidence_mean
  FROM judged_truths
  WHERE is_correct IS NOT NULL AND confidence IS NOT NULL
  GROUP BY
    study, template_id, provider, request_model, thinking, CAST(least(floor(10 * confidence + 1e-9), 9) AS BIGINT)
)
SELECT
  study, template_id, provider, request_model, thinking, bin,
  n, n_correct, confidence_mean,
  n_correct / n AS accuracy,
  wilson_lo(n_correct, n) AS accuracy_lo,
  wilson_hi(n_correct, n) AS accuracy_hi
FROM counts;
