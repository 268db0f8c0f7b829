-- grain: study, provider, request_model, origin
-- question: What was each study expected to cost, what may it cost at most, and what has it cost so far?
-- source: estimates are those that the batches were approved with, for batches that reached the provider or may have,
--   those left out that failed whole and unbilled and wait to be sent again; actual costs are those of all matched
--   lines of the study's batches, retries included, and of the answers to its current requests that batches of other
--   studies asked for (n_elsewhere, cost_elsewhere_usd: over several studies they stand with each). n_earlier counts
--   answers that the current version does not plan: an earlier one did, or they were forgotten. A request that several
--   cells share counts once. An unknown price stays NULL and is counted, never taken for zero: an estimate is NULL as
--   soon as that of one batch is.
CREATE OR REPLACE VIEW costs AS
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
    asked.study,
    attempts.provider,
    attempts.request_model,
    coalesce(responses.origin, 'unspecified') AS origin,
    count(*) AS n_responses,
    count(*) FILTER (WHERE attempts.study <> asked.study) AS n_elsewhere,
    count(*) FILTER (WHERE NOT asked.is_planned) AS n_earlier,
    count(*) FILTER (WHERE responses.status = 'succeeded') AS n_succeeded,
    count(*) FILTER (WHERE responses.status IN ('succeeded', 'unreadable') AND responses.cost_usd IS NULL)
      AS n_cost_unknown,
    sum(responses.input_tokens) AS input_tokens,
    sum(responses.output_tokens) AS output_tokens,
    sum(responses.reasoning_tokens) AS reasoning_tokens,
    sum(responses.cached_tokens) AS cached_tokens,
    sum(responses.cost_usd) AS cost_usd,
    sum(responses.cost_usd) FILTER (WHERE attempts.study <> asked.study) AS cost_elsewhere_usd
  FROM (
    SELECT study, request_id, max(is_planned) AS is_planned
    FROM (
      SELECT study, request_id, TRUE AS is_planned
      FROM plan_current
      UNION ALL
      SELECT attempts.study, shard_requests.request_id, FALSE AS is_planned
      FROM attempts
      JOIN shard_requests ON shard_requests.shard_id = attempts.shard_id
    ) AS wanted_or_sent
    GROUP BY study, request_id
  ) AS asked
  JOIN responses ON responses.request_id = asked.request_id
  JOIN attempts ON attempts.attempt_id = responses.attempt_id
  WHERE responses.match = 'matched' AND (asked.is_planned OR attempts.study = asked.study)
  GROUP BY asked.study, attempts.provider, attempts.request_model, coalesce(responses.origin, 'unspecified')
) AS actual
  ON actual.study = estimated.study
  AND actual.provider = estimated.provider
  AND actual.request_model = estimated.request_model
  AND actual.origin = estimated.origin;
