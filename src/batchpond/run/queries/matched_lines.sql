-- The requests that the lines of a batch are matched to, with what a shard says of them; $mode is that of the batch.
WITH described AS (
    SELECT request_id, min(slot) AS slot, arg_min(template_id, slot) AS template_id,
           arg_min(rubric_id, slot) AS rubric_id, arg_min(thinking, slot) AS thinking,
           concat_ws(' before ', arg_min(item_first, slot), arg_min(item_second, slot)) AS items
    FROM wanted WHERE request_id IN (SELECT found_id FROM matched) GROUP BY request_id
)
SELECT given.custom_id, concat_ws(', ', d.template_id, d.rubric_id, r.request_model, d.thinking, d.items) AS example,
       r.request_id, r.size_bytes, r.estimated_input_tokens, r.max_output_tokens, r.filename,
       r.provider, r.endpoint, r.request_model, $mode AS mode, d.template_id, d.rubric_id, d.thinking, $tier AS tier,
       '' AS stage
FROM matched
JOIN given USING (line_no)
JOIN described AS d ON d.request_id = found_id
JOIN requests AS r ON r.request_id = found_id
ORDER BY d.slot
