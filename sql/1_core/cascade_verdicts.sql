-- grain: study, task, rubric_id, unit_id, item_lo, item_hi, turn_no
-- question: Where some judges were asked about every unit and others about some, what do they hold of each together?
-- source: jury_verdicts. The first judges are those that were asked about all units of a study, task and rubric that two
--   judges or more were asked about (n_first of them, at least two), the further ones those that were asked about some
--   (n_further; 0 where nobody was, or not yet: what the first differ on has no verdict then). Where an earlier judge
--   answered nothing before, a later one that was asked about all is a further one too. is_agreed: all first judges
--   spoke and said the same, first_word; false where they differ or one is silent, NULL while that is open. is_stand_in:
--   a further judge was asked while an answer of a first one was lacking, which had failed; it may have come since, by
--   a retry. What a further judge was asked about and the first agree on is else an audit (n_further_spoke where
--   is_agreed and not is_stand_in). When somebody was asked is known of planned requests, by the round that planned
--   them and the attempt whose answer counts; of imported judgments, and of lists, it is not, and no unit is a stand-in.
--   further_word is what more than half of the further judges that spoke say. verdict: first_word where the first agree,
--   else what more than half of all that spoke say (jury_verdicts.majority). With two first judges and one further one
--   that is the majority of all three on every unit, as if all had been asked about all: two that agree cannot be
--   outvoted by a third. With more judges it need not be. n_pending judges were asked and have not answered yet.

