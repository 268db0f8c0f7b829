-- One study's judgments of adaptive rounds, counted by scope, ordered pair, verdict and whether they were held out.
CREATE OR REPLACE TEMP TABLE rank_adaptive AS
SELECT
  {keys} {first} AS first_name, {second} AS second_name, verdict, purpose = 'holdout' AS is_held_out, count(*) AS n
FROM {source}
WHERE study = $study AND {first} <> {second} AND purpose IS NOT NULL AND verdict IS NOT NULL
GROUP BY ALL
