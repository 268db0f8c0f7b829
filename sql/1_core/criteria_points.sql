-- grain: study, rubric_id
-- question: Which points does each criterion of a study give?
-- source: the rubrics of the plan that have `points`; below 0 for what an answer should not do.

CREATE OR REPLACE VIEW criteria_points AS
SELECT
  plan_current.study,
  plan_current.rubric_id,
  -- of no points an engine may not know the kind
  coalesce(max(rubrics.points), CAST(0 AS DOUBLE)) AS points
FROM plan_current
JOIN rubrics ON rubrics.rubric_hash = plan_current.rubric_hash AND rubrics.rubric_id = plan_current.rubric_id
WHERE rubrics.points IS NOT NULL
GROUP BY plan_current.study, plan_current.rubric_id;
