-- grain: study, provider, request_model
-- question: How far is each study with each model, what did it cost so far, and how long has its oldest batch waited?
-- source: results by request_state (each planned row counts; a request that cells share counts in each), costs, and
--   the batches in flight. A model that only earlier versions of the study asked has a row too, with nothing planned:
--   what it cost was spent. Where only some of a model's answers are simulated, those of earlier versions among
--   them, cost_usd leaves them out. Age runs from the provider's creation time, or from sending where that is not known.
CREATE OR REPLACE VIEW report_status AS
WITH states AS (
  SELECT
    study,
    provider,
    request_model,
    count(*) AS n_planned,
    count(*) FILTER (WHERE request_state = 'planned') AS n_unsent,
    count(*) FILTER (WHERE request_state = 'outstanding') AS n_outstanding,
    count(*) FILTER (WHERE request_state = 'answered') AS n_answered,
    count(*) FILTER (WHERE request_state = 'failed') AS n_failed,
    count(*) FILTER (WHERE request_state = 'missing') AS n_missing,
    count(*) FILTER (WHERE request_state = 'unknown') AS n_unknown,
    CASE WHEN min(origin) = max(origin) THEN min(origin) WHEN min(origin) IS NOT NULL THEN 'mixed' END AS origin
  FROM (SELECT *, coalesce(response_origin, asked_origin) AS origin FROM request_states)
  WHERE coalesce(list_place, 1) = 1
  GROUP BY study, provider, request_model
)
SELECT
  coalesce(states.study, spent.study) AS study,
  coalesce(states.provider, spent.provider) AS provider,
  coalesce(states.request_model, spent.request_model) AS request_model,
  coalesce(states.n_planned, 0) AS n_planned,
  coalesce(states.n_unsent, 0) AS n_unsent,
  coalesce(states.n_outstanding, 0) AS n_outstanding,
  coalesce(states.n_answered, 0) AS n_answered,
  coalesce(states.n_failed, 0) AS n_failed,
  coalesce(states.n_missing, 0) AS n_missing,
  coalesce(states.n_unknown, 0) AS n_unknown,
  coalesce(flying.n_batches_open, 0) AS n_batches_open,
  coalesce(flying.n_batches_settled, 0) AS n_batches_settled,
  coalesce(flying.n_batches_attention, 0) AS n_batches_attention,
  flying.oldest_open_at,
  greatest(0, epoch(current_timestamp) - epoch(flying.oldest_open_at)) AS oldest_open_age_s,
  flying.next_expires_at,
  spent.cost_expected_usd,
  spent.cost_max_usd,
  spent.cost_usd,
  coalesce(spent.n_cost_unknown, 0) AS n_cost_unknown,
  CASE WHEN states.origin = 'simulated' AND spent.origin <> 'simulated' THEN 'mixed'
       ELSE coalesce(states.origin, spent.origin) END AS origin
FROM states
FULL OUTER JOIN (
  SELECT
    costs.study,
    costs.provider,
    costs.request_model,
    CASE
      WHEN min(costs.origin) = 'simulated' AND max(costs.origin) = 'simulated' THEN sum(costs.cost_usd)
      ELSE sum(costs.cost_usd) FILTER (WHERE costs.origin <> 'simulated')
    END AS cost_usd,
    sum(costs.cost_expected_usd) AS cost_expected_usd,
    sum(costs.cost_max_usd) AS cost_max_usd,
    sum(costs.n_cost_unknown) AS n_cost_unknown,
    CASE WHEN min(costs.origin) = max(costs.origin) THEN min(costs.origin) ELSE 'mixed' END AS origin
  FROM studies_current
  JOIN costs ON costs.study = studies_current.study
  GROUP BY costs.study, costs.provider, costs.request_model
) AS spent
  ON spent.study = states.study
  AND spent.provider = states.provider
  AND spent.request_model = states.request_model
LEFT JOIN (
  SELECT
    study,
    provider,
    request_model,
    count(*) FILTER (WHERE is_in_flight) AS n_batches_open,
    count(*) FILTER (WHERE is_settled) AS n_batches_settled,
    count(*) FILTER (WHERE needs_attention) AS n_batches_attention,
    min(coalesce(created_at, sent_at, intended_at)) FILTER (WHERE is_in_flight) AS oldest_open_at,
    min(expires_at) FILTER (WHERE is_in_flight AND NOT is_terminal) AS next_expires_at
  FROM attempts
  GROUP BY study, provider, request_model
) AS flying
  ON flying.study = coalesce(states.study, spent.study)
  AND flying.provider = coalesce(states.provider, spent.provider)
  AND flying.request_model = coalesce(states.request_model, spent.request_model);
