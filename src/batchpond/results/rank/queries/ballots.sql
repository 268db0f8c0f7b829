-- What each judge said of each unit, by numbers; a jury is a study's judges by one rubric. A judge that answered without a
-- word, or flipped, says none; of a unit for which some still waits, it is not known who is silent.
CREATE OR REPLACE TEMP TABLE rank_ballots AS
WITH listed AS (
  SELECT * EXCLUDE (judges), unnest(judges) AS judge
  FROM jury_verdicts
  WHERE ($study IS NULL OR study = $study) AND ($task IS NULL OR task = $task)
), said AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, judge.template_id AS template_id,
    judge.provider AS provider, judge.request_model AS request_model, judge.thinking AS thinking,
    coalesce(judge.word, 'none') AS word
  FROM listed
  WHERE judge.word IS NOT NULL OR n_pending = 0
)
SELECT
  *,
  dense_rank() OVER (ORDER BY study, task, rubric_id) - 1 AS jury_no,
  dense_rank() OVER (ORDER BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no) - 1 AS unit_no,
  dense_rank() OVER (ORDER BY study, task, rubric_id, template_id, provider, request_model, thinking) - 1 AS judge_no,
  dense_rank() OVER (ORDER BY word) - 1 AS word_no
FROM said
