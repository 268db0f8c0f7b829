-- One scope's votes by unit, in the order of their numbers, and pair, whose items are numbered as in rank_items.
SELECT
  low.item_no AS lo,
  high.item_no AS hi,
  {unit} AS unit,
  CAST(COLUMNS('.*_with_.*') AS INTEGER)
FROM {counts} AS pairs
JOIN rank_items AS low ON low.name = pairs.lo_name
JOIN rank_items AS high ON high.name = pairs.hi_name
WHERE {where}
ORDER BY unit, lo, hi
