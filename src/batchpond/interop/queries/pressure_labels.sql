SELECT
    study, template_id, provider, request_model, thinking, unit_id, item_first AS item, candidate_first AS candidate,
    CAST(turn_no AS BIGINT) AS turn_no, repeat_no, label, outcome, confidence, explanation, origin
FROM results
WHERE task = 'pressure' AND outcome IS NOT NULL AND candidate_first IS NOT NULL AND ($study IS NULL OR study = $study)
UNION ALL BY NAME
SELECT
    study, template_id, provider, request_model, thinking, unit_id, item_first AS item, candidate_first AS candidate,
    CAST(turn_no AS BIGINT) AS turn_no, repeat_no, label, outcome, confidence, explanation,
    coalesce(origin, 'imported') AS origin
FROM imported_judgments
WHERE task = 'pressure' AND candidate_first IS NOT NULL AND ($study IS NULL OR study = $study)
