-- The places of staged rows whose key a table does not have, each key once: of some of the keys, by their digest.
INSERT INTO fresh SELECT min(place) FROM ({staged}) AS staged
WHERE hash({key}) % CAST($n_parts AS UBIGINT) = CAST($part AS UBIGINT) AND NOT EXISTS (
    SELECT 1 FROM {table} AS known
    WHERE known.{key} = staged.{key} AND hash(known.{key}) % CAST($n_parts AS UBIGINT) = CAST($part AS UBIGINT)
) GROUP BY {key}
