-- grain: study, task, cell, unit_id, item_lo, item_hi, turn_no
-- question: What did each judge say about each item, or about each pair of items in each order?
-- source: the votes of pair_status and item_judgments. task is `pair` for pairwise and ranking: vote_1 is what the judge
--   said when item_lo was shown first, vote_2 when item_hi was, each `first`, `second` or `tie` about the items as shown.
--   A person, whose order is a matter of lot, has vote_1 alone, as if item_lo had been shown first, of their labels in
--   whichever order. For the other tasks vote_1 is the verdict or label, else the score as text, vote_2 is NULL and
--   item_lo is the item. A judge has one vote however often it was asked: where its repeats differ, it is all their words
--   in binary order, apart by the character 30, each of which has its part of the vote. NULL without an answer that can
--   be read. is_open_1 and is_open_2: answers that are unread or missing may still move the vote; where both votes are
--   NULL for good, the row is left out.
-- Votes about places, not items: two judges who both always name the first item agree by their bias, and chance
-- corrected figures see that only when the categories are places. The row of provider `human`, model `majority` is what
-- `truths` says, all its words where people are split, for likert scores the mean over people, given to every template
-- of the study and task.
-- is_of_unit: what is judged is known to be models' outputs, which are drawn with their prompt. list_kind: of a pair
-- that lists imply, which is no draw, as in pair_judgments.

CREATE OR REPLACE VIEW agreement_votes AS
WITH counted AS (
  SELECT
    *,
    cell(pair_status) AS cell,
    n_lo_won_lo_first + CASE WHEN provider = 'human' THEN n_lo_won_hi_first ELSE 0 END AS n_first_1,
    n_hi_won_lo_first + CASE WHEN provider = 'human' THEN n_hi_won_hi_first ELSE 0 END AS n_second_1,
    n_tied_lo_first + CASE WHEN provider = 'human' THEN n_tied_hi_first ELSE 0 END AS n_tied_1,
    CASE WHEN provider = 'human' THEN 0 ELSE n_hi_won_hi_first END AS n_first_2,
    CASE WHEN provider = 'human' THEN 0 ELSE n_lo_won_hi_first END AS n_second_2,
    CASE WHEN provider = 'human' THEN 0 ELSE n_tied_hi_first END AS n_tied_2
  FROM pair_status
),
pairs AS MATERIALIZED (
  SELECT
    study, cell, unit_id, item_lo, item_hi,
    CASE WHEN n_first_1 + n_second_1 + n_tied_1 = 0 THEN NULL
         WHEN n_second_1 + n_tied_1 = 0 THEN 'first' WHEN n_first_1 + n_tied_1 = 0 THEN 'second'
         WHEN n_first_1 + n_second_1 = 0 THEN 'tie'
         ELSE substr(repeat(chr(30) || 'first', n_first_1) || repeat(chr(30) || 'second', n_second_1)
           || repeat(chr(30) || 'tie', n_tied_1), 2) END AS vote_1,
    CASE WHEN n_first_2 + n_second_2 + n_tied_2 = 0 THEN NULL
         WHEN n_second_2 + n_tied_2 = 0 THEN 'first' WHEN n_first_2 + n_tied_2 = 0 THEN 'second'
         WHEN n_first_2 + n_second_2 = 0 THEN 'tie'
         ELSE substr(repeat(chr(30) || 'first', n_first_2) || repeat(chr(30) || 'second', n_second_2)
           || repeat(chr(30) || 'tie', n_tied_2), 2) END AS vote_2,
    n_open_lo_first + n_pending_lo_first > 0 OR (provider = 'human' AND n_open_hi_first + n_pending_hi_first > 0)
      AS is_open_1,
    n_open_hi_first + n_pending_hi_first > 0 AND provider <> 'human' AS is_open_2,
    coalesce(candidate_lo, candidate_hi) IS NOT NULL AS is_of_unit,
    list_kind
  FROM counted
),
said AS (
  SELECT
    *,
    cell(item_judgments) AS cell,
    CASE WHEN outcome IN ('decided', 'tie') THEN coalesce(verdict, label, CAST(score AS VARCHAR)) END AS word,
    CASE WHEN outcome IN ('decided', 'tie') AND coalesce(verdict, label) IS NULL THEN score END AS score_alone
  FROM item_judgments
),
judged AS MATERIALIZED (
  SELECT
    study, task, cell, unit_id, item, turn_no,
    CASE WHEN min(word) = max(word) THEN min(word) ELSE array_to_string(list_sort(list(word)), chr(30)) END AS vote,
    bool_or(coalesce(outcome, '') NOT IN ('decided', 'tie', 'not_applicable', 'unsure')) AS is_open_1,
    avg(score_alone) AS score,
    max(candidate) IS NOT NULL AND unit_id <> '' AS is_of_unit
  FROM said
  GROUP BY study, task, cell, unit_id, item, turn_no
),
people AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
    CASE WHEN task <> 'pair' THEN array_to_string(truth_words, chr(30))
         ELSE array_to_string(list_transform(truth_words, LAMBDA word:
           CASE word WHEN 'lo' THEN 'first' WHEN 'hi' THEN 'second' ELSE word END), chr(30)) END AS vote_1,
    CASE WHEN task = 'pair' THEN array_to_string(list_transform(truth_words, LAMBDA word:
           CASE word WHEN 'lo' THEN 'second' WHEN 'hi' THEN 'first' ELSE word END), chr(30)) END AS vote_2
  FROM truths
  UNION ALL
  SELECT
    study, task, cell.rubric_id, unit_id, item, CAST(NULL AS VARCHAR), turn_no,
    CAST(avg(score) AS VARCHAR), CAST(NULL AS VARCHAR)
  FROM judged
  WHERE cell.provider = 'human' AND task = 'likert' AND score IS NOT NULL
  GROUP BY study, task, cell.rubric_id, unit_id, item, turn_no
),
asked AS (
  SELECT DISTINCT study, 'pair' AS task, cell.template_id AS template_id FROM pairs WHERE cell.provider <> 'human'
  UNION ALL
  SELECT DISTINCT study, task, cell.template_id FROM judged WHERE cell.provider <> 'human'
)
SELECT
  study, 'pair' AS task, cell.*, unit_id, item_lo, item_hi,
  CAST(NULL AS BIGINT) AS turn_no, vote_1, vote_2, is_open_1, is_open_2, is_of_unit, list_kind
FROM pairs
WHERE NOT (cell.provider = 'human' AND cell.request_model = 'majority')
  AND (vote_1 IS NOT NULL OR vote_2 IS NOT NULL OR is_open_1 OR is_open_2)
UNION ALL
SELECT
  study, task, cell.*, unit_id, item, CAST(NULL AS VARCHAR),
  turn_no, vote, CAST(NULL AS VARCHAR), is_open_1, FALSE, is_of_unit, CAST(NULL AS VARCHAR)
FROM judged
WHERE (vote IS NOT NULL OR is_open_1)
  AND NOT (cell.provider = 'human' AND cell.request_model = 'majority')
UNION ALL
SELECT
  asked.study, asked.task, asked.template_id, people.rubric_id, 'human', 'majority', 'none', people.unit_id,
  people.item_lo, people.item_hi, people.turn_no, people.vote_1, people.vote_2, FALSE, FALSE, FALSE, CAST(NULL AS VARCHAR)
FROM asked
JOIN people
  ON people.study = asked.study
  AND people.task = asked.task;
