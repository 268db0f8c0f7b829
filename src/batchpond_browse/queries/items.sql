-- The items of a study that are judged one at a time, by what its judges hold of them.
WITH cases AS (
    SELECT
        concat_ws(chr(31), task, coalesce(rubric_id, ''), unit_id, coalesce(item, ''), coalesce(candidate, ''),
            coalesce(turn_no, -1)) AS case_key,
        task, rubric_id, unit_id, item, candidate, turn_no,
        string_agg(DISTINCT value, ', ' ORDER BY value) AS held,
        count(DISTINCT value) AS n_values,
        avg(score) AS score, min(score) AS score_min, max(score) AS score_max,
        count(*) FILTER (WHERE status = 'decided') AS n_decided,
        count(*) FILTER (WHERE status = 'undecided') AS n_undecided,
        count(*) FILTER (WHERE status = 'pending') AS n_pending
    FROM item_status
    WHERE study = $study AND provider NOT IN ('human', 'panel'){voices}{planned}
    GROUP BY task, rubric_id, unit_id, item, candidate, turn_no
),
standing AS (
    SELECT
        *,
        CASE WHEN n_values > 1 OR score_min < score_max THEN 'disagreement'
             WHEN n_decided > 0 THEN 'agreement'
             WHEN n_undecided > 0 THEN 'unread'
             ELSE 'pending' END AS standing
    FROM cases
)
SELECT standing.*, coalesce(truths.n_votes, 0) AS n_labels{columns}
FROM standing
LEFT JOIN truths
    ON truths.study = $study
    AND truths.task = standing.task
    AND coalesce(truths.rubric_id, '') = coalesce(standing.rubric_id, '')
    AND truths.unit_id = standing.unit_id
    AND coalesce(truths.item_lo, '') = coalesce(standing.item, '')
    AND coalesce(truths.turn_no, -1) = coalesce(standing.turn_no, -1)
WHERE {conditions}
ORDER BY {order}
LIMIT {limit}
