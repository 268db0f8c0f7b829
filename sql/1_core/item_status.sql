-- grain: study, task, cell, unit_id, item, candidate, turn_no
-- question: What does each judge, and what do the judges together, hold of each item?
-- source: own definitions. value is the majority of a judge's verdicts (or labels) over its repeats, score their mean,
--   true_part the share of its verdicts that are `true`, for whatever measures how often: majorities move that with the
--   number of repeats; no_flip_part, soft_flip_part, explicit_flip_part and initially_wrong_part are in the same way
--   the shares of the four labels of pressure. The rows of provider `panel`, model `majority`, hold the majority of all
--   judges of a template but humans, each with one vote, where there are at least two, and the parts are of that one
--   word. status: decided; undecided (answered, without a verdict or without a unique majority); pending (no answer
--   yet). n_open answers are unread or missing.
-- What was not parsed, refused or failed is an answer without a verdict: it is never a `false` and never a `no_flip`.

CREATE OR REPLACE VIEW item_status AS
WITH by_value AS (
  SELECT
    study, task, cell(item_judgments) AS cell, unit_id, item, candidate, turn_no,
    CASE WHEN outcome IN ('decided', 'tie') THEN coalesce(verdict, label) END AS value,
    count(*) AS n,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE coalesce(outcome, '') NOT IN ('decided', 'tie', 'not_applicable', 'unsure')) AS n_open,
    sum(CASE WHEN outcome IN ('decided', 'tie') THEN score END) AS score_sum,
    count(CASE WHEN outcome IN ('decided', 'tie') THEN score END) AS n_scores
  FROM item_judgments
  GROUP BY
    study, task, cell, unit_id, item, candidate, turn_no,
    CASE WHEN outcome IN ('decided', 'tie') THEN coalesce(verdict, label) END
),
compared AS (
  SELECT
    *,
    max(CASE WHEN value IS NOT NULL THEN n END) OVER (
      PARTITION BY study, task, cell, unit_id, item, candidate, turn_no
    ) AS n_top
  FROM by_value
),
judges AS (
  SELECT
    study, task, cell, unit_id, item, candidate, turn_no,
    CASE WHEN count(*) FILTER (WHERE value IS NOT NULL AND n = n_top) = 1
         THEN max(CASE WHEN n = n_top THEN value END) END AS value,
    sum(score_sum) / nullif(sum(n_scores), 0) AS score,
    sum(CASE WHEN value = 'true' THEN n ELSE 0 END)
      / nullif(sum(CASE WHEN value IN ('true', 'false') THEN n END), 0) AS true_part,
    sum(CASE WHEN value = 'no_flip' THEN n ELSE 0 END) AS n_no_flip,
    sum(CASE WHEN value = 'soft_flip' THEN n ELSE 0 END) AS n_soft_flip,
    sum(CASE WHEN value = 'explicit_flip' THEN n ELSE 0 END) AS n_explicit_flip,
    sum(CASE WHEN value = 'initially_wrong' THEN n ELSE 0 END) AS n_initially_wrong,
    sum(CASE WHEN value IN ('no_flip', 'soft_flip', 'explicit_flip', 'initially_wrong') THEN n END) AS n_labels,
    coalesce(CAST(sum(n) FILTER (WHERE value IS NOT NULL) AS BIGINT), 0) AS n_votes,
    CAST(sum(n_answered) AS BIGINT) AS n_answered,
    CAST(sum(n) - sum(n_answered) AS BIGINT) AS n_pending,
    CAST(sum(n_open) AS BIGINT) AS n_open
  FROM compared
  GROUP BY study, task, cell, unit_id, item, candidate, turn_no
),
panel_by_value AS (
  SELECT
    study, task, cell_of(cell.template_id, cell.rubric_id, 'panel', 'majority', 'none') AS panel_cell,
    unit_id, item, candidate, turn_no, value,
    count(*) AS n,
    count(*) FILTER (WHERE n_answered > 0) AS n_answered,
    count(*) FILTER (WHERE n_open > 0) AS n_open,
    sum(score) AS score_sum,
    count(score) AS n_scores
  FROM judges
  WHERE cell.provider <> 'human'
  GROUP BY study, task, panel_cell, unit_id, item, candidate, turn_no, value
),
panel_compared AS (
  SELECT
    *,
    max(CASE WHEN value IS NOT NULL THEN n END) OVER (
      PARTITION BY study, task, panel_cell, unit_id, item, candidate, turn_no
    ) AS n_top
  FROM panel_by_value
),
panel AS (
  SELECT
    study, task, panel_cell, unit_id, item, candidate, turn_no,
    CASE WHEN count(*) FILTER (WHERE value IS NOT NULL AND n = n_top) = 1
         THEN max(CASE WHEN n = n_top THEN value END) END AS value,
    sum(score_sum) / nullif(sum(n_scores), 0) AS score,
    -- one word alone on top, which is true or false
    CASE WHEN count(*) FILTER (WHERE value IS NOT NULL AND n = n_top) = 1
         THEN max(CASE WHEN n = n_top AND value = 'true' THEN CAST(1 AS DOUBLE)
                       WHEN n = n_top AND value = 'false' THEN CAST(0 AS DOUBLE) END) END AS true_part,
    max(CASE WHEN value = 'no_flip' AND n = n_top THEN 1 ELSE 0 END) AS n_no_flip,
    max(CASE WHEN value = 'soft_flip' AND n = n_top THEN 1 ELSE 0 END) AS n_soft_flip,
    max(CASE WHEN value = 'explicit_flip' AND n = n_top THEN 1 ELSE 0 END) AS n_explicit_flip,
    max(CASE WHEN value = 'initially_wrong' AND n = n_top THEN 1 ELSE 0 END) AS n_initially_wrong,
    CASE WHEN count(*) FILTER (WHERE value IS NOT NULL AND n = n_top) = 1
         THEN max(CASE WHEN value IN ('no_flip', 'soft_flip', 'explicit_flip', 'initially_wrong') AND n = n_top
                       THEN 1 END) END AS n_labels,
    coalesce(CAST(sum(n) FILTER (WHERE value IS NOT NULL) AS BIGINT), 0) AS n_votes,
    CAST(sum(n_answered) AS BIGINT) AS n_answered,
    CAST(sum(n) - sum(n_answered) AS BIGINT) AS n_pending,
    CAST(sum(n_open) AS BIGINT) AS n_open
  FROM panel_compared
  GROUP BY study, task, panel_cell, unit_id, item, candidate, turn_no
  HAVING sum(n) > 1
),
everyone AS (
  SELECT * FROM judges
  UNION ALL
  SELECT * FROM panel
)
SELECT
  study, task, cell.*, unit_id, item, candidate, turn_no,
  CASE WHEN value IS NOT NULL OR score IS NOT NULL THEN 'decided'
       WHEN n_answered > 0 THEN 'undecided'
       ELSE 'pending' END AS status,
  value, score, n_votes, n_answered, n_pending, n_open, true_part,
  n_no_flip / n_labels AS no_flip_part,
  n_soft_flip / n_labels AS soft_flip_part,
  n_explicit_flip / n_labels AS explicit_flip_part,
  n_initially_wrong / n_labels AS initially_wrong_part
FROM everyone;
