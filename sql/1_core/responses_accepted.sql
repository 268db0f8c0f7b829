-- grain: request_id
-- question: Which response counts for each request?
-- source: the first success in the order in which attempts were sent; without a success, the last failure. A request
--   stands in one shard of the first kind, so only requests that some contested attempt answered need ranking.
CREATE OR REPLACE VIEW responses_accepted AS
WITH answers AS (
  SELECT responses.*, attempts.attempt_order, attempts.is_contested
  FROM responses
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  WHERE responses.match = 'matched'
),
winners AS (
  SELECT
    request_id,
    coalesce(
      min_by(attempt_id, attempt_order) FILTER (WHERE status = 'succeeded'),
      max_by(attempt_id, attempt_order)
    ) AS attempt_id
  FROM answers
  WHERE request_id IN (SELECT request_id FROM answers WHERE is_contested)
  GROUP BY request_id
)
SELECT
  answers.request_id,
  answers.attempt_id,
  answers.attempt_order,
  answers.provider,
  answers.batch_id,
  answers.file_id,
  answers.file_role,
  answers.line_number,
  answers.custom_id,
  answers.status,
  answers.status_code,
  answers.response_model,
  answers.finish_reason,
  answers.finish,
  answers.text,
  answers.thoughts,
  answers.refusal,
  answers.input_tokens,
  answers.output_tokens,
  answers.reasoning_tokens,
  answers.cached_tokens,
  answers.cost_usd,
  answers.error_class,
  answers.error_code,
  answers.error_message,
  answers.provider_request_id,
  answers.origin
FROM answers
LEFT JOIN winners ON winners.request_id = answers.request_id
WHERE winners.request_id IS NULL OR winners.attempt_id = answers.attempt_id;
