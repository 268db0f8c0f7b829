-- What somebody who reads the numbers alone would get wrong.
SELECT format('{:,} of {}''s {:,} requests are the same requests as in a: one answer stands for both. To ask them again, plan '
  'more `repeats`, and compare repeat=1 with repeat=2', count(*) FILTER (WHERE request_id IN
  (SELECT request_id FROM compare_said WHERE side = 'a')), side, count(*)) AS note
FROM compare_said
WHERE side <> 'a' AND request_id IS NOT NULL
GROUP BY side
HAVING count(*) FILTER (WHERE request_id IN (SELECT request_id FROM compare_said WHERE side = 'a')) > 0
UNION ALL
SELECT format('{:,} of {:,} items in both a and {} have another text, or other columns, under the same id: what differs may be theirs',
  count(*) FILTER (WHERE a <> held), count(*), side)
FROM (
  SELECT
    side,
    list_sort(list(DISTINCT shown.content)) AS held,
    any_value(list_sort(list(DISTINCT shown.content))) FILTER (WHERE side = 'a') OVER (PARTITION BY unit_id, shown.item) AS a
  FROM (
    SELECT
      side, plan.unit_id,
      unnest([{'item': item_first, 'content': item_first_hash}, {'item': item_second, 'content': item_second_hash}])
        AS shown
    FROM compare_said
    JOIN plan ON plan.request_id = compare_said.request_id AND plan.study = compare_said.study
  ) AS asked
  WHERE shown.content IS NOT NULL
  GROUP BY side, unit_id, shown.item
) AS contents
WHERE a IS NOT NULL AND side <> 'a'
GROUP BY side
HAVING count(*) FILTER (WHERE a <> held) > 0
UNION ALL
SELECT format('{:,} answers of {} are simulated', count(*), side)
FROM compare_said
WHERE origin = 'simulated'
GROUP BY side
UNION ALL
SELECT format('{:,} answers of {} are in no comparison, as the other side has none of the same kind: {}', sum(n)::BIGINT, side,
  array_to_string(list_sort(list(cell))[:5], ', ') || CASE WHEN count(*) > 5 THEN ', ...' ELSE '' END)
FROM (
  SELECT
    side, count(*) AS n,
    concat_ws(' ', nullif(template_id, ''), nullif(rubric_id, ''), request_model, nullif(nullif(thinking, 'none'), ''),
      nullif(candidate, '')) AS cell
  FROM compare_said
  ANTI JOIN compare_cells USING (side, task, template_id, rubric_id, provider, request_model, thinking, candidate)
  GROUP BY ALL
) AS alone
GROUP BY side
UNION ALL
SELECT format('{:,} calls are not answered yet: what they will say is in no number', count(*))
FROM compare_said
WHERE outcome IS NULL
HAVING count(*) > 0
ORDER BY ALL
