-- What every judge said of one pair or item, in each order, with each template and repeat.
SELECT *
FROM (
    SELECT
        'r' || lpad(CAST(slot AS VARCHAR), 12, '0') AS row_key, task, template_id, provider, request_model, thinking,
        rubric_id, unit_id, item_first, item_second, item_first_hash, item_second_hash, candidate_first, candidate_second,
        turn_no, repeat_no, coalesce(outcome, request_state) AS state, verdict, label, score, confidence, explanation,
        input_tokens, output_tokens, cost_usd, request_id, attempt_id, error_code, origin
    FROM results
    WHERE study = $study AND {planned}
    UNION ALL BY NAME
    SELECT
        'x' || import_key AS row_key, coalesce(task, 'pairwise') AS task, template_id, provider, request_model, thinking,
        rubric_id, unit_id, item_first, item_second, candidate_first, candidate_second, turn_no, repeat_no,
        outcome AS state, verdict, label, score, confidence, explanation, input_tokens, output_tokens, cost_usd,
        coalesce(origin, 'imported') AS origin
    FROM imported_judgments
    WHERE study = $study AND {imported}
)
ORDER BY provider = 'human', template_id, provider, request_model, thinking, repeat_no, item_first, row_key
LIMIT 2000
