-- What tells a study's cells apart, in the order of the keys of a side.
SELECT
  list(DISTINCT template_id ORDER BY template_id), list(DISTINCT rubric_id ORDER BY rubric_id),
  list(DISTINCT provider ORDER BY provider), list(DISTINCT request_model ORDER BY request_model),
  list(DISTINCT thinking ORDER BY thinking), list(DISTINCT candidate_first ORDER BY candidate_first),
  list(DISTINCT CAST(repeat_no AS VARCHAR) ORDER BY CAST(repeat_no AS VARCHAR))
FROM calls
WHERE study = $study AND provider <> 'human'
