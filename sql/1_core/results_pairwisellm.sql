-- grain: study, template_id, rubric_id, backend, model, thinking, unit_id, pair_uid
-- question: What are the results in the columns that users of pairwiseLLM know?
-- source: the pairwise rows of results that have a response, each once, renamed. ID1 and A_id are the first presented
--   sample. better_sample is SAMPLE_1, SAMPLE_2 or NULL: a tie, an ambiguous or an unparsed answer has no better
--   sample. unordered_key is min:max, ordered_key A:B; pair_uid is unordered_key#k for the k-th request of the pair in
--   a cell.
CREATE OR REPLACE VIEW results_pairwisellm AS
WITH answered AS (
  SELECT
    results.*,
    attempts.downloaded_at AS received_at,
    row_number() OVER (
      PARTITION BY
        results.study, results.template_id, results.rubric_id, results.provider, results.request_model,
        results.thinking, results.unit_id, results.item_lo, results.item_hi
      ORDER BY results.repeat_no, results.direction, results.slot
    ) AS unordered_occurrence_index,
    row_number() OVER (
      PARTITION BY
        results.study, results.template_id, results.rubric_id, results.provider, results.request_model,
        results.thinking, results.unit_id, results.item_first, results.item_second
      ORDER BY results.repeat_no, results.direction, results.slot
    ) AS ordered_occurrence_index
  FROM results
  LEFT JOIN attempts ON attempts.attempt_id = results.attempt_id
  WHERE results.task = 'pairwise' AND results.request_state IN ('answered', 'failed')
    AND coalesce(results.purpose, '') <> 'shared'
)
SELECT
  custom_id,
  item_first AS "ID1",
  item_second AS "ID2",
  coalesce(response_model, request_model) AS response_model,
  request_model AS model,
  CASE
    WHEN endpoint LIKE '%chat/completions' THEN 'chat.completion'
    WHEN endpoint LIKE '%responses' THEN 'response'
  END AS object_type,
  status_code,
  CASE WHEN request_state = 'answered' THEN 'succeeded' ELSE outcome END AS result_type,
  error_message,
  thoughts,
  text AS content,
  CASE verdict WHEN 'first' THEN 'SAMPLE_1' WHEN 'second' THEN 'SAMPLE_2' END AS better_sample,
  better_item AS better_id,
  input_tokens AS prompt_tokens,
  output_tokens AS completion_tokens,
  input_tokens + output_tokens AS total_tokens,
  cached_tokens AS prompt_cached_tokens,
  reasoning_tokens,
  item_first AS "A_id",
  item_second AS "B_id",
  item_lo || ':' || item_hi AS unordered_key,
  item_first || ':' || item_second AS ordered_key,
  item_lo || ':' || item_hi || '#' || CAST(unordered_occurrence_index AS VARCHAR) AS pair_uid,
  unordered_occurrence_index,
  ordered_occurrence_index,
  CASE verdict WHEN 'first' THEN 1 WHEN 'second' THEN 2 END AS winner_pos,
  provider AS backend,
  received_at,
  outcome,
  cost_usd AS cost,
  error_code,
  study,
  template_id,
  rubric_id,
  thinking,
  unit_id,
  direction,
  repeat_no,
  batch_id,
  origin
FROM answered;
