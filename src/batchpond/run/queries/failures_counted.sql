-- How many requests failed, by model and class, and how many of them may be asked once more.
WITH {failed}, planned AS (
  SELECT DISTINCT request_id FROM plan WHERE study = $study AND study_version = $version
)
SELECT r.provider, r.request_model, failed.error_class, count(*),
       count(*) FILTER (WHERE list_contains($classes, failed.error_class)),
       count(*) FILTER (WHERE list_contains($classes, failed.error_class) AND failed.n_attempts < $max_attempts)
FROM failed
JOIN planned USING (request_id)
JOIN requests r USING (request_id)
GROUP BY ALL ORDER BY ALL
