-- The items that a stage has asked about.
WITH shown AS (
  SELECT item_first AS item_id, item_first_hash AS item_hash FROM plan_current WHERE study = $study AND stage = $stage
  UNION
  SELECT item_second, item_second_hash FROM plan_current WHERE study = $study AND stage = $stage
)
SELECT shown.item_id, items.text, items.metadata
FROM shown JOIN items ON items.item_hash = shown.item_hash
ORDER BY ALL
