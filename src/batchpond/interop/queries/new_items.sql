-- The first of each id's texts that the lake lacks: an id with its text is known wherever it came from.
SELECT {columns}
FROM (SELECT * FROM texts QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY line_no) = 1) AS firsts
WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.item_id = firsts.item_id AND items.text = firsts.text)
ORDER BY line_no
