-- What is due in the order in which it is cut into shards, put aside too: what is sorted takes more than what is read.
-- Cells one after the other, as requests of one begin alike, and providers keep for minutes what they began with.
CREATE TEMP TABLE in_order AS
SELECT request_id, size_bytes, estimated_input_tokens, max_output_tokens, filename, mode, cell_no, tier, stage
FROM due
ORDER BY tier, model_no, mode, cell_no, slot;
DROP TABLE due
