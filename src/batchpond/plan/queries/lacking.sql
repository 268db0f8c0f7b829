-- The places of staged rows whose key a table does not have, each key once: of some of the keys, by their digest.
INSERT INTO fresh SELECT min(place) FROM ({staged}) AS staged
WHERE hash({key}) % $n_parts = $part AND NOT EXISTS (
    SELECT 1 FROM {table} AS known WHERE known.{key} = staged.{key} AND hash(known.{key}) % $n_parts = $part
) GROUP BY {key}
