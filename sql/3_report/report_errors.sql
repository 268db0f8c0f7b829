-- grain: study, provider, request_model, level, outcome, error_class, error_code
-- question: What goes wrong, how often, and what does one message look like?
-- source: planned requests whose outcome is neither a decision nor a tie, and batches that failed as a whole, were
--   given up or need attention. The example is the first message in binary order, so that it does not change from run to run.
CREATE OR REPLACE VIEW report_errors AS
-- What was said is looked up for these few alone: the texts of all requests would fill the memory.
WITH failed AS (
  SELECT
    study, provider, request_model, outcome, error_class, error_code, custom_id, request_id, file_id, line_number
  FROM results
  WHERE outcome IS NOT NULL AND outcome NOT IN ('decided', 'tie') AND coalesce(list_place, 1) = 1
)
SELECT
  failed.study,
  failed.provider,
  failed.request_model,
  'request' AS level,
  failed.outcome,
  failed.error_class,
  failed.error_code,
  count(*) AS n,
  min(substr(coalesce(said.error_message, said.refusal, said.text), 1, 300)) AS example_message,
  min(failed.custom_id) AS example_id
FROM failed
LEFT JOIN responses AS said
  ON said.request_id = failed.request_id
  AND said.file_id = failed.file_id
  AND said.line_number = failed.line_number
GROUP BY
  failed.study, failed.provider, failed.request_model, failed.outcome, failed.error_class, failed.error_code
UNION ALL
SELECT
  study,
  provider,
  request_model,
  'batch' AS level,
  CASE WHEN needs_attention OR attempt_state IN ('rejected', 'lost') THEN attempt_state ELSE batch_state END AS outcome,
  CAST(NULL AS VARCHAR) AS error_class,
  CASE WHEN batch_state = 'failed' OR attempt_state = 'rejected' THEN reason END AS error_code,
  count(*) AS n,
  min(substr(coalesce(message, reason), 1, 300)) AS example_message,
  min(coalesce(batch_id, attempt_id)) AS example_id
FROM attempts
WHERE needs_attention OR attempt_state IN ('rejected', 'lost') OR batch_state IN ('failed', 'expired', 'cancelled')
GROUP BY
  study,
  provider,
  request_model,
  CASE WHEN needs_attention OR attempt_state IN ('rejected', 'lost') THEN attempt_state ELSE batch_state END,
  CASE WHEN batch_state = 'failed' OR attempt_state = 'rejected' THEN reason END;
