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
  asked.candidate_lo AS candidate_first,
  asked.candidate_hi AS candidate_second,
  CASE jury.{word} WHEN 'lo' THEN 'first' WHEN 'hi' THEN 'second' ELSE jury.{word} END AS verdict,
  CASE WHEN jury.{word} IS NOT NULL THEN 'decided' WHEN jury.n_pending = 0 THEN 'undecided' END AS outcome,
  asked.purpose
FROM {source} AS jury
JOIN (
  -- a pair that rounds of any judge chose is a chosen one, held out where none chose it
  SELECT
    study, rubric_id, unit_id, item_lo, item_hi,
    max(CASE WHEN is_lo_first THEN candidate_first ELSE candidate_second END) AS candidate_lo,
    max(CASE WHEN is_lo_first THEN candidate_second ELSE candidate_first END) AS candidate_hi,
    coalesce(min(purpose) FILTER (purpose <> 'holdout'), min(purpose)) AS purpose
  FROM pair_judgments
  GROUP BY study, rubric_id, unit_id, item_lo, item_hi
) AS asked
  ON asked.study = jury.study
  AND asked.rubric_id = jury.rubric_id
  AND asked.unit_id IS NOT DISTINCT FROM jury.unit_id
  AND asked.item_lo = jury.item_lo
  AND asked.item_hi = jury.item_hi
WHERE jury.task = 'pair' {of_study}
