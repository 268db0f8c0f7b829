-- The lines that name their request by the same columns, each set of values looked up once.
INSERT INTO matched
SELECT line_no, coalesce(n, 0), found_id, differing
FROM given
LEFT JOIN (
  SELECT
    {columns}, count(DISTINCT request_id) AS n, min(request_id) AS found_id, concat_ws(', '{told}) AS differing
  FROM wanted
  GROUP BY {columns}
) AS found USING ({columns})
WHERE mask = $mask