CREATE OR REPLACE VIEW cascade_verdicts AS
WITH juries AS MATERIALIZED (
  SELECT * FROM jury_verdicts
),
listed AS (
  SELECT study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, unnest(judges) AS judge
  FROM juries
),
said AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, judge.template_id AS template_id,
    judge(judge) AS judge, judge.word AS word
  FROM listed
),
-- when the round of a later stage was opened, and when each request was first tried, and first answered
rounds AS (
  SELECT study, study_version, ordinal AS round_no, min(ord) AS ord
  FROM events
  WHERE kind = 'round'
  GROUP BY study, study_version, ordinal
),
answers AS (
  SELECT
    request_id,
    min(attempt_order) AS tried_ord,
    min(CASE WHEN status = 'succeeded' THEN attempt_order END) AS answered_ord
  FROM responses_matched
  GROUP BY request_id
),
planned AS (
  SELECT
    plan_current.study,
    CASE WHEN plan_current.task IN ('pairwise', 'ranking') THEN 'pair' ELSE plan_current.task END AS task,
    plan_current.rubric_id, plan_current.template_id, judge(plan_current) AS judge, plan_current.unit_id,
    CASE WHEN plan_current.item_second < plan_current.item_first
         THEN plan_current.item_second ELSE plan_current.item_first END AS item_lo,
    CASE WHEN plan_current.item_second < plan_current.item_first
         THEN plan_current.item_first ELSE plan_current.item_second END AS item_hi,
    CASE WHEN plan_current.item_second IS NULL THEN CAST(plan_current.turn_no AS BIGINT) END AS turn_no,
    rounds.ord AS asked_ord,
    answers.tried_ord,
    answers.answered_ord
  FROM plan_current
  JOIN rounds
    ON rounds.study = plan_current.study
    AND rounds.study_version = plan_current.study_version
    AND rounds.round_no = plan_current.round_no
  LEFT JOIN answers ON answers.request_id = plan_current.request_id
  WHERE plan_current.stage IS NOT NULL
),
ordered AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, template_id, judge,
    min(asked_ord) AS asked_ord,
    min(tried_ord) AS tried_ord,
    max(answered_ord) AS answered_ord
  FROM planned
  GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, template_id, judge
),
told AS (
  SELECT said.*, ordered.asked_ord, ordered.tried_ord, ordered.answered_ord
  FROM said
  LEFT JOIN ordered
    ON ordered.study = said.study
    AND ordered.task = said.task
    AND ordered.rubric_id = said.rubric_id
    AND ordered.unit_id = said.unit_id
    AND ordered.item_lo = said.item_lo
    AND coalesce(ordered.item_hi, '') = coalesce(said.item_hi, '')
    AND coalesce(ordered.turn_no, -1) = coalesce(said.turn_no, -1)
    AND ordered.template_id = said.template_id
    AND ordered.judge = said.judge
),
sizes AS (
  SELECT study, task, rubric_id, count(*) AS n_units
  FROM juries
  GROUP BY study, task, rubric_id
),
judges AS (
  SELECT
    study, task, rubric_id, template_id, judge,
    count(*) AS n_asked,
    count(word) AS n_spoke,
    min(asked_ord) AS asked_ord,
    min(tried_ord) AS tried_ord,
    min(answered_ord) AS answered_ord
  FROM told
  GROUP BY study, task, rubric_id, template_id, judge
),
-- a later judge was planned once an earlier one had been tried
timed AS (
  SELECT
    *,
    coalesce(asked_ord > min(tried_ord) OVER (PARTITION BY study, task, rubric_id), FALSE) AS is_later
  FROM judges
),
waited AS (
  SELECT
    *,
    min(CASE WHEN is_later THEN asked_ord END) OVER (PARTITION BY study, task, rubric_id) AS later_ord
  FROM timed
),
placed AS (
  SELECT
    waited.*,
    waited.n_asked = sizes.n_units AND NOT (
      is_later AND bool_or(NOT is_later AND (n_spoke = 0 OR coalesce(answered_ord > later_ord, FALSE))) OVER (
        PARTITION BY waited.study, waited.task, waited.rubric_id)
    ) AS is_first
  FROM waited
  JOIN sizes
    ON sizes.study = waited.study
    AND sizes.task = waited.task
    AND sizes.rubric_id = waited.rubric_id
),
cascades AS (
  SELECT
    study, task, rubric_id,
    count(*) FILTER (WHERE is_first) AS n_first,
    count(*) FILTER (WHERE NOT is_first) AS n_further
  FROM placed
  GROUP BY study, task, rubric_id
  HAVING count(*) FILTER (WHERE is_first) > 1
),
by_word AS (
  SELECT
    told.study, told.task, told.rubric_id, told.unit_id, told.item_lo, told.item_hi, told.turn_no, placed.is_first,
    told.word,
    count(*) AS n,
    min(told.asked_ord) AS asked_ord,
    max(told.answered_ord) AS answered_ord,
    count(*) FILTER (WHERE told.asked_ord IS NOT NULL AND told.answered_ord IS NULL) AS n_lacking
  FROM told
  JOIN placed
    ON placed.study = told.study
    AND placed.task = told.task
    AND placed.rubric_id = told.rubric_id
    AND placed.template_id = told.template_id
    AND placed.judge = told.judge
  GROUP BY
    told.study, told.task, told.rubric_id, told.unit_id, told.item_lo, told.item_hi, told.turn_no, placed.is_first,
    told.word
),
units AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
    coalesce(CAST(sum(n) FILTER (WHERE is_first AND word IS NOT NULL) AS BIGINT), 0) AS n_first_spoke,
    count(word) FILTER (WHERE is_first) AS n_first_words,
    max(word) FILTER (WHERE is_first) AS a_first_word,
    coalesce(CAST(sum(n) FILTER (WHERE NOT is_first) AS BIGINT), 0) AS n_further_asked,
    coalesce(CAST(sum(n) FILTER (WHERE NOT is_first AND word IS NOT NULL) AS BIGINT), 0) AS n_further_spoke,
    max(answered_ord) FILTER (WHERE is_first) > min(asked_ord) FILTER (WHERE NOT is_first)
      OR sum(n_lacking) FILTER (WHERE is_first) > 0 AS is_first_late,
    max(n) FILTER (WHERE NOT is_first AND word IS NOT NULL) AS n_most,
    arg_max(word, n) FILTER (WHERE NOT is_first AND word IS NOT NULL) AS most_said
  FROM by_word
  GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no
),
looked AS (
  SELECT
    units.*,
    cascades.n_first,
    cascades.n_further,
    CASE WHEN units.n_first_words > 1 THEN FALSE
         WHEN units.n_first_spoke = cascades.n_first THEN TRUE
         WHEN juries.n_pending = 0 THEN FALSE END AS is_agreed,
    juries.majority,
    juries.n_pending,
    juries.truth,
    juries.is_of_unit
  FROM units
  JOIN cascades
    ON cascades.study = units.study
    AND cascades.task = units.task
    AND cascades.rubric_id = units.rubric_id
  JOIN juries
    ON juries.study = units.study
    AND juries.task = units.task
    AND juries.rubric_id = units.rubric_id
    AND juries.unit_id = units.unit_id
    AND juries.item_lo = units.item_lo
    AND coalesce(juries.item_hi, '') = coalesce(units.item_hi, '')
    AND coalesce(juries.turn_no, -1) = coalesce(units.turn_no, -1)
)
SELECT
  study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
  n_first, n_further, n_first_spoke, n_further_asked, n_further_spoke, n_pending,
  is_agreed,
  n_further_asked > 0 AND coalesce(is_first_late, FALSE) AS is_stand_in,
  CASE WHEN is_agreed THEN a_first_word END AS first_word,
  CASE WHEN 2 * n_most > n_further_spoke THEN most_said END AS further_word,
  CASE WHEN is_agreed THEN a_first_word WHEN n_further_spoke > 0 THEN majority END AS verdict,
  truth,
  is_of_unit
FROM looked;
