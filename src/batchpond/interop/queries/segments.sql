-- The batches of pairwiseLLM's layout: a file each, and one of what came in no batch.
SELECT coalesce(batch_id, origin) AS segment, any_value(batch_id), any_value(backend), any_value(model)
FROM layout_rows
GROUP BY segment
ORDER BY segment
