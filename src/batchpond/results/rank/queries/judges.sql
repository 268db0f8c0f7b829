-- How often each judge says which word of units that are of a word, as many of which there are as share says. Of the
-- n_judges of its jury it has units in common with n_judges_met others.
CREATE OR REPLACE TEMP TABLE rank_judges AS
WITH met AS (
  SELECT one.judge_no, count(DISTINCT other.judge_no) AS n_judges_met
  FROM rank_ballots AS one
  JOIN rank_ballots AS other ON other.unit_no = one.unit_no AND other.judge_no <> one.judge_no
  GROUP BY ALL
), judges AS (
  SELECT
    judge_no, jury_no, study, task, rubric_id, template_id, provider, request_model, thinking, count(*) AS n_units,
    coalesce(n_judges_met, 0) AS n_judges_met
  FROM rank_ballots
  LEFT JOIN met USING (judge_no)
  GROUP BY ALL
), words AS (
  SELECT DISTINCT jury_no, word_no, word FROM rank_ballots
), shares AS (
  SELECT study, task, rubric_id, word, avg(probability) AS share FROM rank_units GROUP BY ALL
), juries AS (
  SELECT jury_no, count(*) AS n_judges FROM judges GROUP BY ALL
)
SELECT
  judges.* EXCLUDE (judge_no, jury_no), n_judges, words.word, share, said.word AS said,
  CASE WHEN isfinite(probability) THEN probability END AS probability, {iterations} AS iterations,
  {is_converged}[judges.jury_no + 1] AS is_converged
FROM estimated
JOIN judges USING (judge_no)
JOIN juries ON juries.jury_no = judges.jury_no
JOIN words ON words.jury_no = judges.jury_no AND words.word_no = estimated.word_no
JOIN words AS said ON said.jury_no = judges.jury_no AND said.word_no = estimated.said_no
JOIN shares
  ON shares.study = judges.study AND shares.task = judges.task AND shares.rubric_id = judges.rubric_id
  AND shares.word = words.word
ORDER BY judge_no, words.word, said.word
