-- grain: study, item
-- question: How long is the text of each judged item?
-- source: the texts of `items`, by the hash with which the study's current plan names them; for imported judgments what
--   their file says, else by id. n_chars counts characters (code points); NULL where a study knows an id with texts of
--   different lengths, or with none.

CREATE OR REPLACE VIEW item_lengths AS
WITH planned AS (
  SELECT study, item_first AS item, item_first_hash AS item_hash FROM plan_current
  UNION
  SELECT study, item_second AS item, item_second_hash AS item_hash FROM plan_current
),
imported AS (
  SELECT study, item_first AS item, n_chars_first AS n_chars FROM imported_judgments
  UNION
  SELECT study, item_second AS item, n_chars_second AS n_chars FROM imported_judgments
),
found AS (
  SELECT planned.study, planned.item, length(items.text) AS n_chars
  FROM planned
  JOIN items ON items.item_hash = planned.item_hash AND items.item_id = planned.item
  UNION ALL
  SELECT imported.study, imported.item, coalesce(imported.n_chars, length(items.text)) AS n_chars
  FROM imported
  LEFT JOIN items ON items.item_id = imported.item AND imported.n_chars IS NULL
)
SELECT
  study, item,
  CAST(CASE WHEN min(n_chars) = max(n_chars) THEN min(n_chars) END AS BIGINT) AS n_chars
FROM found
GROUP BY study, item;
