-- What an earlier version of a study asked, with what came of it: the response that counts, as that version read it.
SELECT
  task, template_id, rubric_id, plan.provider, request_model, thinking, unit_id, item_first, item_second,
  candidate_first, candidate_second, turn_no, repeat_no, judgment.verdict, judgment.label, judgment.score,
  CASE WHEN response.status = 'succeeded' THEN judgment.outcome
       ELSE coalesce(judgment.outcome,
         CASE WHEN response.status IN ('expired', 'cancelled') THEN response.status
              WHEN response.status IS NOT NULL THEN 'error' END) END AS outcome,
  response.cost_usd, plan.request_id, response.origin
FROM plan
LEFT JOIN (
  SELECT study_version, max_by(coalesce(ordinal, 1), ord) AS reader
  FROM events
  WHERE kind = 'planned' AND study = $study
  GROUP BY study_version
) AS planned ON planned.study_version = plan.study_version
LEFT JOIN responses_accepted AS response ON response.request_id = plan.request_id
LEFT JOIN judgments AS judgment
  ON judgment.request_id = response.request_id
  AND judgment.attempt_id = response.attempt_id
  AND judgment.line_number = response.line_number
  AND judgment.parser_id = CASE WHEN planned.reader > 1 THEN plan.parser_id || '-r' || planned.reader
                                ELSE plan.parser_id END
WHERE plan.study = $study AND plan.study_version = $version
