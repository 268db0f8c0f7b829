-- grain: study, cell
-- question: What does a cell cost, and what is the price of one comparison that can be used?
-- source: calls of all tasks, of models alone. Cells that share requests each show the full cost, so their sum can
--   exceed the bill: `costs` counts a request once.
-- estimators:
--   - cost_usd: sum of the known costs; a lower bound where n_cost_unknown > 0
--   - cost_spent_usd, cost_simulated_usd: of it what was money, and what simulated answers would have cost
--   - cost_per_call_usd: per call, over the calls with a known cost
--   - cost_per_valid_verdict_usd: per valid verdict, over outcomes decided and tie
--   - cost_per_decided_pair_usd: per decided pair, over the pairs with the same winner in both orders
--   - input_tokens_p50, input_tokens_p95, output_tokens_p50, output_tokens_p95: percentiles, interpolated linearly
-- reference: own definitions.
-- nulls: an unknown cost is not 0: when an answer that came back, readable or not, has none (n_cost_unknown > 0) the
--   prices per verdict and per pair are NULL; an error, or an answer that never came
--   back, may have none.
-- note: percentiles come from counts per token number, in the one scan of the grouping sets: a quantile function would
--   hold every row in memory.

CREATE OR REPLACE VIEW metric_cost AS
WITH grouped AS (
  SELECT
    study, cell(calls) AS cell,
    CASE WHEN grouping(input_tokens) = 0 THEN 'input' WHEN grouping(output_tokens) = 0 THEN 'output' ELSE 'cell' END
      AS level,
    CASE WHEN grouping(input_tokens) = 0 THEN input_tokens ELSE output_tokens END AS tokens,
    count(*) AS n,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_returned,
    count(*) FILTER (WHERE outcome IN ('decided', 'tie')) AS n_valid,
    count(cost_usd) AS n_cost_known,
    count(*) FILTER (
      WHERE cost_usd IS NULL
        AND (error_class = 'unreadable'
             OR (error_class IS NULL AND outcome NOT IN ('error', 'expired', 'cancelled', 'missing')))
    ) AS n_cost_unknown,
    sum(cost_usd) AS cost_usd,
    sum(cost_usd) FILTER (WHERE origin IS NULL OR origin <> 'simulated') AS cost_spent_usd,
    sum(cost_usd) FILTER (WHERE origin = 'simulated') AS cost_simulated_usd
  FROM calls
  GROUP BY GROUPING SETS (
    (study, cell),
    (study, cell, input_tokens),
    (study, cell, output_tokens)
  )
),
cumulated AS (
  SELECT
    study, cell, level, tokens, n,
    sum(n) OVER (PARTITION BY study, cell, level ORDER BY tokens) AS n_up_to,
    CAST(sum(n) OVER (PARTITION BY study, cell, level) - 1 AS DOUBLE) AS last_rank
  FROM grouped
  WHERE level <> 'cell' AND tokens IS NOT NULL
),
percentiles AS (
  SELECT
    study, cell, level,
    CAST(sum(n * tokens) AS BIGINT) AS tokens,
    min(tokens) FILTER (WHERE n_up_to > floor(0.50 * last_rank)) AS p50_below,
    min(tokens) FILTER (WHERE n_up_to > ceil(0.50 * last_rank)) AS p50_above,
    max(0.50 * last_rank - floor(0.50 * last_rank)) AS p50_part,
    min(tokens) FILTER (WHERE n_up_to > floor(0.95 * last_rank)) AS p95_below,
    min(tokens) FILTER (WHERE n_up_to > ceil(0.95 * last_rank)) AS p95_above,
    max(0.95 * last_rank - floor(0.95 * last_rank)) AS p95_part
  FROM cumulated
  GROUP BY study, cell, level
),
parts AS (
  SELECT
    study, cell, level,
    n_answered, n_returned, n_valid, n_cost_known, n_cost_unknown, cost_usd, cost_spent_usd, cost_simulated_usd,
    CAST(NULL AS BIGINT) AS n_consistent_win,
    CAST(NULL AS BIGINT) AS tokens, CAST(NULL AS DOUBLE) AS p50, CAST(NULL AS DOUBLE) AS p95
  FROM grouped
  WHERE level = 'cell'
  UNION ALL
  SELECT
    study, cell, level,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    tokens, p50_below + p50_part * (p50_above - p50_below), p95_below + p95_part * (p95_above - p95_below)
  FROM percentiles
  UNION ALL
  SELECT
    study, cell(pair_status) AS cell, 'pairs',
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(*) FILTER (WHERE status = 'consistent_win'),
    NULL, NULL, NULL
  FROM pair_status
  GROUP BY study, cell
),
cells AS (
  SELECT
    study, cell,
    max(n_answered) AS n_answered,
    max(n_returned) AS n_returned,
    max(n_valid) AS n_valid,
    max(n_consistent_win) AS n_consistent_win,
    max(n_cost_known) AS n_cost_known,
    max(n_cost_unknown) AS n_cost_unknown,
    max(cost_usd) AS cost_usd,
    max(cost_spent_usd) AS cost_spent_usd,
    max(cost_simulated_usd) AS cost_simulated_usd,
    max(tokens) FILTER (WHERE level = 'input') AS input_tokens,
    max(p50) FILTER (WHERE level = 'input') AS input_tokens_p50,
    max(p95) FILTER (WHERE level = 'input') AS input_tokens_p95,
    max(tokens) FILTER (WHERE level = 'output') AS output_tokens,
    max(p50) FILTER (WHERE level = 'output') AS output_tokens_p50,
    max(p95) FILTER (WHERE level = 'output') AS output_tokens_p95
  FROM parts
  GROUP BY study, cell
)
SELECT
  study, cell.*,
  n_answered, n_returned, n_valid, n_consistent_win, n_cost_known, n_cost_unknown,
  cost_usd, cost_spent_usd, cost_simulated_usd,
  cost_usd / nullif(n_cost_known, 0) AS cost_per_call_usd,
  CASE WHEN n_cost_unknown = 0 THEN cost_usd / nullif(n_valid, 0) END AS cost_per_valid_verdict_usd,
  CASE WHEN n_cost_unknown = 0 THEN cost_usd / nullif(n_consistent_win, 0) END AS cost_per_decided_pair_usd,
  input_tokens, input_tokens_p50, input_tokens_p95,
  output_tokens, output_tokens_p50, output_tokens_p95
FROM cells
WHERE cell.provider <> 'human';
