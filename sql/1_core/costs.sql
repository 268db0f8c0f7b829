-- grain: study, provider, request_model, origin
-- question: What was each study expected to cost, what may it cost at most, and what has it cost so far?
-- source: estimates are those that the batches were approved with, for batches that reached the provider or may have,
--   those left out that failed whole and unbilled and wait to be sent again; actual costs are those of all matched
--   lines of the study's batches, retries included, and of the answers to its current requests that batches of other
--   studies asked for (n_elsewhere, cost_elsewhere_usd: over several studies they stand with each). n_earlier counts
--   answers that the current version does not plan: an earlier one did, or they were forgotten. A request that several
--   cells share counts once. Planned requests meet answers in one join, since each side has a row per request: an answer
--   to a request of its own study is counted before, and there only found to be planned. An unknown price stays NULL and
--   is counted, never taken for zero: an estimate is NULL as soon as that of one batch is.
CREATE OR REPLACE VIEW costs AS
WITH planned AS (
  SELECT DISTINCT study, request_id
  FROM plan_current
),
answers AS (
  SELECT
    attempts.study, attempts.provider, attempts.request_model,
    responses.request_id, responses.origin, responses.status,
    responses.input_tokens, responses.output_tokens, responses.reasoning_tokens, responses.cached_tokens,
    responses.cost_usd
  FROM responses
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  WHERE responses.match = 'matched'
)
SELECT
  coalesce(estimated.study, actual.study) AS study,
  coalesce(estimated.provider, actual.provider) AS provider,
  coalesce(estimated.request_model, actual.request_model) AS request_model,
  coalesce(estimated.origin, actual.origin) AS origin,
  coalesce(estimated.n_batches, 0) AS n_batches,
  coalesce(estimated.n_sent, 0) AS n_sent,
  coalesce(actual.n_responses, 0) AS n_responses,
  coalesce(actual.n_elsewhere, 0) AS n_elsewhere,
  coalesce(actual.n_earlier, 0) AS n_earlier,
  coalesce(actual.n_succeeded, 0) AS n_succeeded,
  coalesce(actual.n_cost_unknown, 0) AS n_cost_unknown,
  actual.input_tokens,
  actual.output_tokens,
  actual.reasoning_tokens,
  actual.cached_tokens,
  estimated.cost_expected_usd,
  estimated.cost_max_usd,
  actual.cost_usd,
  actual.cost_elsewhere_usd
FROM (
  SELECT
    study,
    provider,
    request_model,
    coalesce(origin, 'unspecified') AS origin,
    count(*) AS n_batches,
    sum(n_requests) AS n_sent,
    CASE WHEN count(cost_expected_usd) = count(*) THEN sum(cost_expected_usd) END AS cost_expected_usd,
    CASE WHEN count(cost_max_usd) = count(*) THEN sum(cost_max_usd) END AS cost_max_usd
  FROM attempts
  WHERE (is_in_flight OR attempt_state IN ('verified', 'mismatch', 'lost')) AND NOT is_requeued
  GROUP BY study, provider, request_model, coalesce(origin, 'unspecified')
) AS estimated
FULL OUTER JOIN (
  SELECT
    counts_for AS study,
    provider,
    request_model,
    coalesce(origin, 'unspecified') AS origin,
    count(*) FILTER (WHERE is_counted) AS n_responses,
    count(*) FILTER (WHERE is_elsewhere) AS n_elsewhere,
    count(*) FILTER (WHERE is_counted AND NOT is_elsewhere) - count(*) FILTER (WHERE NOT is_counted) AS n_earlier,
    count(*) FILTER (WHERE is_counted AND status = 'succeeded') AS n_succeeded,
    count(*) FILTER (WHERE is_counted AND status IN ('succeeded', 'unreadable') AND cost_usd IS NULL)
      AS n_cost_unknown,
    sum(input_tokens) FILTER (WHERE is_counted) AS input_tokens,
    sum(output_tokens) FILTER (WHERE is_counted) AS output_tokens,
    sum(reasoning_tokens) FILTER (WHERE is_counted) AS reasoning_tokens,
    sum(cached_tokens) FILTER (WHERE is_counted) AS cached_tokens,
    sum(cost_usd) FILTER (WHERE is_counted) AS cost_usd,
    sum(cost_usd) FILTER (WHERE is_elsewhere) AS cost_elsewhere_usd
  FROM (
    SELECT answers.study AS counts_for, answers.*, TRUE AS is_counted, FALSE AS is_elsewhere
    FROM answers
    UNION ALL
    SELECT
      planned.study AS counts_for,
      answers.*,
      planned.study <> answers.study AS is_counted,
      planned.study <> answers.study AS is_elsewhere
    FROM answers
    JOIN planned ON planned.request_id = answers.request_id
  ) AS counted
  GROUP BY counts_for, provider, request_model, coalesce(origin, 'unspecified')
) AS actual
  ON actual.study = estimated.study
  AND actual.provider = estimated.provider
  AND actual.request_model = estimated.request_model
  AND actual.origin = estimated.origin;
