-- The columns of a table or view of the lens, in its order, as CREATE TABLE takes them.
SELECT string_agg('"' || column_name || '" ' || data_type, ', ' ORDER BY column_index)
FROM duckdb_columns()
WHERE database_name IN (current_database(), 'batchpond') AND table_name = $name
