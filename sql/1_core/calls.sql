-- grain: study, task, stage, round_no, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first,
--   item_second, candidate_first, turn_no, repeat_no
-- question: What became of every request and every imported judgment, whatever its task, and what did it cost?
-- source: the rows of results, and imported judgments, with one set of columns. outcome is NULL while a request is not
--   answered. A request that several cells share appears in each of them.

CREATE OR REPLACE VIEW calls AS
SELECT
  study, task, stage, round_no,
  template_id, rubric_id, provider, request_model, thinking,
  unit_id, item_first, item_second, candidate_first, turn_no, repeat_no,
  outcome, input_tokens, output_tokens, cost_usd, origin
FROM results
UNION ALL
SELECT
  study, task, CAST(NULL AS VARCHAR) AS stage, CAST(NULL AS INTEGER) AS round_no,
  template_id, rubric_id, provider, request_model, thinking,
  unit_id, item_first, item_second, candidate_first, turn_no, repeat_no,
  outcome, input_tokens, output_tokens, cost_usd, coalesce(origin, 'imported') AS origin
FROM imported_judgments;
