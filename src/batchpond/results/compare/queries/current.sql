-- What a study's current version asked, with what came of it, each answer once, and the judgments imported into it.
SELECT
  task, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second,
  candidate_first, candidate_second, turn_no, repeat_no, verdict, label, score, outcome, cost_usd, request_id, origin
FROM results
WHERE study = $study AND purpose IS DISTINCT FROM 'shared'
UNION ALL
SELECT
  coalesce(task, 'pairwise'), template_id, rubric_id, provider, request_model, thinking, unit_id, item_first,
  item_second, candidate_first, candidate_second, turn_no, repeat_no, verdict, label, score, outcome, cost_usd, NULL,
  coalesce(origin, 'imported')
FROM imported_judgments
WHERE study = $study AND purpose IS DISTINCT FROM 'shared'
