-- What the answers of some attempts cost, and how many of them have no known price.
SELECT sum(cost_usd), count(*) FILTER (status IN ('succeeded', 'unreadable') AND cost_usd IS NULL)
FROM responses WHERE list_contains($1, attempt_id)
