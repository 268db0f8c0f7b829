-- What each cell of a side holds of each item, or pair of items: the majority in each order, and numbers for it.
CREATE OR REPLACE TEMP TABLE compare_subjects AS
WITH votes AS (
  SELECT
    side, task, template_id, rubric_id, provider, request_model, thinking, candidate,
    statement, unit_id, item_lo, item_hi, turn_no, is_lo_first, vote,
    bool_or(is_of_unit) AS is_of_unit,
    count(*) AS n,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_error,
    count(*) FILTER (WHERE outcome IN ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unparsed,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refused,
    sum(score) AS score_sum,
    count(score) AS n_scores,
    sum(cost_usd) AS cost_usd,
    sum(cost_usd) FILTER (WHERE origin = 'simulated') AS simulated_usd,
    count(cost_usd) AS n_priced
  FROM compare_said
  GROUP BY ALL
),
orders AS (
  SELECT
    * EXCLUDE (vote, n, is_of_unit, n_answered, n_error, n_unparsed, n_refused, score_sum, n_scores, cost_usd,
      simulated_usd, n_priced),
    max_by(vote, n) FILTER (WHERE vote IS NOT NULL) AS top,
    max(n, 2) FILTER (WHERE vote IS NOT NULL) AS most,
    bool_or(is_of_unit) AS is_of_unit,
    sum(n) AS n,
    sum(n_answered) AS n_answered,
    sum(n_error) AS n_error,
    sum(n_unparsed) AS n_unparsed,
    sum(n_refused) AS n_refused,
    sum(score_sum) AS score_sum,
    sum(n_scores) AS n_scores,
    sum(cost_usd) AS cost_usd,
    sum(simulated_usd) AS simulated_usd,
    sum(n_priced) AS n_priced
  FROM votes
  GROUP BY ALL
),
majorities AS (
  SELECT *, CASE WHEN len(most) = 1 OR most[1] > most[2] THEN top END AS majority
  FROM orders
),
subjects AS (
  SELECT
    side, task, template_id, rubric_id, provider, request_model, thinking, candidate,
    statement, unit_id, item_lo, item_hi, turn_no,
    bool_or(is_of_unit) AS is_of_unit,
    max(majority) FILTER (WHERE is_lo_first) AS lo_first,
    max(majority) FILTER (WHERE NOT is_lo_first) AS hi_first,
    CAST(sum(n) AS BIGINT) AS n_calls,
    CAST(sum(n_answered) AS BIGINT) AS n_answered,
    CAST(sum(n_priced) AS BIGINT) AS n_priced,
    sum(n_error) / nullif(sum(n_answered), 0) AS error,
    sum(n_unparsed) / nullif(sum(n_answered) - sum(n_error), 0) AS unparsed,
    sum(n_refused) / nullif(sum(n_answered) - sum(n_error), 0) AS refused,
    -- of a pair it is of a place
    sum(score_sum) FILTER (WHERE task <> 'pair') / nullif(sum(n_scores), 0) AS score,
    sum(cost_usd) AS cost_usd,
    sum(simulated_usd) AS simulated_usd
  FROM majorities
  GROUP BY ALL
),
held AS (
  SELECT
    task, coalesce(rubric_id, '') AS rubric_id, coalesce(unit_id, '') AS unit_id, item_lo,
    coalesce(item_hi, '') AS item_hi, coalesce(turn_no, 0) AS turn_no,
    CASE WHEN min(truth) = max(truth) THEN min(truth) END AS truth,
    CASE WHEN min(truth_words) = max(truth_words) THEN min(truth_words) END AS truth_words
  FROM truths
  WHERE study IN (SELECT study FROM compare_said)
  GROUP BY ALL
)
SELECT
  subjects.*,
  held.truth,
  CASE WHEN lo_first = hi_first OR hi_first IS NULL THEN coalesce(lo_first, CAST(score AS VARCHAR))
       WHEN lo_first IS NULL THEN hi_first
       ELSE 'by order' END AS said,
  CASE WHEN subjects.task = 'pair' THEN CAST(lo_first = hi_first AS DOUBLE) END AS consistency,
  CASE WHEN subjects.task = 'pair' THEN
    (CASE lo_first WHEN 'lo' THEN 1.0 WHEN 'tie' THEN 0.5 WHEN 'hi' THEN 0.0 END
      + CASE hi_first WHEN 'hi' THEN 1.0 WHEN 'tie' THEN 0.5 WHEN 'lo' THEN 0.0 END) / 2 END AS first_rate,
  CASE WHEN subjects.task = 'compliance' THEN CASE lo_first WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END END
    AS compliance,
  list_avg([truth_part(lo_first, held.truth_words), truth_part(hi_first, held.truth_words)]) AS accuracy
FROM subjects
LEFT JOIN held
  ON held.task = subjects.task
  AND held.rubric_id = CASE WHEN subjects.task = 'compliance' THEN subjects.statement ELSE subjects.rubric_id END
  AND held.unit_id = subjects.unit_id
  AND held.item_lo = subjects.item_lo
  AND held.item_hi = subjects.item_hi
  AND held.turn_no = subjects.turn_no
