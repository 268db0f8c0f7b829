-- grain: request_id
-- question: Which attempt asked each request last, and where does that attempt stand?
-- source: the newest attempt of the request's shard, shards that were given up left out; a request that is also in
--   shards of retries, or of adopted batches, has the newest of all those. custom_id is what its result line carries:
--   the batch's own where another tool made it, else made of both ids.
CREATE OR REPLACE VIEW request_attempts AS
WITH asked AS (
  SELECT
    shard_requests.request_id,
    shard_requests.custom_id AS given_custom_id,
    attempts.shard_id,
    attempts.shard_kind,
    attempts.attempt_id,
    attempts.attempt_state,
    attempts.is_in_flight,
    attempts.is_requeued,
    attempts.batch_id,
    attempts.provider_status,
    attempts.origin,
    attempts.attempt_order
  FROM shard_requests
  JOIN attempts ON attempts.shard_id = shard_requests.shard_id
  WHERE attempts.is_newest
),
last_asked AS (
  SELECT request_id, max_by(attempt_id, attempt_order) AS attempt_id
  FROM asked
  WHERE request_id IN (SELECT request_id FROM asked WHERE shard_kind <> 'first')
  GROUP BY request_id
)
SELECT
  asked.request_id,
  asked.shard_id,
  asked.shard_kind,
  asked.attempt_id,
  asked.attempt_state,
  asked.is_in_flight,
  asked.is_requeued,
  asked.batch_id,
  asked.provider_status,
  asked.origin,
  asked.attempt_order,
  coalesce(asked.given_custom_id, substr(asked.attempt_id, 1, 10) || '-' || substr(asked.request_id, 1, 20))
    AS custom_id
FROM asked
LEFT JOIN last_asked ON last_asked.request_id = asked.request_id
WHERE last_asked.request_id IS NULL OR last_asked.attempt_id = asked.attempt_id;
