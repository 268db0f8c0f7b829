-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: What does a cell cost, and what is the price of one comparison that can be used?
-- source: cost_usd = sum of the known costs; per call over the calls with a known cost, per valid verdict over
--   outcomes decided and tie, per decided pair over the pairs with the same winner in both orders. Token percentiles
--   interpolate linearly.
-- An unknown cost is not 0: when a returned answer has none (n_cost_unknown > 0) the prices per verdict and per pair
-- are NULL and cost_usd is a lower bound; an answer that never came back may have none. Cells that share requests
-- each show the full cost, so their sum can exceed the bill: `costs` counts a request once.

CREATE OR REPLACE VIEW metric_cost AS
WITH calls AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(outcome) AS n_answered,
    count(outcome) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_returned,
    count(*) FILTER (WHERE outcome IN ('decided', 'tie')) AS n_valid,
    count(cost_usd) AS n_cost_known,
    count(*) FILTER (WHERE cost_usd IS NULL AND outcome NOT IN ('error', 'expired', 'cancelled', 'missing'))
      AS n_cost_unknown,
    sum(cost_usd) AS cost_usd,
    CAST(sum(input_tokens) AS BIGINT) AS input_tokens,
    CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
    quantile_cont(input_tokens, 0.5) AS input_tokens_p50,
    quantile_cont(input_tokens, 0.95) AS input_tokens_p95,
    quantile_cont(output_tokens, 0.5) AS output_tokens_p50,
    quantile_cont(output_tokens, 0.95) AS output_tokens_p95
  FROM pair_judgments
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
pairs AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(*) FILTER (WHERE status = 'consistent_win') AS n_consistent_win
  FROM pair_status
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
)
SELECT
  calls.study, calls.template_id, calls.rubric_id, calls.provider, calls.request_model, calls.thinking,
  n_answered, n_returned, n_valid, n_consistent_win, n_cost_known, n_cost_unknown,
  cost_usd,
  cost_usd / nullif(n_cost_known, 0) AS cost_per_call_usd,
  CASE WHEN n_cost_unknown = 0 THEN cost_usd / nullif(n_valid, 0) END AS cost_per_valid_verdict_usd,
  CASE WHEN n_cost_unknown = 0 THEN cost_usd / nullif(n_consistent_win, 0) END AS cost_per_decided_pair_usd,
  input_tokens, input_tokens_p50, input_tokens_p95,
  output_tokens, output_tokens_p50, output_tokens_p95
FROM calls
JOIN pairs
  ON calls.study IS NOT DISTINCT FROM pairs.study
  AND calls.template_id IS NOT DISTINCT FROM pairs.template_id
  AND calls.rubric_id IS NOT DISTINCT FROM pairs.rubric_id
  AND calls.provider IS NOT DISTINCT FROM pairs.provider
  AND calls.request_model IS NOT DISTINCT FROM pairs.request_model
  AND calls.thinking IS NOT DISTINCT FROM pairs.thinking;
