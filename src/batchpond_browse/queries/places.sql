-- How far the next judgments reach, in the order of the pairs or items that they are of, and how many are left.
WITH following AS MATERIALIZED (
    SELECT {key} AS case_key, {item} AS item FROM plan_current WHERE study = $study AND {are} AND {key} > $after
    UNION ALL
    SELECT {key}, {item} FROM imported_judgments WHERE study = $study AND {are} AND {key} > $after
)
SELECT
    coalesce(max(case_key), '') AS until, coalesce(min(item), '') AS lo, coalesce(max(item), '') AS hi,
    (SELECT count(*) FROM following) - count(*) AS n_left
FROM (FROM following ORDER BY case_key LIMIT {limit})
