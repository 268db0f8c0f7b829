-- The texts of items that judges read, what they answer, and what was shown with them: of an answer under pressure the
-- talk that ends with it, as its label is about what became of the first answer.
WITH chosen AS (
    SELECT
        item_id, item_hash, text, metadata,
        coalesce(
            CASE WHEN metadata ->> '$.turn_no' IS NOT NULL THEN metadata ->> '$.conversation' END,
            metadata ->> '$.input', metadata ->> '$.question', '') AS question
    FROM items
    WHERE item_id IN (SELECT unnest($ids))
    QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY item_hash IN (
        SELECT item_first_hash FROM results WHERE study = $study
        UNION SELECT item_second_hash FROM results WHERE study = $study) DESC, item_hash) = 1
)
SELECT item_id, text, question, shown
FROM chosen LEFT JOIN ({media}) USING (item_hash)
