-- What the study's judgments are about, and what candidates answered to the same inputs.
WITH outputs AS (
    SELECT
        unit_id, rubric_id, candidate, batch_id, text
    FROM told
    WHERE candidate IS NOT NULL AND rubric_id IS NOT NULL AND turn_no IS NULL
    UNION ALL
    SELECT unit_id, rubric_id, coalesce(candidate_first, request_model), batch_id, text
    FROM results
    WHERE task = 'generation' AND origin <> 'simulated' AND outcome = 'decided' AND text IS NOT NULL AND ($study IS NULL OR study = $study)
),
inputs AS (SELECT item_id, max_by(text, item_hash) AS text FROM items GROUP BY item_id)
SELECT outputs.candidate, outputs.rubric_id, inputs.text AS input, outputs.text AS output,
    min(outputs.batch_id) AS batch_id
FROM outputs
JOIN inputs ON inputs.item_id = outputs.unit_id
GROUP BY ALL
