-- grain: request_id
-- question: Which attempt asked each request last, and where does that attempt stand?
-- source: the newest attempt of the request's shard, shards that were given up left out; a request that is also in shards of retries has the newest of
--   all those.
CREATE OR REPLACE VIEW request_attempts AS
WITH placed AS (
  SELECT
    shard_id,
    shard_kind,
    attempt_id,
    attempt_state,
    is_in_flight,
    batch_id,
    provider_status,
    origin,
    attempt_order,
    row_number() OVER (PARTITION BY shard_id ORDER BY ordinal DESC, attempt_order DESC) AS place
  FROM attempts
  WHERE NOT is_void
),
newest AS (
  SELECT shard_id, shard_kind, attempt_id, attempt_state, is_in_flight, batch_id, provider_status, origin, attempt_order
  FROM placed
  WHERE place = 1
),
retried AS (
  SELECT DISTINCT shard_requests.request_id
  FROM shard_requests
  JOIN newest ON newest.shard_id = shard_requests.shard_id
  WHERE newest.shard_kind <> 'first'
),
ranked AS (
  SELECT
    shard_requests.request_id,
    newest.*,
    row_number() OVER (
      PARTITION BY shard_requests.request_id
      ORDER BY newest.attempt_order DESC, newest.attempt_id
    ) AS place
  FROM shard_requests
  JOIN retried ON retried.request_id = shard_requests.request_id
  JOIN newest ON newest.shard_id = shard_requests.shard_id
),
once AS (
  SELECT shard_requests.request_id, newest.*
  FROM shard_requests
  JOIN newest ON newest.shard_id = shard_requests.shard_id
  LEFT JOIN retried ON retried.request_id = shard_requests.request_id
  WHERE newest.shard_kind = 'first' AND retried.request_id IS NULL
)
SELECT * FROM once
UNION ALL
SELECT
  request_id, shard_id, shard_kind, attempt_id, attempt_state, is_in_flight, batch_id, provider_status, origin,
  attempt_order
FROM ranked
WHERE place = 1;
