-- What some stages answered, by what it is about: the items as they were shown, and an output by what it is itself. Where
-- a stage was asked in several ways all answers stand in its order, by rubric; and whatever the rubric, where it is NULL.
-- Of a sample of a study some of them may be still to ask: `is_open`.
WITH said AS (
  SELECT *, concat_ws(chr(31), item_first, item_second) AS of_items,
         concat_ws(chr(31), '', unit_id, candidate_first) AS of_output
  FROM results WHERE study = $study AND list_contains($stages, stage) AND ({good} OR outcome IS NULL)
), placed AS (
  SELECT *, unnest(CASE WHEN task = 'generation' THEN [of_items, of_output] ELSE [of_items] END) AS about FROM said
), numbered AS (
  SELECT *, row_number() OVER (PARTITION BY stage, about, request_id ORDER BY slot) AS number FROM placed
), asked AS (
  SELECT stage, about, rubric_id, slot, outcome, text, verdict, label, score, confidence, explanation FROM numbered
  UNION ALL -- the fields of one answer are one request
  SELECT stage, about, NULL, slot, outcome, text, verdict, label, score, confidence, explanation FROM numbered
  WHERE number = 1
)
SELECT stage, about, rubric_id,
  string_agg(text, chr(10) || chr(10) ORDER BY slot) AS text,
  string_agg(verdict, ', ' ORDER BY slot) AS verdict,
  string_agg(label, ', ' ORDER BY slot) AS label,
  string_agg(printf('%.15g', score), ', ' ORDER BY slot) AS score,
  string_agg(printf('%.15g', confidence), ', ' ORDER BY slot) AS confidence,
  string_agg(explanation, chr(10) || chr(10) ORDER BY slot) AS explanation,
  bool_or(outcome IS NULL) AS is_open
FROM asked
GROUP BY stage, about, rubric_id
