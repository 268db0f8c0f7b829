-- grain: study, task, cell, unit_id, item_lo, item_hi, turn_no
-- question: What did it cost to ask a judge about an item, or about a pair of items, in all orders and repeats?
-- source: calls, of models alone; the columns name a unit as jury_verdicts does. cost_usd is the sum of what is known,
--   n_cost_unknown the calls that a provider may have charged for and whose cost is not known; a call that answers for
--   several fields counts whole for each.

CREATE OR REPLACE VIEW judge_costs AS
WITH placed AS (
  SELECT
    study,
    CASE WHEN coalesce(task, 'pairwise') IN ('pairwise', 'ranking') THEN 'pair' ELSE task END AS task,
    cell(calls) AS cell, unit_id,
    CASE WHEN item_second IS NULL THEN coalesce(item_first, candidate_first) ELSE least(item_first, item_second) END
      AS item_lo,
    CASE WHEN item_second IS NOT NULL THEN greatest(item_first, item_second) END AS item_hi,
    CASE WHEN item_second IS NULL THEN CAST(turn_no AS BIGINT) END AS turn_no,
    outcome, error_class, cost_usd
  FROM calls
  WHERE provider <> 'human'
)
SELECT
  study, task, cell.*, unit_id, item_lo, item_hi, turn_no,
  sum(cost_usd) AS cost_usd,
  count(*) FILTER (
    WHERE cost_usd IS NULL
      AND (error_class = 'unreadable'
           OR (error_class IS NULL AND outcome NOT IN ('error', 'expired', 'cancelled', 'missing')))
  ) AS n_cost_unknown
FROM placed
GROUP BY study, task, cell, unit_id, item_lo, item_hi, turn_no;
