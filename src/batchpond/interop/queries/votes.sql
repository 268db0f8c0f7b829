SELECT
    'pair' AS task, rubric_id, unit_id, item_lo, item_hi, candidate_lo, candidate_hi,
    CAST(NULL AS BIGINT) AS turn_no,
    CASE WHEN status IN ('consistent_win', 'consistent_tie') THEN majority_lo_first END AS held,
    status IN ('primacy', 'recency', 'soft_primacy', 'soft_recency') AS is_flip,
    list_kind
FROM pair_status
WHERE study = $study AND provider <> 'human' AND status <> 'pending'
UNION ALL
SELECT
    task, rubric_id, unit_id, item, CAST(NULL AS VARCHAR), candidate, CAST(NULL AS VARCHAR), turn_no,
    coalesce(value, CAST(score AS VARCHAR)), FALSE, CAST(NULL AS VARCHAR)
FROM item_status
WHERE study = $study AND provider NOT IN ('human', 'panel') AND status <> 'pending'
    AND NOT (task = 'prompts' AND list_contains($free, rubric_id))
