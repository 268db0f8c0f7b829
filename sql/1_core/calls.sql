-- grain: study, task, stage, round_no, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first,
--   item_second, candidate_first, turn_no, repeat_no, list_id, direction
-- question: What became of every request and every imported judgment, whatever its task, and what did it cost?
-- source: the rows of results, and imported judgments, with one set of columns. outcome is NULL while a request is not
--   answered. A request that several cells share appears in each of them, and once where two stages ask it of the same
--   judge about the same (purpose shared); so does one answer that is read as several fields, which is_field marks. A
--   list is one call, told by its first item, an imported one by the first of its pairs.

CREATE OR REPLACE VIEW calls AS
SELECT
  study, task, stage, round_no,
  template_id, rubric_id, provider, request_model, thinking,
  unit_id, item_first, item_second, candidate_first, turn_no, repeat_no,
  outcome, error_class, input_tokens, output_tokens, cost_usd, origin, list_id, direction,
  coalesce(parser_id LIKE 'prompts-field-%', FALSE) AS is_field
FROM results
WHERE coalesce(list_place, 1) = 1 AND coalesce(purpose, '') <> 'shared'
UNION ALL
SELECT
  study, task, CAST(NULL AS VARCHAR) AS stage, CAST(NULL AS INTEGER) AS round_no,
  template_id, rubric_id, provider, request_model, thinking,
  unit_id, item_first, item_second, candidate_first, turn_no, repeat_no,
  outcome, CAST(NULL AS VARCHAR) AS error_class, input_tokens, output_tokens, cost_usd,
  coalesce(origin, 'imported') AS origin,
  CAST(NULL AS VARCHAR) AS list_id, direction,
  coalesce(parser_id LIKE 'prompts-field-%', FALSE) AS is_field
FROM imported_judgments
WHERE (list_kind IS NULL OR turn_no = 1) AND coalesce(purpose, '') <> 'shared';
