-- grain: request_id
-- question: Which response counts for each request?
-- source: the first success in the order in which attempts were sent; without a success, the last failure. A request
--   stands in one shard of the first kind, so only requests that some contested attempt answered need ranking.
CREATE OR REPLACE VIEW responses_accepted AS
WITH contested AS (
  SELECT DISTINCT responses.request_id
  FROM responses
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  WHERE attempts.is_contested AND responses.match = 'matched'
),
ranked AS (
  SELECT
    responses.*,
    attempts.attempt_order,
    row_number() OVER (
      PARTITION BY responses.request_id
      ORDER BY
        CASE WHEN responses.status = 'succeeded' THEN 0 ELSE 1 END,
        CASE WHEN responses.status = 'succeeded' THEN attempts.attempt_order ELSE -attempts.attempt_order END,
        responses.attempt_id
    ) AS place
  FROM responses
  JOIN contested ON contested.request_id = responses.request_id
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  WHERE responses.match = 'matched'
),
uncontested AS (
  SELECT
    responses.*,
    attempts.attempt_order,
    1 AS place
  FROM responses
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  LEFT JOIN contested ON contested.request_id = responses.request_id
  WHERE
    responses.match = 'matched'
    AND NOT attempts.is_contested
    AND contested.request_id IS NULL
),
either AS (
  SELECT * FROM uncontested
  UNION ALL
  SELECT * FROM ranked WHERE place = 1
)
SELECT
  request_id,
  attempt_id,
  attempt_order,
  provider,
  batch_id,
  file_id,
  file_role,
  line_number,
  custom_id,
  status,
  status_code,
  response_model,
  finish_reason,
  finish,
  text,
  thoughts,
  refusal,
  input_tokens,
  output_tokens,
  reasoning_tokens,
  cached_tokens,
  cost_usd,
  error_class,
  error_code,
  error_message,
  provider_request_id,
  origin
FROM either;
