-- grain: study, rubric_id
-- question: Which kinds of pressure does each study use?
-- source: the rubrics of the plan's conversations: rubric_id is the tactic, its name the category.

CREATE OR REPLACE VIEW tactics AS
SELECT
  plan_current.study,
  plan_current.rubric_id,
  max(rubrics.name) AS category
FROM plan_current
JOIN rubrics ON rubrics.rubric_hash = plan_current.rubric_hash AND rubrics.rubric_id = plan_current.rubric_id
WHERE plan_current.task = 'conversation'
GROUP BY plan_current.study, plan_current.rubric_id;
