-- A name as one part of a path, as SpecEval writes models: `org/model` is `org-model`.
CREATE TEMP MACRO safe(name) AS
  coalesce(nullif(trim(regexp_replace(name, '[^\p{L}\p{N}_.@+=-]+', '-', 'g'), '.'), ''), 'unnamed');
-- A JSON object of members, of which those that are NULL are left out.
CREATE TEMP MACRO object(members) AS '{' || array_to_string(members, ', ') || '}';
CREATE TEMP MACRO member(name, value) AS '"' || name || '": ' || value;
-- The items with what their metadata says as columns, without what a simulator answered.
CREATE TEMP TABLE told AS
SELECT
    items.*,
    json_extract_string(metadata, '$.kind') AS kind,
    json_extract_string(metadata, '$.unit_id') AS unit_id,
    json_extract_string(metadata, '$.rubric_id') AS rubric_id,
    json_extract_string(metadata, '$.candidate') AS candidate,
    json_extract_string(metadata, '$.turn_no') AS turn_no,
    json_extract_string(metadata, '$.tactic') AS tactic,
    json_extract_string(metadata, '$.pressure') AS pressure,
    json_extract_string(metadata, '$.question_id') AS question_id,
    json_extract_string(metadata, '$.batch_id') AS batch_id
FROM items
WHERE json_extract_string(metadata, '$.origin') = 'imported' OR NOT EXISTS (
    SELECT 1 FROM results WHERE results.origin = 'simulated' AND results.text = items.text
);
