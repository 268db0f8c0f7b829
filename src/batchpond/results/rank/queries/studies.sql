-- Each study with judgments of pairs, by scope: how many, of how many both candidates are known, whether they are of
-- more than one unit, how many were chosen in rounds, and how many are people's.
SELECT
  study,
  count(*),
  count(*) FILTER (WHERE candidate_first IS NOT NULL AND candidate_second IS NOT NULL),
  min(unit_id) IS DISTINCT FROM max(unit_id) OR count(unit_id) NOT IN (0, count(*)),
  count(purpose),
  count(*) FILTER (WHERE provider = 'human')
  {scope}
FROM {source}
{where}
GROUP BY study {scope}
ORDER BY study {scope}
