-- What the filters of a study offer: of which tasks, templates, rubrics and judges there are rows, and how far the plan
-- goes, and whether lists are in it.
WITH cells AS (
    SELECT
        task, any_value(template_id) AS template_id, any_value(rubric_id) AS rubric_id, any_value(provider) AS provider,
        any_value(request_model) AS request_model, any_value(thinking) AS thinking, max(slot) AS slot_last,
        max(list_place) IS NOT NULL AS has_lists
    FROM plan_current
    WHERE study = $study
    GROUP BY cell_id, task
    UNION ALL
    SELECT DISTINCT
        coalesce(task, 'pairwise'), template_id, rubric_id, provider, request_model, thinking, CAST(NULL AS BIGINT), FALSE
    FROM imported_judgments
    WHERE study = $study
)
SELECT
    task, template_id, rubric_id, concat_ws('/', provider, request_model, thinking) AS judge,
    max(slot_last) AS slot_last, bool_or(has_lists) AS has_lists
FROM cells
GROUP BY task, template_id, rubric_id, judge
ORDER BY task, template_id, rubric_id, judge
