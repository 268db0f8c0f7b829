-- How many planned requests of each study's version stand in no shard; what is void counts as none.
WITH planned AS (
  SELECT DISTINCT study, request_id FROM plan WHERE list_contains($versions, study_version)
), void AS (
  SELECT unnest(CAST($void_of AS VARCHAR[])) AS study, unnest(CAST($voidable AS VARCHAR[])) AS shard_id
), held AS (
  SELECT DISTINCT planned.study, planned.request_id
  FROM planned
  JOIN shard_requests ON shard_requests.request_id = planned.request_id
  LEFT JOIN void ON void.study = planned.study AND void.shard_id = shard_requests.shard_id
  WHERE void.shard_id IS NULL AND NOT list_contains($voided, shard_requests.shard_id)
)
SELECT planned.study, count(*) FROM planned ANTI JOIN held USING (study, request_id) GROUP BY planned.study
