-- Which cell of a is compared with which of another side. What both have (a template, a rubric, a judge, a candidate
-- model) is compared with itself; where they have none in common, all of a with all of the other.
CREATE OR REPLACE TEMP TABLE compare_comparisons AS
WITH cells AS (
  SELECT DISTINCT
    side, task, template_id, rubric_id, provider, request_model, thinking, candidate,
    provider || chr(31) || request_model || chr(31) || thinking AS judge
  FROM compare_said
),
a AS (
  SELECT * FROM cells WHERE side = 'a'
),
b AS (
  SELECT * FROM cells WHERE side <> 'a'
),
shared AS (
  SELECT
    task, b.side,
    bool_or(a.template_id = b.template_id) AS has_template,
    bool_or(a.rubric_id = b.rubric_id) AS has_rubric,
    bool_or(a.judge = b.judge) AS has_judge,
    bool_or(a.candidate = b.candidate) AS has_candidate
  FROM a
  JOIN b USING (task)
  GROUP BY task, b.side
)
SELECT
  row_number() OVER (
    ORDER BY side, task, template_a, template_b, rubric_a, rubric_b, provider_a, request_model_a, thinking_a,
      provider_b, request_model_b, thinking_b, candidate_a, candidate_b
  ) AS comparison_no,
  *
FROM (
  SELECT
    b.side, a.task,
    a.template_id AS template_a, b.template_id AS template_b,
    a.rubric_id AS rubric_a, b.rubric_id AS rubric_b,
    a.provider AS provider_a, b.provider AS provider_b,
    a.request_model AS request_model_a, b.request_model AS request_model_b,
    a.thinking AS thinking_a, b.thinking AS thinking_b,
    a.candidate AS candidate_a, b.candidate AS candidate_b
  FROM a
  JOIN b ON b.task = a.task
  JOIN shared ON shared.task = a.task AND shared.side = b.side
  WHERE (a.template_id = b.template_id OR NOT has_template)
    AND (a.rubric_id = b.rubric_id OR NOT has_rubric)
    AND (a.judge = b.judge OR NOT has_judge)
    AND (a.candidate = b.candidate OR NOT has_candidate)
) AS compared
