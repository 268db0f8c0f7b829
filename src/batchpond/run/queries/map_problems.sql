-- The lines of a map that cannot be used, and why: no request, several, or another line's too.
SELECT *
FROM (
  SELECT
    line_no,
    n,
    CASE
      WHEN custom_id IS NULL THEN 'has no custom_id'
      WHEN number(slot_text) IS NOT NULL AND slot IS NULL
        THEN 'has slot ' || shown(slot_text) || ', not a whole number'
      WHEN number(repeat_no_text) IS NOT NULL AND repeat_no IS NULL
        THEN 'has repeat_no ' || shown(repeat_no_text) || ', not a whole number'
      WHEN n IS NULL THEN 'has a custom_id, but nothing that names its request'
      WHEN n = 0 THEN 'combines what is not planned together'
      WHEN n > 1 THEN 'fits ' || n || ' requests; give also ' || coalesce(nullif(differing, ''), 'slot')
      WHEN id_line < line_no THEN 'repeats the custom_id of ' || $unit || ' ' || id_line
      WHEN request_line < line_no THEN 'names the same request as ' || $unit || ' ' || request_line
    END AS problem
  FROM given
  LEFT JOIN matched USING (line_no)
  LEFT JOIN (SELECT custom_id, min(line_no) AS id_line FROM given GROUP BY custom_id) USING (custom_id)
  LEFT JOIN (
    SELECT found_id, min(line_no) AS request_line FROM matched WHERE n = 1 GROUP BY found_id
  ) USING (found_id)
)
WHERE problem IS NOT NULL
