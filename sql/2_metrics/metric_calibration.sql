-- grain: study, template_id, judge
-- question: When a judge says that it is 80 % sure, is it right 80 % of the time?
-- source: judged_truths, right being what people say (`truths`), over all tasks and statements of the template. n
--   counts verdicts with both a truth and a confidence, n_correct those that are right, n_split those that are right in
--   part, where people are split (correct_part). Left out and counted: n_no_confidence and n_no_truth, which
--   overlap. What the same input got, in both orders, again, or by several statements, is one observation of n_inputs: of
--   a prompt (unit_id), or of an item where items have none; a pair of items is then a part of two.
-- estimators:
--   - accuracy: the share of the n verdicts that is right, n_correct of them and a part of the n_split. Here and below a
--     verdict counts by the weight of its unit's label (`truths`)
--   - accuracy_se: for inputs in general (clustered_variance, CR1), and accuracy_lo and accuracy_hi with it, as
--     wilson_clustered; where all are right, or all wrong, an item or pair is one observation, however often it was asked
--   - accuracy_lo_these_items, accuracy_hi_these_items: Wilson, verdicts being draws: how the same judge would do on the
--     same items again, with Kish's effective number of verdicts
--   - confidence_mean: mean of the stated confidences
--   - overconfidence: mean confidence - accuracy, calibration in the large
--   - brier: mean of (confidence - right)^2, of a verdict that is right in part by either part; brier_se as accuracy_se
--   - brier_reliability, brier_resolution, brier_uncertainty: brier = reliability - resolution + uncertainty + what the
--     bins' width leaves, over ten bins, a bin being least(floor(10 confidence + 1e-9), 9)
--   - ece10, mce10: mean, and largest, gap between a bin's mean confidence and accuracy
--   - auroc: chance that a right verdict has the higher confidence, by rank sum, ties half
-- reference: Murphy 1973 (parts of the Brier score); clustered, wilson, wilson_clustered.
-- nulls: all rates are NULL where n is 0, the errors below two inputs, accuracy_lo and accuracy_hi below 5, auroc where
--   all verdicts are right, or all wrong.
-- note: ece10 is biased upwards when n is small: read it beside n and brier.
--   All is of what people labelled: of the study only where that is a random part of it, or of each stratum of it that
--   `label` drew from.
--   The accuracy of a judge that states no confidence is its agreement with `human`, `majority` in metric_agreement.

