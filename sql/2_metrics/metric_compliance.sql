-- grain: study, template_id, rubric_id, provider, request_model, thinking, candidate
-- question: How often does a candidate model comply with one statement, by one judge?
-- source: item_status of task compliance, one vote per item.
-- estimators:
--   - compliance: n_compliant / n_valid with a Wilson interval
--   - compliance_min, compliance_max: what the n_null items, answered without a verdict and out of the rate, leave
--     open: all of them failed, or all complied
-- reference: SpecEval, which reports compliance_min.
-- nulls: compliance is NULL where n_valid is 0, its bounds where nothing is answered.
-- note: provider `panel` is the majority of the judges, `human` the people; filter by provider before adding up rows.

CREATE OR REPLACE VIEW metric_compliance AS
WITH counts AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, candidate,
    count(*) FILTER (WHERE status <> 'pending') AS n_answered,
    count(*) FILTER (WHERE value IN ('true', 'false')) AS n_valid,
    count(*) FILTER (WHERE value = 'true') AS n_compliant,
    count(*) FILTER (WHERE status <> 'pending' AND value IS NULL) AS n_null,
    count(*) FILTER (WHERE status = 'pending') AS n_pending
  FROM item_status
  WHERE task = 'compliance'
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, candidate
)
SELECT
  *,
  n_compliant / nullif(n_valid, 0) AS compliance,
  wilson_lo(n_compliant, n_valid) AS compliance_lo,
  wilson_hi(n_compliant, n_valid) AS compliance_hi,
  n_compliant / nullif(n_answered, 0) AS compliance_min,
  (n_compliant + n_null) / nullif(n_answered, 0) AS compliance_max
FROM counts;
