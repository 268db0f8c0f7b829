WITH counted AS (
    SELECT
        cell_number, count(*) AS n_requests,
        count(*) FILTER (NOT is_answered AND NOT is_in_shard) AS n_to_ask,
        sum(estimated_input_tokens) FILTER (NOT is_answered AND NOT is_in_shard) AS tokens,
        sum(size_bytes) FILTER (NOT is_answered AND NOT is_in_shard) AS size_bytes
    FROM asked GROUP BY cell_number
)
SELECT
    cells.* exclude (n_plan_rows), n_plan_rows, coalesce(n_requests, 0), coalesce(n_to_ask, 0),
    cast(coalesce(tokens, 0) AS bigint), cast(coalesce(size_bytes, 0) AS bigint)
FROM cells LEFT JOIN counted ON counted.cell_number = cells.number ORDER BY number
