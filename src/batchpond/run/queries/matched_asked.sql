-- The lines whose request is answered, or in an attempt that $told says something of.
SELECT line_no, CASE WHEN attempt_id IS NOT NULL THEN 'is answered in attempt ' || attempt_id ELSE told END AS problem
FROM matched
LEFT JOIN (
    SELECT request_id, min(attempt_id) AS attempt_id FROM responses
    WHERE match = 'matched' AND status = 'succeeded' GROUP BY request_id
) AS answered ON answered.request_id = found_id
LEFT JOIN (
    SELECT request_id, min(told) AS told
    FROM shard_requests JOIN (SELECT unnest($shard_ids) AS shard_id, unnest($told) AS told) USING (shard_id)
    GROUP BY request_id
) AS asked ON asked.request_id = found_id
WHERE attempt_id IS NOT NULL OR told IS NOT NULL
