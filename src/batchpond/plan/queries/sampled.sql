-- A sample of so many requests of the first round, each stage's in turn, in an order by pair that never changes: both
-- directions and all cells of a pair come together, and a larger sample contains a smaller one. What is asked in later
-- rounds follows from it, so that all of that belongs to it.
SELECT * FROM wanted WHERE round_no > 1 OR request_id IN (
  SELECT request_id FROM (
    SELECT request_id, slot, row_number() OVER (PARTITION BY stage ORDER BY pair_id, slot) AS place
    FROM wanted WHERE round_no = 1
  ) ORDER BY place, slot LIMIT {n}
)
