-- grain: study, item
-- question: How long is the text of each judged item?
-- source: the texts of `items`, by the hash with which the study's current plan names them, and by id for imported
--   judgments. n_chars counts characters (code points); NULL where a study knows an id with texts of different lengths.

CREATE OR REPLACE VIEW item_lengths AS
WITH planned AS (
  SELECT study, item_first AS item, item_first_hash AS item_hash FROM plan_current
  UNION
  SELECT study, item_second AS item, item_second_hash AS item_hash FROM plan_current
),
imported AS (
  SELECT study, item_first AS item FROM imported_judgments
  UNION
  SELECT study, item_second AS item FROM imported_judgments
),
found AS (
  SELECT planned.study, planned.item, length(items.text) AS n_chars
  FROM planned
  JOIN items ON items.item_hash = planned.item_hash AND items.item_id = planned.item
  UNION ALL
  SELECT imported.study, imported.item, length(items.text) AS n_chars
  FROM imported
  JOIN items ON items.item_id = imported.item
)
SELECT
  study, item,
  CAST(CASE WHEN min(n_chars) = max(n_chars) THEN min(n_chars) END AS BIGINT) AS n_chars
FROM found
GROUP BY study, item;
