-- The requests that are due; what stands in braces is a query of its own. A row has the number of its cell, whose words
-- would take most of what is sorted. They are put aside before that: what is joined would be held while they are sorted.
CREATE OR REPLACE TEMP TABLE due AS
WITH wanted AS (
  SELECT request_id, min(slot) AS slot, min(pair_id) AS pair_id, min(cell_no) AS cell_no,
         min(CAST(mode AS due_mode)) AS mode, min(coalesce(tier, 1)) AS tier, min(CAST(stage AS due_stage)) AS stage,
         max(round_no) AS round_no
  FROM plan JOIN due_cells USING (cell_id) WHERE study = $study AND study_version = $version
  GROUP BY request_id
), sampled AS (
  {sampled}
), asked AS (
  SELECT request_id, list_contains($live, shard_id) AS is_live
  FROM shard_requests WHERE NOT list_contains($void, shard_id)
), held AS (
  SELECT request_id FROM asked WHERE is_live OR NOT $again
), {chosen}, lacking AS (
  SELECT s.request_id, r.size_bytes, r.estimated_input_tokens, r.max_output_tokens, r.filename, s.mode, s.cell_no,
         s.slot, s.tier, s.stage
  FROM sampled s
  JOIN (SELECT * REPLACE (CAST(filename AS due_filename) AS filename) FROM requests) r USING (request_id)
  ANTI JOIN held USING (request_id)
  WHERE NOT $again OR s.request_id IN (SELECT request_id FROM chosen)
)
SELECT lacking.*, model_no FROM lacking JOIN due_cells USING (cell_no)
