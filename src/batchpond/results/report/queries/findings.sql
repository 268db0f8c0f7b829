-- What the sentences of several sections say in the same way: beside whom somebody stands, and of which cell that is.

-- The others of a cell that have the same value, as told behind a name; nothing where there are none.
CREATE TEMP MACRO equally_with(name, value, cell) AS coalesce(
  ' (equally with ' || CASE
    WHEN count(*) OVER (PARTITION BY cell, round(value, 9)) > 4
      THEN (count(*) OVER (PARTITION BY cell, round(value, 9)) - 1) || ' others'
    ELSE string_agg(name, ', ') OVER (
      PARTITION BY cell, round(value, 9) ORDER BY name
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
  END || ')', '');

-- What tells a row's cell apart among all rows, beside its judge; a rubric that the sentence says itself is NULL. A panel
-- has no thinking of its own.
CREATE TEMP MACRO where_of(template_id, rubric_id, provider, thinking) AS coalesce(
  ' (' || nullif(concat_ws(
    ', ',
    CASE WHEN min(template_id) OVER () < max(template_id) OVER () THEN 'template ' || template_id END,
    CASE WHEN min(rubric_id) OVER () < max(rubric_id) OVER () THEN 'rubric ' || rubric_id END,
    CASE
      WHEN provider <> 'panel'
        AND min(CASE WHEN provider <> 'panel' THEN thinking END) OVER ()
          < max(CASE WHEN provider <> 'panel' THEN thinking END) OVER ()
        THEN 'thinking ' || thinking
    END
  ), '') || ')', '');
