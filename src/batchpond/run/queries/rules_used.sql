-- The studies and answer rules of each shard.
SELECT DISTINCT shard_id, study, parser_id
FROM read_parquet($plan, hive_partitioning = FALSE) JOIN read_parquet($shards, hive_partitioning = FALSE)
  USING (request_id)
