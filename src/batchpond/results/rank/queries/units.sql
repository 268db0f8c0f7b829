-- How likely each word of a jury is of each of its units.
CREATE OR REPLACE TEMP TABLE rank_units AS
WITH units AS (
  SELECT unit_no, jury_no, study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, count(*) AS n_judges
  FROM rank_ballots GROUP BY ALL
), words AS (
  SELECT DISTINCT jury_no, word_no, word FROM rank_ballots
)
SELECT units.* EXCLUDE (unit_no, jury_no), word, probability, {iterations} AS iterations, {is_converged}[units.jury_no + 1] AS is_converged
FROM estimated
JOIN units USING (unit_no)
JOIN words ON words.jury_no = units.jury_no AND words.word_no = estimated.word_no
ORDER BY unit_no, word;
-- The verdicts of juries, and the word that is likelier of a unit than all others together.
CREATE OR REPLACE TEMP VIEW rank_posteriors AS
SELECT jury_verdicts.*, nullif(likely.word, 'none') AS dawid_skene
FROM jury_verdicts
LEFT JOIN rank_units AS likely
  ON likely.study = jury_verdicts.study
  AND likely.task = jury_verdicts.task
  AND likely.rubric_id = jury_verdicts.rubric_id
  AND likely.unit_id = jury_verdicts.unit_id
  AND likely.item_lo = jury_verdicts.item_lo
  AND likely.item_hi IS NOT DISTINCT FROM jury_verdicts.item_hi
  AND likely.turn_no IS NOT DISTINCT FROM jury_verdicts.turn_no
  AND likely.probability > 0.5
