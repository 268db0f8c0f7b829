-- Comparisons of outputs that no generation, given or in the lake, shows to be those candidates'.
WITH outputs AS (SELECT item_id FROM texts UNION SELECT item_id FROM items)
SELECT
  line_no, place, candidate_first, candidate_second,
  (other_first IN (FROM outputs) AND item_first NOT IN (FROM outputs))
    OR (other_second IN (FROM outputs) AND item_second NOT IN (FROM outputs)) AS is_swapped
FROM given
WHERE other_first IS NOT NULL AND NOT (item_first IN (FROM outputs) AND item_second IN (FROM outputs))
ORDER BY line_no
