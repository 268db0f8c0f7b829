-- What some stages answered, by what it is about: the items as they were shown; and an output by what it is itself.
WITH said AS (
  SELECT *, concat_ws(chr(31), item_first, item_second) AS of_items,
         concat_ws(chr(31), '', unit_id, candidate_first) AS of_output
  FROM results WHERE study = $study AND list_contains($stages, stage) AND {good}
)
SELECT stage, unnest(CASE WHEN task = 'generation' THEN [of_items, of_output] ELSE [of_items] END) AS about, rubric_id,
       request_id, text, verdict, label, score, confidence, explanation
FROM said ORDER BY slot
