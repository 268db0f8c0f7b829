-- What the filters of a study offer: of which tasks, templates, rubrics and judges there are rows, and how far the plan goes.
SELECT
    task, template_id, rubric_id, concat_ws('/', provider, request_model, thinking) AS judge,
    max(slot) AS slot_last
FROM (
    SELECT slot, task, template_id, rubric_id, provider, request_model, thinking
    FROM plan_current
    WHERE study = $study
    UNION ALL
    SELECT NULL, coalesce(task, 'pairwise'), template_id, rubric_id, provider, request_model, thinking
    FROM imported_judgments
    WHERE study = $study
)
GROUP BY ALL
ORDER BY task, template_id, rubric_id, judge
