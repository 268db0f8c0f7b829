-- The endpoints that a study's version has planned, by the way to its batches.
SELECT provider, mode, list(DISTINCT endpoint) FROM plan
WHERE study = $1 AND study_version = $2 AND mode <> $3 GROUP BY ALL ORDER BY ALL
