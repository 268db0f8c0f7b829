-- How many requests about pairs, or lists, several of the studies ask: one answer stands for all of them.
SELECT count(*)
FROM (
  SELECT request_id
  FROM plan_current
  WHERE list_contains($studies, study) AND task IN ('pairwise', 'ranking', 'listwise')
  GROUP BY request_id
  HAVING min(study) <> max(study)
) AS asked
