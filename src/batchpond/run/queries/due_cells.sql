-- The cells of a plan by numbers, in the order in which they are planned, with what is asked in each and the number of
-- its model.
CREATE OR REPLACE TEMP TABLE due_cells AS
SELECT
  CAST(row_number() OVER (ORDER BY first_slot, cell_id) - 1 AS INTEGER) AS cell_no,
  CAST(dense_rank() OVER (ORDER BY provider, endpoint, request_model) AS INTEGER) AS model_no,
  * EXCLUDE (first_slot)
FROM (
  SELECT cell_id, min(slot) AS first_slot, any_value(provider) AS provider, any_value(endpoint) AS endpoint,
         any_value(request_model) AS request_model, any_value(template_id) AS template_id,
         any_value(rubric_id) AS rubric_id, any_value(thinking) AS thinking
  FROM plan WHERE study = $study AND study_version = $version
  GROUP BY cell_id
)
