-- One scope's votes, a row per pair and unit: both by their place among `names` and units in order, a missing unit last;
-- how often the lower won, the higher won and neither did, the lower shown first and the higher shown first.
WITH places AS (
  SELECT unnest($names) AS name, generate_subscripts($names, 1) - 1 AS place
), placed AS (
  SELECT
    one.place AS first, other.place AS second, {unit} AS unit, n_first, n_second, n_tied, n_without_verdict, n_pending
  FROM rank_counts
  JOIN places AS one ON one.name = rank_counts.first
  JOIN places AS other ON other.name = rank_counts.second
  WHERE {where}
)
SELECT
  least(first, second) AS lo,
  greatest(first, second) AS hi,
  unit,
  coalesce(sum(n_first) FILTER (first < second), 0)::INTEGER,
  coalesce(sum(n_second) FILTER (first < second), 0)::INTEGER,
  coalesce(sum(n_tied) FILTER (first < second), 0)::INTEGER,
  coalesce(sum(n_second) FILTER (first > second), 0)::INTEGER,
  coalesce(sum(n_first) FILTER (first > second), 0)::INTEGER,
  coalesce(sum(n_tied) FILTER (first > second), 0)::INTEGER,
  sum(n_without_verdict)::INTEGER,
  sum(n_pending)::INTEGER
FROM placed
GROUP BY ALL
ORDER BY unit, lo, hi
