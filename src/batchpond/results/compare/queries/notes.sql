-- What somebody who reads the numbers alone would get wrong.
SELECT format('{:,} of b''s {:,} requests are the same requests as in a: one answer stands for both. To ask them again, plan '
  'more `repeats`, and compare repeat=1 with repeat=2', count(*) FILTER (WHERE request_id IN
  (SELECT request_id FROM compare_said WHERE side = 'a')), count(*)) AS note
FROM compare_said
WHERE side = 'b' AND request_id IS NOT NULL
HAVING count(*) FILTER (WHERE request_id IN (SELECT request_id FROM compare_said WHERE side = 'a')) > 0
UNION ALL
SELECT format('{:,} answers of {} are simulated', count(*), side)
FROM compare_said
WHERE origin = 'simulated'
GROUP BY side
UNION ALL
SELECT format('{:,} calls are not answered yet: what they will say is in no number', count(*))
FROM compare_said
WHERE outcome IS NULL
HAVING count(*) > 0
ORDER BY ALL
