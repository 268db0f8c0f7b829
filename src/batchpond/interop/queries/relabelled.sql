-- One label of a rater counts for each thing: given again it has the key that the lake has for it, whichever text stood
-- first, and where it says something else, or of which stratum it is for the first time, `replaced` is what they said of
-- it before.
CREATE TEMP TABLE told AS
SELECT
  import_key, source, explanation, purpose,
  labelled(
    study, coalesce(task, 'pairwise'), rubric_id, request_model, unit_id, coalesce(item_first, candidate_first), item_second,
    turn_no
  ) AS thing,
  CASE verdict WHEN 'first' THEN item_first WHEN 'second' THEN item_second
               ELSE word_of(verdict, label, score, outcome) END AS said
FROM imported_judgments
WHERE provider = 'human';
CREATE TEMP TABLE labels AS
SELECT * REPLACE (
  coalesce(known_key, min(import_key) OVER (PARTITION BY thing)) AS import_key,
  CASE verdict WHEN 'first' THEN item_first WHEN 'second' THEN item_second ELSE word END AS word
)
FROM (
  SELECT
    *,
    labelled(
      study, task, rubric_id, request_model, unit_id, coalesce(item_first, candidate_first), item_second, turn_no
    ) AS thing
  FROM keyed
)
LEFT JOIN (SELECT thing, min(import_key) AS known_key FROM told GROUP BY thing) USING (thing);
DROP TABLE keyed;
ALTER TABLE labels RENAME TO keyed;
CREATE TEMP TABLE replaced AS
FROM imported_judgments
WHERE import_key IN (
  SELECT import_key
  FROM told
  WHERE thing IN (
    SELECT thing
    FROM told
    JOIN keyed USING (thing)
    WHERE told.said <> keyed.word OR keyed.explanation <> coalesce(told.explanation, '')
      OR (told.purpose IS NULL AND keyed.purpose IS NOT NULL AND keyed.outcome <> 'missing')
  )
);
CREATE OR REPLACE TEMP VIEW known AS
SELECT import_key, source, said AS word FROM told WHERE import_key NOT IN (SELECT import_key FROM replaced);
