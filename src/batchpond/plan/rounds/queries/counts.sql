-- How many requests a version has, and its newest round.
SELECT count(DISTINCT request_id), coalesce(max(round_no), 0)
FROM plan WHERE study = $study AND study_version = $version
