SELECT request_id, size_bytes, estimated_input_tokens, group_number, count(*) OVER (PARTITION BY group_number)
FROM asked JOIN groups USING (cell_number, tier)
WHERE NOT is_answered AND NOT is_in_shard ORDER BY group_number, slot
