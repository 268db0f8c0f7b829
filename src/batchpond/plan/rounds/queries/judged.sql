-- The items that a stage judged, each with the rubrics that it was chosen by.
{chosen}
, judged AS (
  SELECT item_first AS item_id, item_first_hash AS item_hash, rubric_id FROM chosen
  UNION
  SELECT item_second, item_second_hash, rubric_id FROM chosen WHERE item_second IS NOT NULL
)
SELECT judged.item_id, items.text, items.metadata,
       list(DISTINCT judged.rubric_id ORDER BY judged.rubric_id) AS judged_by
FROM judged JOIN items ON items.item_hash = judged.item_hash
GROUP BY ALL
ORDER BY item_id, items.text, items.metadata
