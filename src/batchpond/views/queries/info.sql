-- What a lens says of itself: what it was made of, the files of each table, and those that cannot be read.
CREATE TABLE lens_info (fingerprint VARCHAR, n_files BIGINT, views_digest VARCHAR, duckdb_version VARCHAR);
CREATE TABLE lens_lists (table_name VARCHAR, paths VARCHAR, stood VARCHAR);
CREATE TABLE lens_bad (table_name VARCHAR, path VARCHAR, problem VARCHAR);
CREATE VIEW lens_files AS
SELECT table_name, unnest(string_split(paths, chr(10))) AS path, NULL AS problem FROM lens_lists
UNION ALL FROM lens_bad;
