-- The words of a rubric.
SELECT max(description) AS words FROM rubrics WHERE rubric_id = $rubric
