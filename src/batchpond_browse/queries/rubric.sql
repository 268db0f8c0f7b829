-- The words of a rubric: as the study has them, else those of any that is called so.
SELECT coalesce(
    max(description) FILTER (
        WHERE rubric_hash IN (SELECT rubric_hash FROM plan_current WHERE study = $study AND rubric_id = $rubric)
    ),
    max(description)
) AS words
FROM rubrics WHERE rubric_id = $rubric
