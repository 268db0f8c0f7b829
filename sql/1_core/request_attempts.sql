-- grain: request_id
-- question: Which attempt asked each request last, and where does that attempt stand?
-- source: the newest attempt of the request's shard, shards that were given up left out; a request that is also in
--   shards of retries, or of adopted batches, has the newest of all those. custom_id is what its result line carries:
--   the batch's own where another tool made it, else made of both ids.
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
    shard_requests.custom_id AS given_custom_id,
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
  SELECT shard_requests.request_id, shard_requests.custom_id AS given_custom_id, newest.*
  FROM shard_requests
  JOIN newest ON newest.shard_id = shard_requests.shard_id
  LEFT JOIN retried ON retried.request_id = shard_requests.request_id
  WHERE newest.shard_kind = 'first' AND retried.request_id IS NULL
),
either AS (
  SELECT * FROM once
  UNION ALL
  SELECT
    request_id, given_custom_id, shard_id, shard_kind, attempt_id, attempt_state, is_in_flight, batch_id,
    provider_status, origin, attempt_order
  FROM ranked
  WHERE place = 1
)
SELECT
  request_id,
  shard_id,
  shard_kind,
  attempt_id,
  attempt_state,
  is_in_flight,
  batch_id,
  provider_status,
  origin,
  attempt_order,
  coalesce(given_custom_id, substr(attempt_id, 1, 10) || '-' || substr(request_id, 1, 20)) AS custom_id
FROM either;
