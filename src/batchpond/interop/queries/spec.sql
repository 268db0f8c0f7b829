-- The lines of spec.jsonl: a row per statement, with what its metadata says beyond what every item's says.
SELECT 'spec.jsonl' AS file, '' AS of, '' AS head,
    json_merge_patch(
        to_json({'id': rubric_id, 'text': description, 'type': 'guideline'}),
        json_merge_patch(
            coalesce(metadata, '{}'),
            '{"kind": null, "origin": null, "source": null, "unit_id": null, "rubric_id": null, "candidate": null, "turn_no": null}'
        )
    ) AS entry, E'\n' AS tail
FROM (
    SELECT rubrics.rubric_id, max_by(rubrics.description, rubric_hash) AS description,
        max_by(statements.metadata, statements.item_hash) AS metadata
    FROM rubrics
    LEFT JOIN told AS statements
        ON statements.item_id = 'statement/' || rubrics.rubric_id AND statements.kind = 'statement'
    WHERE statements.item_id IS NOT NULL OR rubrics.rubric_id IN (SELECT rubric_id FROM judged)
        OR rubrics.rubric_id IN (SELECT rubric_id FROM answered)
    GROUP BY rubrics.rubric_id
) AS statements
ORDER BY rubric_id
