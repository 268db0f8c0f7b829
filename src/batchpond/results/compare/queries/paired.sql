-- Each item, or pair of items, of each comparison, with what a and b hold of it; a or b is NULL where the other alone
-- asked about it. Where not one output of a candidate model is the same in both, it is inputs that are paired, and a
-- candidate's outputs for one input are averaged; not so for pairs of outputs.
CREATE OR REPLACE TEMP TABLE compare_paired AS
WITH placed AS (
  SELECT comparison_no, subjects.*
  FROM compare_subjects AS subjects
  JOIN compare_cells USING (side, task, template_id, rubric_id, provider, request_model, thinking, candidate)
),
by_item AS (
  SELECT comparison_no, statement, unit_id, item_lo, item_hi, turn_no
  FROM placed
  GROUP BY ALL
  HAVING count(DISTINCT side) = 2
),
keyed AS (
  SELECT
    * REPLACE (
      CASE WHEN candidate = '' OR unit_id = '' OR comparison_no IN (SELECT comparison_no FROM by_item) THEN item_lo
           ELSE '' END AS item_lo)
  FROM placed
),
held AS (
  SELECT
    comparison_no, side, task, statement, unit_id, item_lo, item_hi, turn_no,
    bool_or(is_of_unit) AS is_of_unit,
    CASE WHEN min(truth) = max(truth) THEN min(truth) END AS truth,
    {
      'said': CASE WHEN count(said) = count(*) AND min(said) = max(said) THEN min(said) END,
      'parts': CASE WHEN count(*) = 1 THEN any_value(parts)
                    WHEN count(said) = count(*) AND min(said) = max(said) THEN map([min(said)], [1.0::DOUBLE]) END,
      'n_calls': sum(n_calls), 'n_answered': sum(n_answered), 'n_priced': sum(n_priced), 'cost_usd': sum(cost_usd),
      'simulated_usd': sum(simulated_usd),
      'consistency': avg(consistency), 'first_rate': avg(first_rate), 'compliance': avg(compliance),
      'score': avg(score), 'accuracy': avg(accuracy), 'error': avg(error), 'unparsed': avg(unparsed),
      'refused': avg(refused), 'cost_per_call_usd': sum(cost_usd) / nullif(sum(n_priced), 0)
    } AS held
  FROM keyed
  GROUP BY ALL
)
SELECT
  comparison_no, task, statement, unit_id, item_lo, item_hi, turn_no,
  bool_or(is_of_unit) AS is_of_unit,
  max(truth) AS truth,
  any_value(held) FILTER (WHERE side = 'a') AS a,
  any_value(held) FILTER (WHERE side <> 'a') AS b
FROM held
GROUP BY ALL
