-- A file's rows that hold a judgment, texts still; of another lake's results, what is not answered yet and the texts
-- that its stages made ({made}) are none, and an answer that this lake has is in its figures already. A decision is told by its
-- verdict or, where there is none, by its label or score.
CREATE TEMP VIEW judgments_given AS
SELECT *, task IN ({pairs}) AS is_pair
FROM (
  SELECT
    * REPLACE (coalesce(task, 'pairwise') AS task),
    coalesce(verdict, outcome, CASE WHEN coalesce(label, score) IS NOT NULL THEN 'decided' END) AS word
  FROM {given}
) AS told
WHERE (request_state IS NULL OR (task NOT IN ({made}) AND word IS NOT NULL))
  AND NOT EXISTS (
    SELECT 1 FROM responses WHERE responses.batch_id = told.batch_id AND responses.custom_id = told.custom_id
  )
