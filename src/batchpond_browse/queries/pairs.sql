-- The pairs of a study by what its judges hold of them; a judge with one template is one voice.
WITH cases AS (
    SELECT
        concat_ws(chr(31), coalesce(rubric_id, ''), unit_id, item_lo, item_hi) AS case_key,
        rubric_id, unit_id, item_lo, item_hi,
        min(candidate_lo) AS candidate_lo, min(candidate_hi) AS candidate_hi,
        count(*) FILTER (WHERE status = 'consistent_win' AND majority_lo_first = 'lo') AS n_lo,
        count(*) FILTER (WHERE status = 'consistent_win' AND majority_lo_first = 'hi') AS n_hi,
        count(*) FILTER (WHERE status = 'consistent_tie') AS n_tie,
        count(*) FILTER (WHERE status IN ('primacy', 'recency', 'soft_primacy', 'soft_recency')) AS n_flips,
        count(*) FILTER (WHERE status = 'missing_reverse') AS n_one_order,
        count(*) FILTER (WHERE status = 'undecided') AS n_undecided,
        count(*) FILTER (WHERE status = 'pending') AS n_pending
    FROM pair_status
    WHERE study = $study AND provider <> 'human'{voices}{planned}
    GROUP BY rubric_id, unit_id, item_lo, item_hi
),
standing AS (
    SELECT
        *,
        CASE WHEN (n_lo > 0 AND n_hi > 0) OR (n_tie > 0 AND n_lo + n_hi > 0) THEN 'disagreement'
             WHEN n_flips > 0 THEN 'flip'
             WHEN n_lo + n_hi + n_tie > 0 THEN 'agreement'
             WHEN n_one_order > 0 THEN 'one order'
             WHEN n_undecided > 0 THEN 'unread'
             ELSE 'pending' END AS standing
    FROM cases
)
SELECT standing.*, coalesce(truths.n_votes, 0) AS n_labels{columns}
FROM standing
LEFT JOIN truths
    ON truths.study = $study
    AND truths.task = 'pair'
    AND coalesce(truths.rubric_id, '') = coalesce(standing.rubric_id, '')
    AND truths.unit_id = standing.unit_id
    AND truths.item_lo = standing.item_lo
    AND truths.item_hi = standing.item_hi
WHERE {conditions}
ORDER BY {order}
LIMIT {limit}
