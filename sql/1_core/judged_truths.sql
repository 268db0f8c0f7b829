-- grain: study, task, cell, unit_id, item_first, item_second, turn_no, repeat_no
-- question: Was each verdict of a model right, by what people say, and how sure had the model said it was?
-- source: every judgment of a model that has a verdict or label, with the truth of `truths`. correct_part is how much of
--   it people hold (truth_part): 1 or 0, and 1/k where they are split among k words and this is one of them; is_correct
--   is NULL there, and both where people said nothing. confidence is what the judge stated, or the probability of what it said where the
--   study reads log probabilities, NULL where there is neither. weight is that of the unit's label, 1 without one.

CREATE OR REPLACE VIEW judged_truths AS
WITH said AS (
  SELECT
    study, task, cell(item_judgments) AS cell, unit_id,
    item AS item_first, CAST(NULL AS VARCHAR) AS item_second, turn_no, repeat_no,
    item AS item_lo, CAST(NULL AS VARCHAR) AS item_hi,
    coalesce(verdict, label) AS value, confidence
  FROM item_judgments
  WHERE provider <> 'human' AND outcome IN ('decided', 'tie') AND coalesce(verdict, label) IS NOT NULL
  UNION ALL
  SELECT
    study, 'pair', cell(pair_judgments) AS cell, unit_id,
    item_first, item_second, CAST(NULL AS BIGINT), repeat_no,
    item_lo, item_hi,
    CASE WHEN verdict = 'tie' THEN 'tie' WHEN (verdict = 'first') = is_lo_first THEN 'lo' ELSE 'hi' END, confidence
  FROM pair_judgments
  WHERE provider <> 'human' AND verdict IN ('first', 'second', 'tie')
)
SELECT
  said.study, said.task, cell.*,
  said.unit_id, said.item_first, said.item_second, said.turn_no, said.repeat_no,
  said.value,
  truths.truth,
  said.value = truths.truth AS is_correct,
  truth_part(said.value, truths.truth_words) AS correct_part,
  said.confidence,
  coalesce(truths.weight, CAST(1.0 AS DOUBLE)) AS weight
FROM said
LEFT JOIN truths
  ON truths.study = said.study
  AND truths.task = said.task
  AND truths.rubric_id = said.cell.rubric_id
  AND truths.unit_id = said.unit_id
  AND coalesce(truths.item_lo, '') = coalesce(said.item_lo, '')
  AND coalesce(truths.item_hi, '') = coalesce(said.item_hi, '')
  AND coalesce(truths.turn_no, -1) = coalesce(said.turn_no, -1);
