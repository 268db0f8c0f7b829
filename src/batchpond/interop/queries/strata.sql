-- The units by what they are drawn by: how many, how many of them are labelled, and how wrong judges were on n_told of these.
SELECT
    task, standing, count(*) AS n_units, count(*) FILTER (WHERE is_labelled) AS n_labelled,
    count(wrong_part) AS n_told, coalesce(sum(wrong_part), 0.0) AS n_wrong
FROM ({units})
WHERE is_to_draw
GROUP BY task, standing
ORDER BY task, standing
