-- grain: study, template_id, provider, request_model, thinking, candidate
-- question: How often does a candidate model comply, once the judge's errors are corrected by people's labels?
-- source: the majorities of item_status over all statements, with the labels of `truths`.
-- estimators:
--   - compliance: the judge's own rate over all, Wilson
--   - people_compliance: the rate of the labels alone, Wilson
--   - sensitivity, specificity: of the judge on the n_labelled outputs, n_label_true and n_label_false
--   - ppi_compliance: PPI++ (prediction_powered), to be preferred where the labelled outputs are a random part of all;
--     normal (delta) 95 % interval, cut off at 0 and 1
--   - ppi_weight: how far the judge is believed
--   - rogan_gladen_compliance: the judge's rate on the n_unlabelled outputs, corrected by its sensitivity and
--     specificity, for labels that were collected elsewhere; normal (delta) 95 % interval, cut off at 0 and 1
-- reference: PPI++ and Rogan-Gladen as in prediction_powered and rogan_gladen.
-- nulls: no interval where fewer than 5 outputs (for Rogan-Gladen 5 of either label) are labelled, or where the
--   labelled show no spread: the error would be a number from nothing. rogan_gladen_compliance is NULL where the
--   judge's sensitivity and specificity add up to 1.05 or less.
-- note: outputs are taken for independent, though one statement may decide for many.

CREATE OR REPLACE VIEW metric_compliance_corrected AS
WITH judged AS (
  SELECT
    item_status.study, item_status.template_id, item_status.provider, item_status.request_model, item_status.thinking,
    item_status.candidate,
    CASE item_status.value WHEN 'true' THEN 1 ELSE 0 END AS f,
    CASE truths.truth WHEN 'true' THEN 1 WHEN 'false' THEN 0 END AS y
  FROM item_status
  LEFT JOIN truths
    ON truths.study = item_status.study
    AND truths.task = item_status.task
    AND truths.rubric_id = item_status.rubric_id
    AND truths.unit_id = item_status.unit_id
    AND truths.item_lo = item_status.item
    AND coalesce(truths.turn_no, -1) = coalesce(item_status.turn_no, -1)
  WHERE item_status.task = 'compliance'
    AND item_status.value IN ('true', 'false')
    AND item_status.provider <> 'human'
),
sums AS (
  SELECT
    study, template_id, provider, request_model, thinking, candidate,
    count(*) AS n_judged,
    count(y) AS n_labelled,
    CAST(sum(f) AS BIGINT) AS n_compliant,
    coalesce(CAST(sum(CASE WHEN y IS NOT NULL THEN f END) AS BIGINT), 0) AS n_labelled_compliant,
    coalesce(CAST(sum(y) AS BIGINT), 0) AS n_label_true,
    coalesce(CAST(sum(f * y) AS BIGINT), 0) AS n_both_true
  FROM judged
  GROUP BY study, template_id, provider, request_model, thinking, candidate
),
rates AS (
  SELECT
    *,
    n_judged - n_labelled AS n_unlabelled,
    n_labelled - n_label_true AS n_label_false,
    n_both_true / nullif(n_label_true, 0) AS sensitivity,
    (n_labelled - n_label_true - n_labelled_compliant + n_both_true) / nullif(n_labelled - n_label_true, 0)
      AS specificity,
    (n_compliant - n_labelled_compliant) / nullif(n_judged - n_labelled, 0) AS rate,
    ppi_weight(n_labelled, n_judged, n_label_true, n_labelled_compliant, n_both_true, n_compliant, n_compliant)
      AS ppi_weight
  FROM sums
),
measured AS (
  SELECT
    *,
    ppi_mean(n_labelled, n_judged, n_label_true, n_labelled_compliant, n_compliant, ppi_weight) AS ppi,
    ppi_mean_se(n_labelled, n_judged, n_label_true, n_label_true, n_labelled_compliant, n_labelled_compliant,
      n_both_true, n_compliant, n_compliant, ppi_weight) AS ppi_se,
    rogan_gladen(rate, sensitivity, specificity) AS rg,
    rogan_gladen_se(rate, n_unlabelled, sensitivity, n_label_true, specificity, n_label_false) AS rg_se
  FROM rates
)
SELECT
  study, template_id, provider, request_model, thinking, candidate,
  n_judged,
  n_labelled,
  n_unlabelled,
  n_label_true,
  n_label_false,
  n_compliant / n_judged AS compliance,
  wilson_lo(n_compliant, n_judged) AS compliance_lo,
  wilson_hi(n_compliant, n_judged) AS compliance_hi,
  n_label_true / nullif(n_labelled, 0) AS people_compliance,
  wilson_lo(n_label_true, n_labelled) AS people_compliance_lo,
  wilson_hi(n_label_true, n_labelled) AS people_compliance_hi,
  sensitivity,
  specificity,
  ppi_weight,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi)) END AS ppi_compliance,
  ppi_se AS ppi_compliance_se,
  CASE WHEN n_labelled >= 5 AND ppi_se > 0 THEN greatest(0.0, ppi - 1.959963984540054 * ppi_se) END
    AS ppi_compliance_lo,
  CASE WHEN n_labelled >= 5 AND ppi_se > 0 THEN least(1.0, ppi + 1.959963984540054 * ppi_se) END
    AS ppi_compliance_hi,
  CASE WHEN rg IS NOT NULL THEN greatest(0.0, least(1.0, rg)) END AS rogan_gladen_compliance,
  rg_se AS rogan_gladen_compliance_se,
  CASE WHEN n_label_true >= 5 AND n_label_false >= 5 AND rg_se > 0
       THEN greatest(0.0, rg - 1.959963984540054 * rg_se) END AS rogan_gladen_compliance_lo,
  CASE WHEN n_label_true >= 5 AND n_label_false >= 5 AND rg_se > 0
       THEN least(1.0, rg + 1.959963984540054 * rg_se) END AS rogan_gladen_compliance_hi
FROM measured;
