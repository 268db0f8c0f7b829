-- The other shards that hold any request of one.
SELECT DISTINCT shard_id FROM shard_requests
WHERE shard_id <> $1 AND request_id IN (SELECT request_id FROM shard_requests WHERE shard_id = $1) ORDER BY shard_id
