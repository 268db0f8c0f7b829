-- Where each stage of these studies stands. An answer that its task has not read yet is as good as on its way.
SELECT
  study,
  stage,
  count(*) AS n_rows,
  count(*) FILTER (WHERE outcome IS NULL) AS n_open,
  count(*) FILTER (WHERE {good}) AS n_good,
  count(*) FILTER (WHERE outcome IS NULL AND request_state = 'answered') AS n_unread,
  max(round_no) AS round_no
FROM results
WHERE list_contains($studies, study)
GROUP BY study, stage
