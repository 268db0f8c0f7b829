-- One study's judgments, counted by scope, unit and ordered pair.
CREATE OR REPLACE TEMP TABLE rank_counts AS
SELECT
  {keys} {first} AS first, {second} AS second,
  count(*) FILTER (WHERE verdict = 'first') AS n_first,
  count(*) FILTER (WHERE verdict = 'second') AS n_second,
  count(*) FILTER (WHERE verdict = 'tie') AS n_tied,
  count(*) FILTER (WHERE outcome IS NOT NULL AND verdict IS NULL) AS n_without_verdict,
  count(*) FILTER (WHERE outcome IS NULL) AS n_pending
FROM {source}
WHERE study = $study AND {first} <> {second}
GROUP BY {keys} {first}, {second}
