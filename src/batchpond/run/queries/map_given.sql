-- A map's rows with their numbers as such, and by which columns each names its request.
CREATE TEMP MACRO number(said) AS CASE WHEN lower(trim(said)) NOT IN ('', 'nan', 'na') THEN trim(said) END; -- pandas, R
CREATE TEMP MACRO whole(said) AS TRY_CAST(regexp_replace(number(said), '\.0+$', '') AS BIGINT);
CREATE TEMP MACRO shown(said) AS '''' || left(CAST(said AS VARCHAR), 60) || '''';
CREATE TEMP TABLE given AS
SELECT *, concat({mask}) AS mask
FROM (
  SELECT
    * REPLACE (whole(slot) AS slot, whole(repeat_no) AS repeat_no), slot AS slot_text, repeat_no AS repeat_no_text
  FROM map_file
);
CREATE TEMP TABLE matched (line_no BIGINT, n BIGINT, found_id VARCHAR, differing VARCHAR);
