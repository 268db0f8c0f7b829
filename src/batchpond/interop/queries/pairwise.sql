SELECT * FROM results_pairwisellm WHERE ($study IS NULL OR study = $study)
UNION ALL BY NAME
SELECT
    item_first AS "ID1", item_second AS "ID2", item_first AS "A_id", item_second AS "B_id",
    least(item_first, item_second) || ':' || greatest(item_first, item_second) AS unordered_key,
    item_first || ':' || item_second AS ordered_key,
    CASE verdict WHEN 'first' THEN item_first WHEN 'second' THEN item_second END AS better_id,
    CASE verdict WHEN 'first' THEN 'SAMPLE_1' WHEN 'second' THEN 'SAMPLE_2' END AS better_sample,
    CASE verdict WHEN 'first' THEN 1 WHEN 'second' THEN 2 END AS winner_pos,
    request_model AS model, provider AS backend, outcome, input_tokens AS prompt_tokens,
    output_tokens AS completion_tokens, cost_usd AS cost, study, template_id, rubric_id, thinking, unit_id, direction, repeat_no,
    coalesce(origin, 'imported') AS origin
FROM imported_judgments
WHERE coalesce(task, 'pairwise') = 'pairwise' AND ($study IS NULL OR study = $study)
