-- The places of staged rows whose key a table does not have, each key once.
CREATE OR REPLACE TEMP TABLE fresh AS SELECT min(place) AS place FROM ({staged}) AS staged
WHERE NOT EXISTS (SELECT 1 FROM {table} AS known WHERE known.{key} = staged.{key}) GROUP BY {key}
