-- Any cell of a stage.
SELECT template_id, rubric_id, provider, request_model, thinking, cell_id
FROM plan WHERE study = $study AND study_version = $version AND stage = $stage LIMIT 1
