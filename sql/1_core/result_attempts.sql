-- grain: study, slot, attempt_id, file_id, line_number
-- question: Which responses exist for each planned request, and which one counts?
-- source: every response that names a planned request, retries, duplicates and conflicts included; `match` says which
--   it is. is_accepted marks the one that `results` shows.
CREATE OR REPLACE VIEW result_attempts AS
SELECT
  plan_current.study,
  plan_current.study_version,
  plan_current.slot,
  plan_current.template_id,
  plan_current.rubric_id,
  plan_current.provider,
  plan_current.request_model,
  plan_current.thinking,
  plan_current.unit_id,
  plan_current.pair_id,
  plan_current.item_first,
  plan_current.item_second,
  plan_current.direction,
  plan_current.repeat_no,
  responses.request_id,
  responses.attempt_id,
  attempts.shard_kind,
  attempts.ordinal,
  attempts.attempt_order,
  responses.batch_id,
  responses.file_id,
  responses.file_role,
  responses.line_number,
  responses.custom_id,
  responses.match,
  coalesce(responses.match = 'matched' AND accepted.attempt_id = responses.attempt_id, FALSE) AS is_accepted,
  responses.status,
  judgments.verdict,
  judgments.outcome,
  responses.text,
  responses.thoughts,
  responses.finish_reason,
  responses.finish,
  responses.response_model,
  responses.input_tokens,
  responses.output_tokens,
  responses.reasoning_tokens,
  responses.cached_tokens,
  responses.cost_usd,
  responses.status_code,
  responses.error_class,
  responses.error_code,
  responses.error_message,
  responses.origin
FROM plan_current
JOIN responses ON responses.request_id = plan_current.request_id
LEFT JOIN attempts ON attempts.attempt_id = responses.attempt_id
LEFT JOIN responses_accepted AS accepted
  ON accepted.request_id = responses.request_id
LEFT JOIN judgments
  ON judgments.request_id = responses.request_id
  AND judgments.attempt_id = responses.attempt_id
  AND judgments.line_number = responses.line_number
  AND judgments.parser_id = plan_current.parser_id;
