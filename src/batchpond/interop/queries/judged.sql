WITH rows AS (
    SELECT
        study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second,
        item_first_hash, item_second_hash, candidate_first, candidate_second, repeat_no, verdict, outcome, score,
        confidence, explanation, text AS raw, origin, study AS spec
    FROM results
    WHERE task IN ('ranking', 'compliance', 'likert') AND outcome IS NOT NULL AND ($study IS NULL OR study = $study)
        AND purpose IS DISTINCT FROM 'shared'
    UNION ALL BY NAME
    SELECT
        study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second,
        candidate_first, candidate_second, repeat_no, verdict, outcome, score, confidence, explanation,
        'imported' AS origin,
        coalesce(
            nullif(regexp_extract(source, '(?:^|/)spec_([^/]+)/', 1), ''), regexp_replace(study, '^speceval-', '')
        ) AS spec
    FROM imported_judgments
    WHERE task IN ('ranking', 'compliance', 'likert') AND ($study IS NULL OR study = $study)
        AND purpose IS DISTINCT FROM 'shared'
),
by_id AS (SELECT item_id, max_by(text, item_hash) AS text FROM items GROUP BY item_id)
SELECT
    rows.* EXCLUDE (item_first, item_second, item_first_hash, item_second_hash),
    inputs.text AS input,
    coalesce(first_exact.text, first_by_id.text) AS output_first,
    coalesce(second_exact.text, second_by_id.text) AS output_second
FROM rows
LEFT JOIN by_id AS inputs ON inputs.item_id = rows.unit_id
LEFT JOIN items AS first_exact ON first_exact.item_hash = rows.item_first_hash
LEFT JOIN items AS second_exact ON second_exact.item_hash = rows.item_second_hash
LEFT JOIN by_id AS first_by_id ON first_by_id.item_id = rows.item_first
LEFT JOIN by_id AS second_by_id ON second_by_id.item_id = rows.item_second
