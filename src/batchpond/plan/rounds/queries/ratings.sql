-- The mean rating of each unit.
SELECT unit_id, avg(score) AS rating FROM results
WHERE study = $study AND list_contains($stages, stage) AND {good} AND score IS NOT NULL
GROUP BY unit_id
