-- The texts of some items; where one id has had several texts, all of them.
SELECT item_id, item_hash, text, coalesce(metadata ->> '$.input', metadata ->> '$.question', '') AS question
FROM items
WHERE item_id IN ({ids})
