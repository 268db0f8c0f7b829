-- grain: study, task, rubric_id, unit_id, item_lo, item_hi, turn_no
-- question: Where some judges were asked about every unit and others about some, what do they hold of each together?
-- source: jury_verdicts. The first judges are those that were asked about all units of a study, task and rubric that two
--   judges or more were asked about (n_first of them, at least two), the further ones those that were asked about some
--   (n_further, at least one); where there is no such judge there is no cascade, and no row. is_agreed: all first judges
--   spoke and said the same, first_word; false where they differ or one is silent, NULL while that is open. A further
--   judge that was asked about a unit on which the first agree is an audit (n_further_spoke where is_agreed).
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
    judge.provider AS provider, judge.request_model AS request_model, judge.thinking AS thinking, judge.word AS word
  FROM listed
),
sizes AS (
  SELECT study, task, rubric_id, count(*) AS n_units
  FROM juries
  GROUP BY study, task, rubric_id
),
judges AS (
  SELECT study, task, rubric_id, template_id, provider, request_model, thinking, count(*) AS n_asked
  FROM said
  GROUP BY study, task, rubric_id, template_id, provider, request_model, thinking
),
placed AS (
  SELECT judges.*, judges.n_asked = sizes.n_units AS is_first
  FROM judges
  JOIN sizes
    ON sizes.study = judges.study
    AND sizes.task = judges.task
    AND sizes.rubric_id = judges.rubric_id
),
cascades AS (
  SELECT
    study, task, rubric_id,
    count(*) FILTER (WHERE is_first) AS n_first,
    count(*) FILTER (WHERE NOT is_first) AS n_further
  FROM placed
  GROUP BY study, task, rubric_id
  HAVING count(*) FILTER (WHERE is_first) > 1 AND count(*) FILTER (WHERE NOT is_first) > 0
),
by_word AS (
  SELECT
    said.study, said.task, said.rubric_id, said.unit_id, said.item_lo, said.item_hi, said.turn_no, placed.is_first,
    said.word,
    count(*) AS n
  FROM said
  JOIN placed
    ON placed.study = said.study
    AND placed.task = said.task
    AND placed.rubric_id = said.rubric_id
    AND placed.template_id = said.template_id
    AND placed.provider = said.provider
    AND placed.request_model = said.request_model
    AND placed.thinking = said.thinking
  GROUP BY
    said.study, said.task, said.rubric_id, said.unit_id, said.item_lo, said.item_hi, said.turn_no, placed.is_first,
    said.word
),
units AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
    coalesce(CAST(sum(n) FILTER (WHERE is_first AND word IS NOT NULL) AS BIGINT), 0) AS n_first_spoke,
    count(word) FILTER (WHERE is_first) AS n_first_words,
    max(word) FILTER (WHERE is_first) AS a_first_word,
    coalesce(CAST(sum(n) FILTER (WHERE NOT is_first) AS BIGINT), 0) AS n_further_asked,
    coalesce(CAST(sum(n) FILTER (WHERE NOT is_first AND word IS NOT NULL) AS BIGINT), 0) AS n_further_spoke,
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
  CASE WHEN is_agreed THEN a_first_word END AS first_word,
  CASE WHEN 2 * n_most > n_further_spoke THEN most_said END AS further_word,
  CASE WHEN is_agreed THEN a_first_word WHEN n_further_spoke > 0 THEN majority END AS verdict,
  truth,
  is_of_unit
FROM looked;
