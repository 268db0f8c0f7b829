-- How many planned requests of each study's version stand in no shard; what is void counts as none.
WITH planned AS (
  SELECT DISTINCT study, request_id FROM plan WHERE list_contains($versions, study_version)
), held AS (
  SELECT request_id FROM shard_requests WHERE NOT list_contains($void, shard_id)
)
SELECT study, count(*) FROM planned ANTI JOIN held USING (request_id) GROUP BY study
