-- One study's judgments, counted by scope, unit and pair: who won how often, by which of the two was shown first; and
-- how many were chosen in rounds.
CREATE OR REPLACE TEMP TABLE {table} AS
SELECT
  {keys} lo_name, hi_name,
  count(*) FILTER (WHERE verdict = 'first' AND is_lo_first) AS lo_with_lo_first,
  count(*) FILTER (WHERE verdict = 'second' AND is_lo_first) AS hi_with_lo_first,
  count(*) FILTER (WHERE verdict = 'tie' AND is_lo_first) AS tied_with_lo_first,
  count(*) FILTER (WHERE verdict = 'second' AND NOT is_lo_first) AS lo_with_hi_first,
  count(*) FILTER (WHERE verdict = 'first' AND NOT is_lo_first) AS hi_with_hi_first,
  count(*) FILTER (WHERE verdict = 'tie' AND NOT is_lo_first) AS tied_with_hi_first,
  count(*) FILTER (WHERE outcome IS NOT NULL AND verdict IS NULL) AS n_without_verdict,
  count(*) FILTER (WHERE outcome IS NULL) AS n_pending,
  count(purpose) FILTER (WHERE verdict IS NOT NULL) AS n_chosen
FROM (
  SELECT
    {keys} verdict, outcome, purpose, {first} < {second} AS is_lo_first,
    least({first}, {second}) AS lo_name, greatest({first}, {second}) AS hi_name
  FROM {source}
  WHERE study = $study AND {first} <> {second} AND {where}
) AS pairs
GROUP BY {keys} lo_name, hi_name
