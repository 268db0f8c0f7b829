-- grain: study, provider, request_model, origin
-- question: What was each study expected to cost, what may it cost at most, and what has it cost so far?
-- source: estimates are those that the batches were approved with, for batches that reached the provider or may have,
--   those left out that failed whole and unbilled and wait to be sent again; actual costs are those of all matched
--   lines of the study's batches, retries included, and of the answers to its current requests that batches of other
--   studies asked for (n_elsewhere, cost_elsewhere_usd: over several studies they stand with each). n_earlier counts
--   answers that the current version does not plan: an earlier one did, or they were forgotten. A request that several
--   cells share counts once. Plan and answers, which have a row per request, meet in one join of no more than their ids;
--   what it leaves, `apart`, are the few answers that their own study does not plan, or that another plans (planned_by).
--   An unknown price stays NULL and is counted, never taken for zero: an estimate is NULL as soon as that of one batch
--   is.
CREATE OR REPLACE VIEW costs AS
WITH apart AS (
  SELECT DISTINCT answers.study, answers.request_id, plan_current.study AS planned_by
  FROM responses_matched AS answers
  LEFT JOIN plan_current ON plan_current.request_id = answers.request_id
  WHERE plan_current.study IS NULL OR plan_current.study <> answers.study
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
  coalesce(earlier.n_answers, 0) AS n_earlier,
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
    count(*) AS n_responses,
    count(*) FILTER (WHERE is_elsewhere) AS n_elsewhere,
    count(*) FILTER (WHERE status = 'succeeded') AS n_succeeded,
    count(*) FILTER (WHERE status IN ('succeeded', 'unreadable') AND cost_usd IS NULL) AS n_cost_unknown,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    sum(reasoning_tokens) AS reasoning_tokens,
    sum(cached_tokens) AS cached_tokens,
    sum(cost_usd) AS cost_usd,
    sum(cost_usd) FILTER (WHERE is_elsewhere) AS cost_elsewhere_usd
  FROM (
    SELECT answers.study AS counts_for, answers.*, FALSE AS is_elsewhere
    FROM responses_matched AS answers
    UNION ALL
    SELECT apart.planned_by AS counts_for, answers.*, TRUE AS is_elsewhere
    FROM responses_matched AS answers
    JOIN apart ON apart.request_id = answers.request_id AND apart.study = answers.study
    WHERE apart.planned_by IS NOT NULL
  ) AS counted
  GROUP BY counts_for, provider, request_model, coalesce(origin, 'unspecified')
) AS actual
  ON actual.study = estimated.study
  AND actual.provider = estimated.provider
  AND actual.request_model = estimated.request_model
  AND actual.origin = estimated.origin
LEFT JOIN (
  SELECT
    answers.study,
    answers.provider,
    answers.request_model,
    coalesce(answers.origin, 'unspecified') AS origin,
    count(*) AS n_answers
  FROM responses_matched AS answers
  JOIN (
    SELECT DISTINCT apart.study, apart.request_id
    FROM apart
    LEFT JOIN plan_current ON plan_current.study = apart.study AND plan_current.request_id = apart.request_id
    WHERE plan_current.request_id IS NULL
  ) AS unplanned
    ON unplanned.request_id = answers.request_id AND unplanned.study = answers.study
  GROUP BY answers.study, answers.provider, answers.request_model, coalesce(answers.origin, 'unspecified')
) AS earlier
  ON earlier.study = actual.study
  AND earlier.provider = actual.provider
  AND earlier.request_model = actual.request_model
  AND earlier.origin = actual.origin;
