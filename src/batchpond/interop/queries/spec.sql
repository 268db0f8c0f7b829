SELECT rubrics.rubric_id, max_by(rubrics.description, rubric_hash) AS description,
    max_by(statements.metadata, statements.item_hash) AS metadata
FROM rubrics
LEFT JOIN told AS statements
    ON statements.item_id = 'statement/' || rubrics.rubric_id AND statements.kind = 'statement'
WHERE statements.item_id IS NOT NULL OR rubrics.rubric_id IN (SELECT rubric_id FROM judged)
    OR rubrics.rubric_id IN (SELECT rubric_id FROM answered)
GROUP BY rubrics.rubric_id ORDER BY rubrics.rubric_id
