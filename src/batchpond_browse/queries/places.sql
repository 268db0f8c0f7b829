-- How far the next pairs or items of a study reach, in the order of their keys, and how many are left.
WITH cases AS (
    SELECT {key} AS case_key, {item} AS item FROM plan_current WHERE study = $study AND {are}
    UNION ALL
    SELECT {key}, {item} FROM imported_judgments WHERE study = $study AND {are}
),
following AS MATERIALIZED (
    SELECT case_key, min(item) AS item FROM cases WHERE case_key > $after GROUP BY case_key
)
SELECT
    coalesce(max(case_key), '') AS until, coalesce(min(item), '') AS lo, coalesce(max(item), '') AS hi,
    (SELECT count(*) FROM following) - count(*) AS n_left
FROM (FROM following ORDER BY case_key LIMIT {limit})
