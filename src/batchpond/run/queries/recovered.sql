-- How many requests a study plans, asks live, has in shards that are not void, and has answers to.
WITH wanted AS (
  SELECT request_id, bool_and(mode = $live) AS is_live
  FROM plan WHERE study = $study AND study_version = $version GROUP BY request_id
), answered AS (
  SELECT DISTINCT request_id FROM responses WHERE match = 'matched' AND status = 'succeeded'
)
SELECT count(*), count(*) FILTER (is_live),
       count(*) FILTER (request_id IN (SELECT request_id FROM shard_requests WHERE NOT list_contains($void, shard_id))),
       count(*) FILTER (request_id IN (SELECT request_id FROM answered))
FROM wanted
