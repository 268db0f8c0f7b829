-- What the answers of each attempt cost; unknown where one of them has no known cost.
SELECT attempt_id, CASE WHEN count(*) FILTER (status IN ('succeeded', 'unreadable') AND cost_usd IS NULL) = 0
                        THEN coalesce(sum(cost_usd), 0.0) END
FROM responses GROUP BY attempt_id
