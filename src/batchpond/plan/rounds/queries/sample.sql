-- The results of a sample of a study's requests: rows outside it are as if they were not planned, until they are asked
-- or answered all the same.
WITH wanted AS (
  SELECT request_id, min(slot) AS slot, min(pair_id) AS pair_id, min(stage) AS stage, max(round_no) AS round_no
  FROM plan_current
  WHERE list_contains($studies, study)
  GROUP BY request_id
), sampled AS (
  {sampled}
), results AS (
  SELECT results.*
  FROM main.results
  LEFT JOIN sampled USING (request_id)
  WHERE list_contains($studies, results.study) AND (
    sampled.request_id IS NOT NULL OR request_state <> 'planned' OR list_contains($whole, results.stage)
  )
)
{standings}
