-- What the answers of each attempt cost, and how many of them have no known cost.
SELECT attempt_id, sum(cost_usd), count(*) FILTER (status IN ('succeeded', 'unreadable') AND cost_usd IS NULL)
FROM responses GROUP BY attempt_id
