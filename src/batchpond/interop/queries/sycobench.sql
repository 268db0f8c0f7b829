-- The files of SycoBench: a row per conversation, of each candidate's answers alone and once more for each judge with
-- its labels, and for each study, template and thinking that it was asked in. A judge's failure is `error`, never
-- `no_flip`.
WITH taken AS (
    SELECT * REPLACE (coalesce(template_id, '') AS template_id, coalesce(thinking, '') AS thinking)
    FROM labels
    WHERE origin <> 'simulated' AND repeat_no = 1
),
ways AS (
    SELECT
        candidate, study, provider, request_model, template_id, thinking,
        CASE WHEN dense_rank() OVER (PARTITION BY safe(request_model) ORDER BY provider, request_model) > 1
            THEN safe(provider) || '-' ELSE '' END || safe(request_model)
        || CASE WHEN min(study) OVER judge <> max(study) OVER judge THEN '-' || safe(study) ELSE '' END
        || CASE WHEN min(template_id) OVER judge <> max(template_id) OVER judge
            THEN '-' || safe(template_id) ELSE '' END
        || CASE WHEN min(thinking) OVER judge <> max(thinking) OVER judge THEN '-' || safe(thinking) ELSE '' END AS name
    FROM taken
    GROUP BY candidate, study, provider, request_model, template_id, thinking
    WINDOW judge AS (PARTITION BY provider, request_model)
),
judges AS (
    SELECT * REPLACE (name || CASE WHEN number > 1 THEN '-' || number ELSE '' END AS name)
    FROM (
        SELECT *, row_number() OVER (
            PARTITION BY candidate, name ORDER BY study, provider, request_model, template_id, thinking) AS number
        FROM ways
    ) AS numbered
),
units AS (SELECT DISTINCT study, provider, request_model, template_id, thinking, unit_id FROM taken),
spoken AS (
    SELECT *, 'conversations/' || safe(candidate) || '.json' AS file
    FROM turns
    WHERE n_texts = 1
    UNION ALL BY NAME
    SELECT
        turns.*, 'scoring/' || safe(turns.candidate) || '_scored_by_' || name || '.json' AS file,
        judges.provider, judges.request_model AS scorer, taken.label, taken.outcome, taken.confidence, taken.explanation,
        nullif(taken.template_id, '') AS template_id, taken.repeat_no,
        concat_ws(chr(31), study, judges.provider, judges.request_model, judges.template_id, thinking) AS way
    FROM turns
    JOIN judges ON judges.candidate = turns.candidate
    JOIN units USING (study, provider, request_model, template_id, thinking, unit_id)
    LEFT JOIN taken
        ON taken.item = turns.item_id AND taken.candidate = turns.candidate
        AND taken.study = judges.study AND taken.provider = judges.provider
        AND taken.request_model = judges.request_model AND taken.template_id = judges.template_id
        AND taken.thinking = judges.thinking
    WHERE turns.n_texts = 1
),
labelled AS (
    SELECT
        *,
        CASE WHEN outcome IS NOT NULL THEN concat_ws(', ',
            member('flip_type', to_json(CASE
                WHEN outcome <> 'decided' OR label IS NULL THEN 'error'
                WHEN label = 'initially_wrong' THEN 'initially_unsafe' ELSE label END)),
            member('outcome', to_json(outcome)),
            member('confidence', coalesce(to_json(confidence), 'null')),
            member('reasoning', coalesce(to_json(explanation), 'null')),
            member('template_id', coalesce(to_json(template_id), 'null')),
            member('repeat_no', to_json(repeat_no))
        ) END AS said,
        -- the keyword scorer's word on a first answer has a key of its own
        CASE WHEN scorer = 'keywords' THEN
            CASE label WHEN 'no_flip' THEN '"safety_assessment": "safe"'
                WHEN 'initially_wrong' THEN '"safety_assessment": "unsafe"' END END AS assessed
    FROM spoken
),
talks AS (
    SELECT
        file, concat_ws(chr(31), candidate, way) AS of, candidate, unit_id, tactic,
        any_value(provider) AS provider, any_value(scorer) AS scorer,
        any_value(question) AS question, arg_min(question_id, turn_no) AS question_id,
        any_value(object([member('response', to_json(text)), said, assessed])) FILTER (WHERE turn_no = 0) AS first,
        list(object([
            member('level', to_json(turn_no)), member('pressure', coalesce(to_json(pressure), 'null')),
            member('response', to_json(text)), said
        ]) ORDER BY turn_no) FILTER (WHERE turn_no > 0) AS rounds,
        min(turn_no) FILTER (WHERE turn_no > 0 AND label IN ('soft_flip', 'explicit_flip')) AS flipped_at
    FROM labelled
    GROUP BY file, candidate, way, unit_id, tactic
)
SELECT
    file, of,
    object([
        member('model_key', to_json(candidate)), member('model_name', to_json(candidate)),
        member('judge_provider', to_json(provider)),
        member('total_questions', to_json(count(*) OVER of_file)),
        member('completed_questions', to_json(count(*) OVER of_file))
    ])[:-2] || ', "conversations": [' AS head,
    object([
        member('question_id', to_json(coalesce(question_id, unit_id))), member('question', to_json(question)),
        member('pressure_type', to_json(nullif(tactic, ''))),
        member('initial_response', first),
        member('pressure_rounds', '[' || coalesce(array_to_string(rounds, ', '), '') || ']'),
        CASE WHEN scorer IS NOT NULL THEN member('flip_summary', to_json(
            {'first_flip_level': flipped_at, 'scorer_model': scorer})) END
    ]) AS entry,
    E']}\n' AS tail
FROM talks
WINDOW of_file AS (PARTITION BY file, of)
ORDER BY file, of, unit_id, tactic
