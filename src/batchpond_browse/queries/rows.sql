-- The judgments of a study, planned and imported; a row's key is its slot in the plan, or its key in the import.
WITH judged AS (
    SELECT
        'r' || lpad(CAST(slot AS VARCHAR), 12, '0') AS row_key, task, stage, template_id, rubric_id, provider,
        request_model, thinking, unit_id, item_first, item_second, item_lo, item_hi, candidate_first, candidate_second,
        turn_no, repeat_no, coalesce(outcome, request_state) AS state, verdict, label, score, explanation, text,
        thoughts, refusal, error_class, error_code, error_message, input_tokens, output_tokens, cost_usd, origin
    FROM results
    WHERE study = $study{planned}
    UNION ALL BY NAME
    SELECT
        'x' || import_key AS row_key, coalesce(task, 'pairwise') AS task, template_id, rubric_id, provider,
        request_model, thinking, unit_id, item_first, item_second, least(item_first, item_second) AS item_lo,
        greatest(item_first, item_second) AS item_hi, candidate_first, candidate_second, turn_no, repeat_no,
        outcome AS state, verdict, label, score, explanation, input_tokens, output_tokens, cost_usd,
        coalesce(origin, 'imported') AS origin
    FROM imported_judgments
    WHERE study = $study{imported}
)
SELECT
    row_key, task, stage, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second,
    candidate_first, turn_no, repeat_no, state, coalesce(kind, verdict, label, CAST(score AS VARCHAR)) AS answer, error_class,
    error_code, input_tokens, output_tokens, cost_usd, origin{columns}
FROM (SELECT *, CASE WHEN verdict = 'tie' AND label IN ('both_good', 'both_bad') THEN label END AS kind FROM judged)
WHERE {conditions}
ORDER BY {order}
LIMIT {limit}
