-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: How much of each cell is there, what is lacking, and what came more than once?
-- source: results, counted by request_state; n_planned = answered + failed + missing + outstanding + unknown + unsent.
--   n_extra counts further answers to the cell's requests from other attempts, n_duplicate and n_conflict further lines
--   within one attempt. A list counts once.
CREATE OR REPLACE VIEW coverage AS
WITH states AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(*) AS n_planned,
    count(*) FILTER (WHERE request_state = 'answered') AS n_answered,
    count(*) FILTER (WHERE request_state = 'failed') AS n_failed,
    count(*) FILTER (WHERE request_state = 'missing') AS n_missing,
    count(*) FILTER (WHERE request_state = 'outstanding') AS n_outstanding,
    count(*) FILTER (WHERE request_state = 'unknown') AS n_unknown,
    count(*) FILTER (WHERE request_state = 'planned') AS n_unsent,
    count(*) FILTER (WHERE outcome = 'decided') AS n_decided,
    count(*) FILTER (WHERE outcome = 'tie') AS n_tie,
    CASE WHEN min(origin) = max(origin) THEN min(origin) WHEN min(origin) IS NOT NULL THEN 'mixed' END AS origin
  FROM results
  WHERE coalesce(list_place, 1) = 1
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
contested AS (
  SELECT DISTINCT request_id
  FROM responses_matched
  WHERE is_contested
),
others AS (
  SELECT
    responses.request_id,
    count(*) - 1 AS n_extra,
    0 AS n_duplicate,
    0 AS n_conflict
  FROM responses
  JOIN contested ON contested.request_id = responses.request_id
  WHERE responses.match = 'matched'
  GROUP BY responses.request_id
  UNION ALL
  SELECT
    request_id,
    0 AS n_extra,
    count(*) FILTER (WHERE responses.match = 'duplicate') AS n_duplicate,
    count(*) FILTER (WHERE responses.match = 'conflict') AS n_conflict
  FROM responses
  WHERE responses.match IN ('duplicate', 'conflict')
  GROUP BY request_id
),
further AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    CAST(sum(n_extra) AS BIGINT) AS n_extra,
    CAST(sum(n_duplicate) AS BIGINT) AS n_duplicate,
    CAST(sum(n_conflict) AS BIGINT) AS n_conflict
  FROM plan_current
  JOIN others ON others.request_id = plan_current.request_id
  WHERE coalesce(plan_current.list_place, 1) = 1
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
)
SELECT
  states.study,
  states.template_id,
  states.rubric_id,
  states.provider,
  states.request_model,
  states.thinking,
  states.n_planned,
  states.n_answered,
  states.n_failed,
  states.n_missing,
  states.n_outstanding,
  states.n_unknown,
  states.n_unsent,
  states.n_decided,
  states.n_tie,
  coalesce(further.n_extra, 0) AS n_extra,
  coalesce(further.n_duplicate, 0) AS n_duplicate,
  coalesce(further.n_conflict, 0) AS n_conflict,
  states.n_answered = states.n_planned AS is_complete,
  states.origin
FROM states
LEFT JOIN further
  ON further.study = states.study
  AND cell(further) = cell(states);
