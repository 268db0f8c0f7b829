-- Texts whose id has another text in an earlier place.
SELECT texts.place, texts.item_id, firsts.place
FROM texts
JOIN (
  SELECT item_id, min_by(text, line_no) AS text, min_by(place, line_no) AS place
  FROM texts
  GROUP BY item_id
  HAVING min(text) <> max(text)
) AS firsts ON firsts.item_id = texts.item_id AND firsts.text <> texts.text
ORDER BY texts.line_no
