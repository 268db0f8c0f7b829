-- How many requests two files share.
SELECT count(*) FROM (
  SELECT request_id FROM read_parquet($new, hive_partitioning = FALSE)
  INTERSECT SELECT request_id FROM read_parquet($old, hive_partitioning = FALSE)
)
