-- The texts of items that judges read, and what was shown with them.
WITH chosen AS (
    SELECT item_id, item_hash, text, metadata, coalesce(metadata ->> '$.input', metadata ->> '$.question', '') AS question
    FROM items
    WHERE item_id IN (SELECT unnest($ids))
    QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY item_hash IN (
        SELECT item_first_hash FROM results WHERE study = $study
        UNION SELECT item_second_hash FROM results WHERE study = $study) DESC, item_hash) = 1
)
SELECT item_id, text, question, shown
FROM chosen LEFT JOIN ({media}) USING (item_hash)
