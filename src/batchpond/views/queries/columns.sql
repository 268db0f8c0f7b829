-- The columns of a table or view of the open database, in its order.
SELECT column_name, data_type
FROM duckdb_columns()
WHERE database_name = current_database() AND table_name = $name
ORDER BY column_index
