-- grain: study, rubric_id
-- question: Which points does each criterion of a study give?
-- source: the rubrics of the plan that have `points`, and what imported judgments say of theirs; below 0 for what an
--   answer should not do.

CREATE OR REPLACE VIEW criteria_points AS
SELECT
  study,
  rubric_id,
  -- of no points an engine may not know the kind
  coalesce(max(points), CAST(0 AS DOUBLE)) AS points
FROM (
  SELECT plan_current.study, plan_current.rubric_id, rubrics.points
  FROM plan_current
  JOIN rubrics ON rubrics.rubric_hash = plan_current.rubric_hash AND rubrics.rubric_id = plan_current.rubric_id
  UNION ALL
  SELECT study, rubric_id, points FROM imported_judgments
) AS given
WHERE points IS NOT NULL
GROUP BY study, rubric_id;
