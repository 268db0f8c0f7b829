-- How many judgments are given, how many rows of them the lake has, and how many judgments it lacks.
SELECT count(*), count(*) FILTER (WHERE is_known), count(DISTINCT import_key) FILTER (WHERE NOT is_known)
FROM (SELECT import_key, import_key IN (SELECT import_key FROM known) AS is_known FROM keyed)
