-- A systematic sample: each unit at which the count of n-ths, begun at random, goes up by one.
SELECT *, md5_number_lower(lot) % 2 = 0 AS is_lo_first
FROM (
    SELECT
        *, row_number() OVER ({within}ORDER BY {order}) AS place, count(*) OVER ({within}) AS n_open, {n} AS n,
        CAST(floor($start * count(*) OVER ({within})) AS BIGINT) AS start
    FROM (SELECT *, md5($seed || unit_key) AS lot FROM ({units}) WHERE is_to_draw AND NOT is_labelled)
)
WHERE (place * least(n, n_open) + start) // n_open > ((place - 1) * least(n, n_open) + start) // n_open
ORDER BY md5(lot)
