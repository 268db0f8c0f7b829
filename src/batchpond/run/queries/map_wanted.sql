-- What a study plans at a provider, in one version or in any.
CREATE TEMP TABLE wanted AS
SELECT
  request_id, left(request_id, $key_length) AS request_key, slot, template_id, rubric_id, request_model, thinking, unit_id,
  item_first, item_second, direction, repeat_no
FROM plan
WHERE study = $study AND ($version IS NULL OR study_version = $version) AND provider = $provider
