-- grain: study, slot
-- question: How far is each planned request of every study's current version, and which response counts for it?
-- source: the plan, the response that counts for the request (responses_accepted), and the attempt that asked last.
--   `results` says what request_state can be, and adds what the answer was read as, which whoever counts requests need
--   not look up.
CREATE OR REPLACE VIEW request_states AS
SELECT
  plan_current.*,
  response.request_id AS response_request_id,
  response.attempt_id AS response_attempt_id,
  response.batch_id AS response_batch_id,
  response.custom_id AS response_custom_id,
  response.origin AS response_origin,
  response.file_id,
  response.line_number,
  response.status,
  response.status_code,
  response.response_model,
  response.finish_reason,
  response.finish,
  response.text,
  response.thoughts,
  response.refusal,
  response.input_tokens,
  response.output_tokens,
  response.reasoning_tokens,
  response.cached_tokens,
  response.cost_usd,
  response.error_class,
  response.error_code,
  response.error_message,
  response.provider_request_id,
  asked.attempt_id AS asked_attempt_id,
  asked.batch_id AS asked_batch_id,
  asked.custom_id AS asked_custom_id,
  asked.attempt_state,
  asked.origin AS asked_origin,
  CASE
    WHEN response.status = 'succeeded' THEN 'answered'
    WHEN
      asked.is_in_flight
      AND (response.request_id IS NULL OR asked.attempt_order > response.attempt_order)
      THEN CASE WHEN asked.attempt_state IN ('unknown', 'missing_remote') THEN 'unknown' ELSE 'outstanding' END
    WHEN waiting.request_id IS NOT NULL THEN 'planned'
    WHEN response.request_id IS NOT NULL THEN 'failed'
    WHEN asked.is_requeued THEN 'planned'
    WHEN asked.attempt_state IN ('verified', 'mismatch', 'lost') THEN 'missing'
    ELSE 'planned'
  END AS request_state
FROM plan_current
LEFT JOIN responses_accepted AS response ON response.request_id = plan_current.request_id
LEFT JOIN request_attempts AS asked ON asked.request_id = plan_current.request_id
LEFT JOIN (
  SELECT DISTINCT retries.study_version, shard_requests.request_id
  FROM retries
  JOIN shard_requests ON shard_requests.shard_id = retries.shard_id
  LEFT JOIN attempts ON attempts.shard_id = retries.shard_id AND attempts.is_newest
  WHERE coalesce(attempts.attempt_state, 'intent') IN ('intent', 'uploaded', 'rejected', 'absent')
) AS waiting
  ON waiting.request_id = plan_current.request_id
  AND waiting.study_version = plan_current.study_version;
