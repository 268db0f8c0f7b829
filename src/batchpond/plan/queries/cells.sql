CREATE OR REPLACE TEMP TABLE cells AS
SELECT
    cast(row_number() OVER (ORDER BY min(slot)) - 1 AS integer) AS number, cell_id, min(stage) AS stage,
    min(template_id) AS template_id, min(rubric_id) AS rubric_id, min(provider) AS provider,
    min(endpoint) AS endpoint, min(request_model) AS request_model, min(thinking) AS thinking, min(mode) AS mode,
    count(*) AS n_plan_rows
FROM plan WHERE study = $study AND study_version = $version GROUP BY cell_id
