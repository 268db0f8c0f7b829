-- The pairs that a stage chose, smaller id first.
{chosen}
SELECT DISTINCT rubric_id, least(item_first, item_second) AS lo, greatest(item_first, item_second) AS hi FROM chosen
