-- The lists that stages answered with, each with what it was made from.
WITH chosen AS (
  SELECT * FROM results WHERE study = $study AND list_contains($stages, stage) AND {good} AND (
    $where
  )
)
SELECT chosen.stage, chosen.item_first AS parent_id, nullif(chosen.rubric_id, '') AS rubric_id, chosen.text,
       items.metadata
FROM chosen JOIN items ON items.item_hash = chosen.item_first_hash
ORDER BY ALL
