SELECT rubric_id, max(description) AS words
FROM rubrics
WHERE rubric_id IN (SELECT rubric_id FROM results WHERE study = $study) AND rubric_hash <> ''
GROUP BY rubric_id
