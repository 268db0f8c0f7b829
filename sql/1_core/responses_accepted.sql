-- grain: request_id
-- question: Which response counts for each request?
-- source: the first success in the order in which attempts were sent; without a success, the last failure. A request
--   stands in one shard of the first kind, so only requests that some contested attempt answered need ranking.
CREATE OR REPLACE VIEW responses_accepted AS
SELECT
  responses.request_id,
  responses.attempt_id,
  attempts.attempt_order,
  responses.provider,
  responses.batch_id,
  responses.file_id,
  responses.file_role,
  responses.line_number,
  responses.custom_id,
  responses.status,
  responses.status_code,
  responses.response_model,
  responses.finish_reason,
  responses.finish,
  responses.text,
  responses.thoughts,
  responses.refusal,
  responses.input_tokens,
  responses.output_tokens,
  responses.reasoning_tokens,
  responses.cached_tokens,
  responses.cost_usd,
  responses.error_class,
  responses.error_code,
  responses.error_message,
  responses.provider_request_id,
  responses.origin
FROM responses
JOIN attempts ON attempts.attempt_id = responses.attempt_id
LEFT JOIN (
  SELECT
    responses.request_id,
    coalesce(
      min_by(responses.attempt_id, attempts.attempt_order) FILTER (WHERE responses.status = 'succeeded'),
      max_by(responses.attempt_id, attempts.attempt_order)
    ) AS attempt_id
  FROM responses
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  WHERE responses.match = 'matched' AND responses.request_id IN (
    SELECT responses.request_id
    FROM responses
    JOIN attempts ON attempts.attempt_id = responses.attempt_id
    WHERE responses.match = 'matched' AND attempts.is_contested
  )
  GROUP BY responses.request_id
) AS winners
  ON winners.request_id = responses.request_id
WHERE responses.match = 'matched' AND (winners.request_id IS NULL OR winners.attempt_id = responses.attempt_id);
