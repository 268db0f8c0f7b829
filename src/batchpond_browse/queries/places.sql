-- How far the next pairs of a study reach, in the order of their keys, and how many are left.
WITH pairs AS (
    SELECT rubric_id, unit_id, item_first, item_second FROM plan_current WHERE study = $study
    UNION ALL
    SELECT rubric_id, unit_id, item_first, item_second FROM imported_judgments WHERE study = $study
),
following AS (
    SELECT DISTINCT
        concat_ws(chr(31), coalesce(rubric_id, ''), unit_id, least(item_first, item_second),
            greatest(item_first, item_second)) AS case_key,
        least(item_first, item_second) AS item_lo
    FROM pairs
    WHERE item_second IS NOT NULL
)
SELECT
    coalesce(max(case_key), '') AS until, coalesce(min(item_lo), '') AS lo, coalesce(max(item_lo), '') AS hi,
    coalesce(max(n_behind), 0) - count(*) AS n_left
FROM (
    SELECT *, count(*) OVER () AS n_behind
    FROM following
    WHERE case_key > $after
    ORDER BY case_key
    LIMIT {limit}
)
