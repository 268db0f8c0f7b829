-- Judgments that are said twice and otherwise: among the rows given, or against the lake.
SELECT
  keyed.line_no, keyed.place, keyed.word, told.place AS other_place, CAST(NULL AS VARCHAR) AS source, told.word AS other
FROM (
  SELECT import_key, min_by(place, line_no) AS place, min_by(word, line_no) AS word
  FROM keyed
  GROUP BY import_key
  HAVING min(word) <> max(word)
) AS told
JOIN keyed ON keyed.import_key = told.import_key AND keyed.word <> told.word
UNION ALL
SELECT
  keyed.line_no, keyed.place, keyed.word, CAST(NULL AS VARCHAR) AS other_place,
  coalesce(known.source, 'an unnamed source') AS source, known.word AS other
FROM keyed
JOIN known ON known.import_key = keyed.import_key AND known.word <> keyed.word
