-- What one scope compares, numbered in the order of names; beside it how many judgments of each have no verdict, are to
-- come, or were chosen in rounds.
CREATE OR REPLACE TEMP TABLE rank_items AS
SELECT
  name,
  row_number() OVER (ORDER BY name) - 1 AS item_no,
  CAST(sum(n_without_verdict) AS BIGINT) AS n_without_verdict,
  CAST(sum(n_pending) AS BIGINT) AS n_pending,
  CAST(sum(n_chosen) AS BIGINT) AS n_chosen
FROM (
  SELECT unnest([lo_name, hi_name]) AS name, n_without_verdict, n_pending, n_chosen FROM rank_counts WHERE {where}
) AS sides
GROUP BY name
