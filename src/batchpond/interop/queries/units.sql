-- Every unit with its key, what the judges hold of it together, and whether a person has labelled it.
SELECT
    judged.*,
    truths.n_votes IS NOT NULL AS is_labelled,
    left(sha256(concat_ws(chr(31), $study, judged.task, coalesce(judged.rubric_id, ''), judged.unit_id,
        coalesce(judged.item_lo, ''), coalesce(judged.item_hi, ''), coalesce(judged.turn_no, -1))), 20) AS unit_key
FROM (
    SELECT
        task, rubric_id, unit_id, item_lo, item_hi, turn_no,
        min(candidate_lo) AS candidate_lo, min(candidate_hi) AS candidate_hi,
        CASE WHEN min(held) <> max(held) THEN 'disagreement'
             WHEN bool_or(is_flip) THEN 'flip'
             WHEN count(held) > 0 THEN 'agreement'
             ELSE 'unread' END AS standing
    FROM ({votes})
    GROUP BY task, rubric_id, unit_id, item_lo, item_hi, turn_no
) AS judged
LEFT JOIN truths
    ON truths.study = $study
    AND truths.task = judged.task
    AND truths.rubric_id = judged.rubric_id
    AND truths.unit_id = judged.unit_id
    AND coalesce(truths.item_lo, '') = coalesce(judged.item_lo, '')
    AND coalesce(truths.item_hi, '') = coalesce(judged.item_hi, '')
    AND coalesce(truths.turn_no, -1) = coalesce(judged.turn_no, -1)
