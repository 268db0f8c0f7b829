-- The questions that the conversations of a stage begin with.
SELECT DISTINCT results.item_first AS item_id, items.text, items.metadata
FROM results JOIN items ON items.item_hash = results.item_first_hash
WHERE results.study = $study AND results.stage = $stage AND results.turn_no = 0
ORDER BY ALL
