-- What the filters of a study offer: of which tasks, templates, rubrics and judges there are rows.
SELECT DISTINCT task, template_id, rubric_id, concat_ws('/', provider, request_model, thinking) AS judge
FROM (
    SELECT task, template_id, rubric_id, provider, request_model, thinking FROM plan_current WHERE study = $study
    UNION ALL
    SELECT coalesce(task, 'pairwise'), template_id, rubric_id, provider, request_model, thinking
    FROM imported_judgments
    WHERE study = $study
)
ORDER BY task, template_id, rubric_id, judge
