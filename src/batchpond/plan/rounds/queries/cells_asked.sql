-- What the cells of a stage asked, one after the other, with the verdicts that count.
SELECT rubric_id, provider, request_model, thinking, template_id, item_first, item_second, purpose, round_no,
       CASE WHEN {good} THEN verdict END AS verdict
FROM results WHERE study = $study AND stage = $stage
ORDER BY rubric_id, provider, request_model, thinking, template_id, round_no, slot
