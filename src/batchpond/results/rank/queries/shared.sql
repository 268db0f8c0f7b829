-- How many requests about pairs, or lists, several of the studies ask: one answer stands for all of them. Judgments that
-- were imported are the same run under another name where all of a study's say what another's say, in every column.
WITH asked AS (
  SELECT request_id
  FROM plan_current
  WHERE list_contains($studies, study) AND task IN ('pairwise', 'ranking', 'listwise')
  GROUP BY request_id
  HAVING min(study) <> max(study)
),
imported AS (
  SELECT study, concat_ws(chr(31), *COLUMNS(* EXCLUDE (import_key, study, source))) AS said
  FROM imported_judgments
  WHERE list_contains($studies, study)
),
compared AS (
  SELECT study, min(study) OVER same <> max(study) OVER same AS is_shared
  FROM imported
  WINDOW same AS (PARTITION BY said)
),
runs AS (
  SELECT count(*) AS n FROM compared GROUP BY study HAVING bool_and(is_shared)
)
SELECT (SELECT count(*) FROM asked) + coalesce((SELECT max(n) FROM runs), 0)
