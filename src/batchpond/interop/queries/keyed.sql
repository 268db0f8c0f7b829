-- Judgments with the key that says which they are, and a word for what each says. A row without `repeat_no` is numbered
-- among the rows that are the same but for it. What the lake has of the other run, where both say which they are of, is
-- another judgment, though it showed the two in the same order.
CREATE TEMP TABLE keyed AS
SELECT
  given.* EXCLUDE (key),
  CASE WHEN known.direction <> given.direction THEN left(sha256(concat(key, given.direction)), 32) ELSE key END
    AS import_key
FROM (
  SELECT
    *,
    left(sha256(concat(
      prefixed(study), prefixed(template_id), prefixed(rubric_id), prefixed(provider), prefixed(request_model),
      prefixed(thinking), prefixed(unit_id), prefixed(item_first), prefixed(item_second), prefixed(repeat_no),
      CASE WHEN task <> 'pairwise' THEN concat(
        prefixed(task), prefixed(candidate_first), prefixed(candidate_second), prefixed(turn_no)
      ) END
    )), 32) AS key
  FROM (
    SELECT
      * REPLACE (CAST(coalesce(repeat_no, row_number() OVER same) AS INTEGER) AS repeat_no),
      word_of(verdict, label, score, outcome) AS word
    FROM ({rows})
    WINDOW same AS (
      PARTITION BY
        study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second, task,
        candidate_first, candidate_second, turn_no
      ORDER BY line_no
    )
  )
) AS given
LEFT JOIN (
  SELECT import_key, min(direction) AS direction FROM imported_judgments WHERE direction IS NOT NULL GROUP BY import_key
) AS known ON known.import_key = key
