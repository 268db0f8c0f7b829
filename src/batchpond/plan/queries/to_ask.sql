-- What is to be asked in the order in which it is cut: by tier, then what shares a shard, then cell by cell, as planned.
-- Sorted are numbers alone.
SELECT 'of slot ' || slot AS request_id, size_bytes, estimated_input_tokens, CAST(group_number AS VARCHAR) AS "group"
FROM (
    SELECT group_number, cell_number, slot, size_bytes, estimated_input_tokens FROM asked JOIN groups USING (cell_number, tier)
    WHERE NOT is_answered AND NOT is_in_shard ORDER BY group_number, cell_number, slot
)
