-- grain: study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item_lo, item_hi, turn_no
-- question: What did each judge say about each item, or about each pair of items in each order, as one vote?
-- source: pair_status and item_status, majorities over a judge's repeats. task is `pair` for pairwise and ranking:
--   vote_1 is the majority when item_lo was shown first, vote_2 when item_hi was, each `first`, `second` or `tie` about
--   the items as shown. A person, whose order is a matter of lot, has one vote on a pair, in vote_1, as if item_lo had
--   been shown first: what more than half of their labels say, in whichever order. For the other tasks vote_1 is the verdict or label, else the score as text, vote_2 is NULL and
--   item_lo is the item. NULL without a majority. is_open_1 and is_open_2: answers that are unread or missing may still
--   make the vote, or another; where both votes are NULL for good, the row is left out.
-- Votes about places, not items: two judges who both always name the first item agree by their bias, and chance
-- corrected figures see that only when the categories are places. The row of provider `human`, model `majority` is what
-- `truths` says, for likert scores the mean over people, given to every template of the study and task.
-- is_of_unit: what is judged is known to be models' outputs, which are drawn with their prompt. Pairs that lists imply
-- are left out, here as in the views that take pairs as draws.

CREATE OR REPLACE VIEW agreement_votes AS
WITH pairs AS MATERIALIZED (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_lo, item_hi,
    CASE WHEN provider = 'human' THEN CASE
           WHEN n_lo_won_lo_first + n_lo_won_hi_first > n_hi_won_lo_first + n_hi_won_hi_first + n_tied_lo_first
             + n_tied_hi_first THEN 'first'
           WHEN n_hi_won_lo_first + n_hi_won_hi_first > n_lo_won_lo_first + n_lo_won_hi_first + n_tied_lo_first
             + n_tied_hi_first THEN 'second'
           WHEN n_tied_lo_first + n_tied_hi_first > n_lo_won_lo_first + n_lo_won_hi_first + n_hi_won_lo_first
             + n_hi_won_hi_first THEN 'tie' END
         WHEN majority_lo_first = 'lo' THEN 'first' WHEN majority_lo_first = 'hi' THEN 'second'
         ELSE majority_lo_first END AS vote_1,
    CASE WHEN provider = 'human' THEN NULL
         WHEN majority_hi_first = 'lo' THEN 'second' WHEN majority_hi_first = 'hi' THEN 'first'
         ELSE majority_hi_first END AS vote_2,
    is_open_lo_first OR (provider = 'human' AND is_open_hi_first) AS is_open_1,
    is_open_hi_first AND provider <> 'human' AS is_open_2,
    coalesce(candidate_lo, candidate_hi) IS NOT NULL AS is_of_unit
  FROM pair_status
  WHERE (majority_lo_first IS NOT NULL OR majority_hi_first IS NOT NULL OR is_open_lo_first OR is_open_hi_first)
    AND list_kind IS NULL
),
judged AS MATERIALIZED (
  SELECT
    study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item, turn_no,
    CASE WHEN count(*) = count(coalesce(value, CAST(score AS VARCHAR)))
           AND min(coalesce(value, CAST(score AS VARCHAR))) = max(coalesce(value, CAST(score AS VARCHAR)))
         THEN min(coalesce(value, CAST(score AS VARCHAR))) END AS vote,
    max(CASE WHEN n_open > 0 THEN 1 ELSE 0 END) = 1 AS is_open_1,
    avg(CASE WHEN value IS NULL THEN score END) AS score,
    max(candidate) IS NOT NULL AND unit_id <> '' AS is_of_unit
  FROM item_status
  WHERE provider <> 'panel'
  GROUP BY study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item, turn_no
),
people AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
    CASE WHEN task <> 'pair' THEN truth WHEN truth = 'lo' THEN 'first' WHEN truth = 'hi' THEN 'second' ELSE truth END
      AS vote_1,
    CASE WHEN task <> 'pair' THEN NULL WHEN truth = 'lo' THEN 'second' WHEN truth = 'hi' THEN 'first' ELSE truth END
      AS vote_2
  FROM truths
  WHERE truth IS NOT NULL
  UNION ALL
  SELECT
    study, task, rubric_id, unit_id, item, CAST(NULL AS VARCHAR), turn_no,
    CAST(avg(score) AS VARCHAR), CAST(NULL AS VARCHAR)
  FROM judged
  WHERE provider = 'human' AND task = 'likert' AND score IS NOT NULL
  GROUP BY study, task, rubric_id, unit_id, item, turn_no
),
asked AS (
  SELECT DISTINCT study, 'pair' AS task, template_id FROM pairs WHERE provider <> 'human'
  UNION ALL
  SELECT DISTINCT study, task, template_id FROM judged WHERE provider <> 'human'
)
SELECT
  study, 'pair' AS task, template_id, rubric_id, provider, request_model, thinking, unit_id, item_lo, item_hi,
  CAST(NULL AS BIGINT) AS turn_no, vote_1, vote_2, is_open_1, is_open_2, is_of_unit
FROM pairs
WHERE NOT (provider = 'human' AND request_model = 'majority')
  AND (vote_1 IS NOT NULL OR vote_2 IS NOT NULL OR is_open_1 OR is_open_2)
UNION ALL
SELECT
  study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item, CAST(NULL AS VARCHAR),
  turn_no, vote, CAST(NULL AS VARCHAR), is_open_1, FALSE, is_of_unit
FROM judged
WHERE (vote IS NOT NULL OR is_open_1)
  AND NOT (provider = 'human' AND request_model = 'majority')
UNION ALL
SELECT
  asked.study, asked.task, asked.template_id, people.rubric_id, 'human', 'majority', 'none', people.unit_id,
  people.item_lo, people.item_hi, people.turn_no, people.vote_1, people.vote_2, FALSE, FALSE, FALSE
FROM asked
JOIN people
  ON people.study = asked.study
  AND people.task = asked.task;
