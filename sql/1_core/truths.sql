-- grain: study, task, rubric_id, unit_id, item_lo, item_hi, turn_no
-- question: What do people say about each item, or pair of items, that a model judges too?
-- source: judgments imported with provider `human`, in the same study, template and position put aside. A rater
--   (request_model) has one vote on a unit, however often they labelled it, of which each of their labels has its part.
--   n_votes counts raters.
--   task is `pair` for pairwise and ranking, and the truth then `lo`, `hi` or `tie`, whichever order a person saw; for
--   the others it is the verdict or label, and item_lo is the item. truth_words are those with the most votes: of
--   several, among whom people are split, each is true in equal part, for whatever compares judges with people: such
--   units are the hard ones, and without them judges look better than they are. truth is the one word, NULL where there
--   are several. share is what the words count on average: `lo` and `true` 1, a tie 1/2, `hi` and `false` 0; NULL for
--   other words.
--   weight is for how many units a labelled one stands: N / n, N units being judged and n labelled of its stratum, which
--   is the standing (what judges held together) by which it was drawn, of a task; 1 for all of a study and task where of
--   any label no stratum is on record, as of judgments that were imported. For a stratum without labels the others stand.
-- reference: post-stratification (Holt and Smith 1979), over several draws too.

CREATE OR REPLACE VIEW truths AS
WITH votes AS (
  SELECT
    study, task, rubric_id, unit_id, request_model AS rater,
    coalesce(item_first, candidate_first) AS item_lo, CAST(NULL AS VARCHAR) AS item_hi,
    CAST(turn_no AS BIGINT) AS turn_no,
    coalesce(verdict, label) AS truth, purpose
  FROM imported_judgments
  WHERE provider = 'human'
    AND task IN ('compliance', 'likert', 'pressure', 'prompts')
    AND item_second IS NULL
    AND outcome IN ('decided', 'tie')
  UNION ALL
  SELECT
    study, 'pair', rubric_id, unit_id, request_model,
    least(item_first, item_second), greatest(item_first, item_second), CAST(NULL AS BIGINT),
    CASE WHEN verdict = 'tie' THEN 'tie' WHEN (verdict = 'first') = (item_first <= item_second) THEN 'lo' ELSE 'hi' END,
    purpose
  FROM imported_judgments
  WHERE provider = 'human'
    AND coalesce(task, 'pairwise') IN ('pairwise', 'ranking')
    AND verdict IN ('first', 'second', 'tie')
),
parted AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, truth, purpose,
    CAST(1.0 AS DOUBLE) / count(*) OVER (PARTITION BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, rater) AS part
  FROM votes
  WHERE truth IS NOT NULL
),
by_truth AS (
  SELECT study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, truth,
    sum(part) AS n,
    min(split_part(purpose, ' ', 1)) AS stratum,
    max(TRY_CAST(split_part(purpose, ' ', 2) AS BIGINT)) AS n_units,
    count(*) = count(TRY_CAST(split_part(purpose, ' ', 2) AS BIGINT)) AS is_drawn
  FROM parted
  GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, truth
),
-- sums of thirds in another order differ in their last digits
compared AS (
  SELECT *, max(n) OVER (PARTITION BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no) - 1e-9 AS n_top
  FROM by_truth
)
SELECT
  study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
  CASE WHEN count(*) FILTER (WHERE n > n_top) = 1 THEN max(CASE WHEN n > n_top THEN truth END) END AS truth,
  list_sort(list(truth) FILTER (WHERE n > n_top)) AS truth_words,
  avg(CASE WHEN n < n_top THEN NULL WHEN truth IN ('lo', 'true') THEN 2 WHEN truth = 'tie' THEN 1
           WHEN truth IN ('hi', 'false') THEN 0 END) / 2 AS share,
  CAST(round(sum(n)) AS BIGINT) AS n_votes,
  CASE WHEN bool_and(bool_and(is_drawn)) OVER (PARTITION BY study, task)
       THEN max(max(n_units)) OVER (PARTITION BY study, task, min(stratum))
         / CAST(count(*) OVER (PARTITION BY study, task, min(stratum)) AS DOUBLE)
       ELSE 1.0::DOUBLE END AS weight
FROM compared
GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no;
