-- How far each stage has come: its turns or rounds, its first requests, and those of them that a shard holds.
SELECT stage, coalesce(max(turn_no), count(DISTINCT round_no) FILTER (purpose <> 'shared') - 1, 0),
       count(DISTINCT request_id) FILTER (round_no = 1),
       count(DISTINCT request_id) FILTER (round_no = 1 AND request_id IN (SELECT request_id FROM shard_requests))
FROM plan WHERE study_version = $1 GROUP BY stage
