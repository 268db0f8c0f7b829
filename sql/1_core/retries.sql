-- grain: shard_id
-- question: Which shards ask again for what was asked before, and have not been given up?
-- source: the events that make and void shards.
CREATE OR REPLACE VIEW retries AS
SELECT shard_id, max(study_version) AS study_version
FROM events
WHERE kind = 'voided' OR (kind = 'sharded' AND shard_kind = 'retry')
GROUP BY shard_id
HAVING count(*) FILTER (WHERE kind = 'voided') = 0;
