-- What a stage came to, as far as a condition chooses it; the beginning of a query.
WITH chosen AS (
  SELECT * FROM results
  WHERE study = $study AND stage = $stage AND {good} AND (
    $where
  )
)
