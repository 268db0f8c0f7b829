-- Every unit with its key, what the judges hold of it together, and whether a person has labelled it. A pair that
-- several lists show is a unit of each list, all of which hold together; one of them stands for it where units are drawn.
SELECT
    judged.task, judged.rubric_id, judged.unit_id, judged.item_lo, judged.item_hi, judged.turn_no,
    candidate_lo, candidate_hi,
    CASE WHEN min(least_held) OVER of_pair <> max(most_held) OVER of_pair THEN 'disagreement'
         WHEN bool_or(is_flip) OVER of_pair THEN 'flip'
         WHEN count(least_held) OVER of_pair > 0 THEN 'agreement'
         ELSE 'unread' END AS standing,
    bool_or(truths.n_votes IS NOT NULL) OVER of_pair AS is_labelled,
    -- a flip counts for half a win of either, and is a half from the truth: by squares a quarter
    CASE WHEN truths.n_votes > 0 THEN
        (coalesce(list_sum(list_transform(held_words, LAMBDA word: 1 - truth_part(word, truths.truth_words))), 0)
            + n_flips / 4) / nullif(array_length(held_words) + n_flips, 0) END AS wrong_part,
    judged.unit_id = min(judged.unit_id) OVER of_pair AS is_to_draw,
    left(sha256(concat_ws(chr(31), $study, judged.task, coalesce(judged.rubric_id, ''), judged.unit_id,
        coalesce(judged.item_lo, ''), coalesce(judged.item_hi, ''), coalesce(judged.turn_no, -1))), 20) AS unit_key
FROM (
    SELECT
        task, rubric_id, unit_id, item_lo, item_hi, turn_no,
        min(candidate_lo) AS candidate_lo, min(candidate_hi) AS candidate_hi,
        min(held) AS least_held, max(held) AS most_held, bool_or(is_flip) AS is_flip,
        coalesce(list(held) FILTER (WHERE held IS NOT NULL), []) AS held_words, count(*) FILTER (WHERE is_flip) AS n_flips,
        CASE WHEN count(list_kind) = 0 THEN unit_id END AS own_unit
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
WINDOW of_pair AS (PARTITION BY judged.task, judged.rubric_id, own_unit, judged.item_lo, judged.item_hi, judged.turn_no)
