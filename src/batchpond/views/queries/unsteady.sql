-- The functions that do not always give the same for the same.
-- Of a function's forms those of a time with its zone follow a setting; a text can only be cast to one.
SELECT function_name
FROM duckdb_functions()
WHERE function_name IN (SELECT unnest($names)) AND function_type = 'scalar'
GROUP BY function_name
HAVING bool_or(stability = 'VOLATILE') OR bool_and(stability <> 'CONSISTENT')
ORDER BY ALL
