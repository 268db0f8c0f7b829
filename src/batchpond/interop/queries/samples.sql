-- An id may have had several texts: one of them, always the same, as the layout has room for one.
SELECT item_id AS "ID", max_by(text, item_hash) AS text
FROM items
WHERE item_id IN (SELECT "ID1" FROM layout_rows UNION SELECT "ID2" FROM layout_rows)
GROUP BY item_id
