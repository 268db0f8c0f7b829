-- What the jury of all judges holds of each pair, as judgments of one judge: a pair is lower item first, and no position
-- is in its verdict. One that too few spoke of, or that is drawn, is answered without a verdict; one that still waits
-- for a judge and has none is out.
CREATE OR REPLACE TEMP TABLE rank_jury AS
SELECT
  jury.study,
  CAST(NULL AS VARCHAR) AS template_id,
  jury.rubric_id,
  'jury' AS provider,
  $jury AS request_model,
  'none' AS thinking,
  jury.unit_id,
  jury.item_lo AS item_first,
  jury.item_hi AS item_second,
  sides.candidate_lo AS candidate_first,
  sides.candidate_hi AS candidate_second,
  CASE jury.{word} WHEN 'lo' THEN 'first' WHEN 'hi' THEN 'second' ELSE jury.{word} END AS verdict,
  CASE WHEN jury.{word} IS NOT NULL THEN 'decided' WHEN jury.n_pending = 0 THEN 'undecided' END AS outcome,
  chosen.purpose
FROM {source} AS jury
JOIN (
  SELECT
    study, rubric_id, unit_id, item_lo, item_hi, max(candidate_lo) AS candidate_lo, max(candidate_hi) AS candidate_hi
  FROM pair_status
  GROUP BY study, rubric_id, unit_id, item_lo, item_hi
) AS sides
  ON sides.study = jury.study
  AND sides.rubric_id = jury.rubric_id
  AND sides.unit_id IS NOT DISTINCT FROM jury.unit_id
  AND sides.item_lo = jury.item_lo
  AND sides.item_hi = jury.item_hi
-- a pair that rounds of any judge chose is a chosen one, held out where none chose it
LEFT JOIN (
  SELECT study, rubric_id, unit_id, item_lo, item_hi, coalesce(min(purpose) FILTER (purpose <> 'holdout'), 'holdout') AS purpose
  FROM pair_judgments
  WHERE purpose IS NOT NULL
  GROUP BY study, rubric_id, unit_id, item_lo, item_hi
) AS chosen
  ON chosen.study = jury.study
  AND chosen.rubric_id = jury.rubric_id
  AND chosen.unit_id IS NOT DISTINCT FROM jury.unit_id
  AND chosen.item_lo = jury.item_lo
  AND chosen.item_hi = jury.item_hi
WHERE jury.task = 'pair' {of_study}