CREATE OR REPLACE VIEW metric_calibration AS
WITH judged AS (
  SELECT
    study, template_id, judge(judged_truths) AS judge, unit_id,
    least(item_first, item_second) AS item_lo,
    CASE WHEN item_second IS NOT NULL THEN greatest(item_first, item_second) END AS item_hi,
    correct_part, confidence, weight AS w,
    correct_part IS NOT NULL AND confidence IS NOT NULL AS is_in,
    coalesce(correct_part, 0.0) AS hit,
    least(floor(10 * confidence + 1e-9), 9) AS bin
  FROM judged_truths
),
scored AS (
  SELECT
    *,
    hit * power(confidence - 1, 2) + (1 - hit) * confidence * confidence AS loss,
    sum(w * (hit * power(confidence - 1, 2) + (1 - hit) * confidence * confidence)) OVER whole / sum(w) OVER whole AS brier,
    sum(w * hit) OVER whole / sum(w) OVER whole AS accuracy,
    sum(w * hit) OVER binned / sum(w) OVER binned AS bin_accuracy,
    sum(w * confidence) OVER binned / sum(w) OVER binned AS bin_confidence,
    -- the weight of all below, and half that of what is equal
    sum(w) OVER (PARTITION BY study, template_id, judge, is_in ORDER BY confidence)
      - (sum(w) OVER (PARTITION BY study, template_id, judge, is_in, confidence) + w) / 2 AS below
  FROM judged
  WINDOW
    whole AS (PARTITION BY study, template_id, judge, is_in),
    binned AS (PARTITION BY study, template_id, judge, is_in, bin)
),
by_pair AS (
  SELECT
    study, template_id, judge, unit_id, item_lo, item_hi, is_in,
    count(*) AS n,
    count(*) FILTER (WHERE confidence IS NULL) AS n_no_confidence,
    count(*) FILTER (WHERE correct_part IS NULL) AS n_no_truth,
    count(*) FILTER (WHERE correct_part = 1) AS n_correct,
    count(*) FILTER (WHERE correct_part > 0 AND correct_part < 1) AS n_split,
    sum(w) AS w,
    sum(w * w) AS w_squares,
    sum(w * hit) AS hits,
    sum(w * w * hit) AS hits_twice,
    sum(w * w * hit * hit) AS hit_squares,
    sum(w * confidence) AS sum_confidence,
    sum(w * (hit - accuracy)) AS hit_residual,
    sum(w * (loss - brier)) AS loss_residual,
    sum(w * loss) AS sum_loss,
    sum(w * power(bin_confidence - bin_accuracy, 2)) AS sum_reliability,
    sum(w * power(bin_accuracy - accuracy, 2)) AS sum_resolution,
    sum(w * abs(bin_confidence - bin_accuracy)) AS sum_gap,
    max(abs(bin_confidence - bin_accuracy)) AS max_gap,
    sum(w * hit * below) AS rank_sum
  FROM scored
  GROUP BY study, template_id, judge, unit_id, item_lo, item_hi, is_in
),
-- what is counted once stands on side 1; a pair of texts without a prompt is a part of two items
by_input AS (
  SELECT
    study, template_id, judge, is_in,
    sum(n) AS n_here,
    count(*) FILTER (WHERE side = 1) AS n_draws,
    coalesce(sum(n) FILTER (WHERE side = 1), 0) AS n,
    sum(n_no_confidence) FILTER (WHERE side = 1) AS n_no_confidence,
    sum(n_no_truth) FILTER (WHERE side = 1) AS n_no_truth,
    sum(n_correct) FILTER (WHERE side = 1) AS n_correct,
    sum(n_split) FILTER (WHERE side = 1) AS n_split,
    sum(w) FILTER (WHERE side = 1) AS w,
    sum(w_squares) FILTER (WHERE side = 1) AS w_squares,
    sum(hits) FILTER (WHERE side = 1) AS hits,
    sum(hits_twice) FILTER (WHERE side = 1) AS hits_twice,
    sum(hit_squares) FILTER (WHERE side = 1) AS hit_squares,
    sum(sum_confidence) FILTER (WHERE side = 1) AS sum_confidence,
    sum(hit_residual) AS hit_residual,
    sum(loss_residual) AS loss_residual,
    sum(hit_residual * hit_residual) FILTER (WHERE side = 1) AS hit_pair_squares,
    sum(loss_residual * loss_residual) FILTER (WHERE side = 1) AS loss_pair_squares,
    sum(sum_loss) FILTER (WHERE side = 1) AS sum_loss,
    sum(sum_reliability) FILTER (WHERE side = 1) AS sum_reliability,
    sum(sum_resolution) FILTER (WHERE side = 1) AS sum_resolution,
    sum(sum_gap) FILTER (WHERE side = 1) AS sum_gap,
    max(max_gap) AS max_gap,
    sum(rank_sum) FILTER (WHERE side = 1) AS rank_sum
  FROM by_pair
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE side = 1 OR (unit_id = '' AND item_hi IS NOT NULL)
  GROUP BY
    study, template_id, judge, is_in, unit_id,
    CASE WHEN unit_id <> '' THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END
),
sums AS (
  SELECT
    study, template_id, judge,
    count(*) FILTER (WHERE is_in) AS n_inputs,
    coalesce(CAST(sum(n) FILTER (WHERE is_in) AS BIGINT), 0) AS n,
    CAST(sum(n_no_confidence) AS BIGINT) AS n_no_confidence,
    CAST(sum(n_no_truth) AS BIGINT) AS n_no_truth,
    coalesce(CAST(sum(n_correct) FILTER (WHERE is_in) AS BIGINT), 0) AS n_correct,
    coalesce(CAST(sum(n_split) FILTER (WHERE is_in) AS BIGINT), 0) AS n_split,
    round(coalesce(sum(hits) FILTER (WHERE is_in), 0), 9) AS hits,
    round(sum(w) FILTER (WHERE is_in), 9) AS w,
    sum(w_squares) FILTER (WHERE is_in) AS w_squares,
    round(sum(hits_twice) FILTER (WHERE is_in), 9) AS hits_twice,
    round(sum(hit_squares) FILTER (WHERE is_in), 9) AS hit_squares,
    sum(n_here) FILTER (WHERE is_in) AS n_here,
    CAST(sum(n_draws) FILTER (WHERE is_in) AS BIGINT) AS n_draws,
    sum(sum_confidence) FILTER (WHERE is_in) AS sum_confidence,
    sum(hit_residual * hit_residual) FILTER (WHERE is_in) AS residual_squares,
    sum(loss_residual * loss_residual) FILTER (WHERE is_in) AS loss_squares,
    sum(hit_pair_squares) FILTER (WHERE is_in) AS hit_pair_squares,
    sum(loss_pair_squares) FILTER (WHERE is_in) AS loss_pair_squares,
    sum(sum_loss) FILTER (WHERE is_in) AS sum_loss,
    sum(sum_reliability) FILTER (WHERE is_in) AS sum_reliability,
    sum(sum_resolution) FILTER (WHERE is_in) AS sum_resolution,
    sum(sum_gap) FILTER (WHERE is_in) AS sum_gap,
    max(max_gap) FILTER (WHERE is_in) AS mce10,
    sum(rank_sum) FILTER (WHERE is_in) AS rank_sum
  FROM by_input
  GROUP BY study, template_id, judge
),
rates AS (
  SELECT
    *,
    hits / nullif(w, 0) AS accuracy,
    w * w / nullif(w_squares, 0) AS n_effective,
    n_here / nullif(n, 0) AS n_sides,
    CASE WHEN n_inputs > 1 THEN CAST(n_inputs AS DOUBLE) / (n_inputs - 1) / w / w END AS cr1
  FROM sums
),
errors AS (
  SELECT
    *,
    CASE WHEN cr1 > 0 THEN sqrt(clustered_variance(cr1 * residual_squares, hit_pair_squares / w / w, n_sides)) END
      AS accuracy_se,
    CASE WHEN cr1 > 0 THEN sqrt(clustered_variance(cr1 * loss_squares, loss_pair_squares / w / w, n_sides)) END
      AS brier_se
  FROM rates
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
  study, template_id, judge.*,
  n, n_inputs, n_no_confidence, n_no_truth, n_correct, n_split,
  accuracy,
  accuracy_se,
  ends.lo AS accuracy_lo,
  ends.hi AS accuracy_hi,
  wilson_lo(accuracy * n_effective, n_effective) AS accuracy_lo_these_items,
  wilson_hi(accuracy * n_effective, n_effective) AS accuracy_hi_these_items,
  sum_confidence / nullif(w, 0) AS confidence_mean,
  sum_confidence / nullif(w, 0) - accuracy AS overconfidence,
  sum_loss / nullif(w, 0) AS brier,
  brier_se,
  sum_reliability / nullif(w, 0) AS brier_reliability,
  sum_resolution / nullif(w, 0) AS brier_resolution,
  accuracy * (1 - accuracy) AS brier_uncertainty,
  sum_gap / nullif(w, 0) AS ece10,
  mce10,
  -- of two verdicts, not of the parts of one
  (rank_sum - (hits * hits - hit_squares) / 2) / nullif(hits * (w - hits) - hits_twice + hit_squares, 0) AS auroc
FROM bounded;
