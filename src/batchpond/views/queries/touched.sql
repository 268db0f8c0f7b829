-- The attempts whose rows events in files of events may change, beside each shard of such an attempt.
WITH found AS (SELECT attempt_id, shard_id, kind FROM read_parquet($paths, hive_partitioning = FALSE)),
known AS (
  SELECT attempt_id, shard_id FROM found WHERE kind = 'intent'
  UNION SELECT attempt_id, shard_id FROM attempts
),
shards AS (
  SELECT shard_id FROM found WHERE kind IN ('intent', 'voided')
  UNION SELECT known.shard_id FROM known JOIN found ON found.attempt_id = known.attempt_id
)
SELECT known.attempt_id, shards.shard_id FROM shards LEFT JOIN known ON known.shard_id = shards.shard_id
ORDER BY ALL
