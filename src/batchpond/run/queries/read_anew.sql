-- How often an answer, or an error, is read so by the reader of the study and so by another one.
SELECT task, before, after, count(*) AS n_answers
FROM (
  SELECT DISTINCT request_id, results.parser_id, task,
         coalesce(results.verdict, results.label, results.score::VARCHAR, results.outcome) AS before,
         coalesce(judgments.verdict, judgments.label, judgments.score::VARCHAR, judgments.outcome) AS after
  FROM results JOIN judgments USING (request_id, file_id, line_number)
  WHERE study = $study AND request_state IN ('answered', 'failed')
    AND judgments.parser_id = regexp_replace(results.parser_id, '-r[0-9]+$', '') || $name
)
GROUP BY ALL ORDER BY n_answers DESC, task, before, after
