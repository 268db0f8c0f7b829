-- Without one conversation's name, two answers to one turn could belong to either: such turns are told, not guessed.
WITH answers AS (
    SELECT
        item_id, text, candidate, unit_id, CAST(turn_no AS BIGINT) AS turn_no,
        coalesce(tactic, CASE WHEN kind IS NULL THEN rubric_id END, '') AS tactic,
        pressure, question_id
    FROM told
    WHERE candidate IS NOT NULL AND turn_no IS NOT NULL
),
questions AS (SELECT item_id, max_by(text, item_hash) AS text FROM items GROUP BY item_id)
SELECT answers.*, questions.text AS question,
    count(DISTINCT answers.text) OVER (PARTITION BY candidate, unit_id, tactic, turn_no) AS n_texts
FROM answers
JOIN questions ON questions.item_id = answers.unit_id
