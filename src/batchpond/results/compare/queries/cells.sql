-- The cells that are compared, each of a side, with their comparisons.
CREATE OR REPLACE TEMP VIEW compare_cells AS
SELECT
  comparison_no, 'a' AS side, task, template_a AS template_id, rubric_a AS rubric_id, provider_a AS provider,
  request_model_a AS request_model, thinking_a AS thinking, candidate_a AS candidate
FROM compare_comparisons
UNION ALL
SELECT
  comparison_no, side, task, template_b, rubric_b, provider_b, request_model_b, thinking_b, candidate_b
FROM compare_comparisons
