-- The first free slot of a version, and how many files a round has.
SELECT coalesce(max(slot), -1) + 1, count(DISTINCT filename) FILTER (WHERE round_no = $round_no)
FROM plan WHERE study = $study AND study_version = $version
