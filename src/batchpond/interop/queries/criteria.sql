SELECT rubric_id, max(description) AS words
FROM rubrics
WHERE rubric_hash IN (SELECT rubric_hash FROM results WHERE study = $study) AND rubric_hash <> ''
GROUP BY rubric_id
