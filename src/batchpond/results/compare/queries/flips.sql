-- What the two sides say differently: what is turned round first, of scores what moved most.
SELECT
  comparison_no,
  concat_ws(' | ', nullif(statement, ''), nullif(unit_id, ''), item_lo, nullif(item_hi, ''),
    'turn ' || nullif(turn_no, 0)) AS subject,
  nullif(statement, '') AS statement, nullif(unit_id, '') AS unit_id,
  item_lo, nullif(item_hi, '') AS item_hi, nullif(turn_no, 0) AS turn_no,
  CASE WHEN task = 'pair' AND a.said = 'lo' THEN item_lo WHEN task = 'pair' AND a.said = 'hi' THEN item_hi
       ELSE a.said END AS said_a,
  CASE WHEN task = 'pair' AND b.said = 'lo' THEN item_lo WHEN task = 'pair' AND b.said = 'hi' THEN item_hi
       ELSE b.said END AS said_b,
  CASE WHEN task = 'pair' AND truth = 'lo' THEN item_lo WHEN task = 'pair' AND truth = 'hi' THEN item_hi
       ELSE truth END AS truth
FROM compare_paired
WHERE a.said <> b.said
ORDER BY
  [a.said, b.said] IN (['lo', 'hi'], ['hi', 'lo']) DESC,
  abs(b.score - a.score) DESC NULLS LAST,
  comparison_no, statement, unit_id, item_lo, item_hi, turn_no
LIMIT $limit
