-- The requests that are due, in the order in which they are cut into shards; what stands in braces is a query of its own.
WITH wanted AS (
  SELECT request_id, min(slot) AS slot, min(pair_id) AS pair_id, min(cell_id) AS cell_id,
         min(template_id) AS template_id, min(rubric_id) AS rubric_id, min(thinking) AS thinking, min(mode) AS mode,
         min(coalesce(tier, 1)) AS tier, min(stage) AS stage, max(round_no) AS round_no
  FROM plan WHERE study = $study AND study_version = $version
  GROUP BY request_id
), sampled AS (
  {sampled}
), asked AS (
  SELECT request_id, list_contains($live, shard_id) AS is_live
  FROM shard_requests WHERE NOT list_contains($void, shard_id)
), held AS (
  SELECT request_id FROM asked WHERE is_live OR NOT $again
), {chosen}, due AS (
  SELECT s.request_id, r.size_bytes, r.estimated_input_tokens, r.max_output_tokens, r.filename,
         r.provider, r.endpoint, r.request_model, s.mode, s.cell_id, s.template_id, s.rubric_id, s.thinking, s.slot,
         s.tier, s.stage
  FROM sampled s
  JOIN requests r USING (request_id)
  ANTI JOIN held USING (request_id)
  WHERE NOT $again OR s.request_id IN (SELECT request_id FROM chosen)
)
SELECT * EXCLUDE (slot, cell_id), CASE WHEN $per_cell THEN cell_id ELSE '' END AS cell_group,
       concat_ws(chr(31), tier, provider, endpoint, request_model, mode, cell_group) AS "group"
FROM due
ORDER BY tier, provider, endpoint, request_model, mode, cell_group, slot
