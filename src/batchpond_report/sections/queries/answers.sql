-- The answer that was given at each of a few places of a study, planned before imported, with the texts it is about.
WITH places AS (
  SELECT * FROM (VALUES {places}) AS listed(place_no, {columns})
),
-- Of a single item, judgments of several tasks, candidates and turns differ in nothing else; a pair's items say all of it.
found AS (
  SELECT
    place_no, said, kind, slot, import_key, request_id, attempt_id, verdict, label, score, outcome, explanation,
    item_first_hash, item_second_hash
  FROM places
  JOIN (
    SELECT *, 1 AS kind FROM results WHERE request_state = 'answered'
    UNION ALL BY NAME
    SELECT *, 2 AS kind FROM imported_judgments
  ) AS results
    ON {same} AND study = {study}
    AND (places.item_second IS NOT NULL OR (
      results.task IS NOT DISTINCT FROM places.task
      AND results.candidate_first IS NOT DISTINCT FROM places.candidate_first
      AND CAST(results.turn_no AS VARCHAR) IS NOT DISTINCT FROM places.turn_no))
),
first AS (
  SELECT * FROM found
  QUALIFY row_number() OVER (
    PARTITION BY place_no ORDER BY coalesce(verdict, label) IS DISTINCT FROM said, kind, slot, import_key) = 1
),
judged AS (
  SELECT item_hash, text, metadata FROM items
  WHERE item_hash IN (SELECT item_first_hash FROM first UNION SELECT item_second_hash FROM first)
  QUALIFY row_number() OVER (PARTITION BY item_hash ORDER BY item_id) = 1
),
shown AS (
  SELECT judged.item_hash, text, shown FROM judged LEFT JOIN ({media}) USING (item_hash)
)
SELECT
  place_no, verdict, label, score, first.outcome,
  coalesce(explanation, responses.text) AS text, items_first.text AS text_first, items_second.text AS text_second,
  items_first.shown AS shown_first, items_second.shown AS shown_second
FROM first
LEFT JOIN responses
  ON responses.request_id = first.request_id AND responses.attempt_id = first.attempt_id AND status = 'succeeded'
LEFT JOIN shown AS items_first ON items_first.item_hash = item_first_hash
LEFT JOIN shown AS items_second ON items_second.item_hash = item_second_hash
QUALIFY row_number() OVER (PARTITION BY place_no ORDER BY line_number DESC) = 1
ORDER BY place_no
