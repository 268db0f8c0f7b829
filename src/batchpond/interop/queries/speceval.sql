-- The files of SpecEval but spec.jsonl: a row per entry of a file, in the order of the files. `of` tells apart what a
-- path cannot; `head` and `tail` are what stands around a file's entries.
WITH inputs AS (
    SELECT rubric_id, input FROM judged WHERE input IS NOT NULL
    UNION SELECT rubric_id, input FROM answered
    UNION SELECT rubric_id, text FROM told WHERE kind = 'input'
),
-- One folder per judge, also where two providers have a model of one name, and one per study, also where two are of
-- one spec.
named AS (
    SELECT
        *,
        coalesce(nullif(candidate_first, ''), 'unnamed') AS model_a,
        coalesce(nullif(candidate_second, ''), 'unnamed') AS model_b,
        CASE WHEN study = min(study) OVER (PARTITION BY spec) THEN spec ELSE study END AS spec_name,
        CASE WHEN dense_rank() OVER (PARTITION BY task, safe(request_model) ORDER BY provider, request_model) > 1
            THEN safe(provider) || '-' ELSE '' END || safe(request_model) AS judge
    FROM judged
    WHERE origin <> 'simulated'
),
entries AS (
    SELECT
        'inputs/' || safe(rubric_id) || '.json' AS file, rubric_id AS of, '{"inputs": [' AS head,
        to_json(input) AS entry, E']}\n' AS tail, [input] AS place
    FROM inputs
    UNION ALL
    SELECT
        'generations/' || safe(candidate) || '/00000000_000000/results/' || safe(rubric_id) || '.json',
        candidate || chr(31) || rubric_id, '[',
        to_json({
            'original_index': row_number() OVER (PARTITION BY candidate, rubric_id ORDER BY input, output) - 1,
            'input_text': input, 'output_text': output, 'batch_id': batch_id, 'candidate': candidate
        }), E']\n', [input, output]
    FROM answered
    UNION ALL
    SELECT
        CASE task WHEN 'ranking' THEN 'rankings' ELSE task END || '/spec_' || safe(spec_name) || '/judge_' || judge || '/'
            || safe(model_a) || CASE task WHEN 'ranking' THEN 'x' || safe(model_b) ELSE '' END
            || '/results/' || safe(rubric_id) || '.json',
        concat_ws(chr(31), study, spec_name, model_a, model_b, rubric_id),
        CASE task
            WHEN 'ranking' THEN '{' || member('metadata', to_json({
                'org_spec_name': spec_name, 'study': study, 'statement_id': rubric_id,
                'ranking_judge_model_info': {'provider': provider, 'model_name': request_model},
                'model_a': model_a, 'model_b': model_b
            })) || ', "rankings": ['
            ELSE '{' || member('metadata', to_json({
                'org_spec_name': spec_name, 'study': study, 'statement_id': rubric_id,
                'judge_model_info': {'provider': provider, 'model_name': request_model}, 'model': model_a,
                'batch_ids': []
            })) || ', "results": [' END,
        CASE task
            WHEN 'ranking' THEN to_json({
                'input': input, 'output_a': output_first, 'output_b': output_second,
                'rank': CASE verdict WHEN 'first' THEN 1 WHEN 'second' THEN -1 WHEN 'tie' THEN 0 END,
                'raw_judge_response': raw, 'outcome': outcome, 'repeat_no': repeat_no, 'template_id': template_id,
                'thinking': thinking
            })
            WHEN 'likert' THEN to_json({
                'input': input, 'output': output_first, 'rating': score, 'explanation': explanation,
                'outcome': outcome, 'repeat_no': repeat_no, 'template_id': template_id, 'thinking': thinking
            })
            ELSE to_json({
                'input': input, 'output': output_first, 'compliant': verdict = 'true', 'confidence': confidence,
                'explanation': explanation, 'outcome': outcome, 'repeat_no': repeat_no, 'template_id': template_id,
                'thinking': thinking
            }) END,
        E']}\n', [unit_id, template_id, thinking, lpad(CAST(repeat_no AS VARCHAR), 9, '0')]
    FROM named
    WHERE input IS NOT NULL AND output_first IS NOT NULL AND (task <> 'ranking' OR output_second IS NOT NULL)
)
SELECT file, of, head, entry, tail FROM entries ORDER BY file, of, place
