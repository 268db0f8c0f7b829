-- Some of a version's different requests, by a digest of their ids: what all of them make would be held at once.
CREATE OR REPLACE TEMP TABLE some_asked AS
WITH firsts AS (
    SELECT request_id, min(slot) AS slot, arg_min(number, slot) AS cell_number, min(coalesce(tier, 1)) AS tier
    FROM plan JOIN cells ON cells.cell_id = plan.cell_id
    WHERE study = $study AND study_version = $version
        AND hash(request_id) % CAST($n_parts AS UBIGINT) = CAST($part AS UBIGINT)
    GROUP BY request_id
)
SELECT
    f.slot, f.cell_number, f.tier, r.request_id, r.size_bytes, r.estimated_input_tokens,
    FALSE AS is_answered,
    EXISTS (SELECT 1 FROM shard_requests AS s WHERE s.request_id = r.request_id) AS is_in_shard
FROM firsts AS f
JOIN requests AS r ON r.request_id = f.request_id
