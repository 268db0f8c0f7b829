-- grain: study, slot
-- question: What did each planned request of every study's current version come to?
-- source: the plan, the response that counts for the request (responses_accepted), its judgment by the plan's parser,
--   and the attempt that asked last. A request that several cells share appears in each of them with the same ids and
--   the same cost; `costs` counts it once. request_state: planned (not sent; why it waits depends on keys, clocks and
--   limits, which no fact tells: `batchpond status` and `Lake.waits` do), outstanding (asked, no answer yet), answered,
--   failed, missing (its batch is settled and holds no line for it) or unknown (nobody knows yet whether its batch
--   exists). One that is asked again and waits for its turn is planned, whatever came of it before. outcome is NULL
--   until a request is answered, failed or missing. purpose says why an adaptive round asks for a row (start, gain,
--   reverse, or holdout, which no choice ever looks at), and gain how many nats of information it was expected to give;
--   both are NULL elsewhere, but for the purpose shared of a row that another stage has too: the same request, of the
--   same judge, about the same; metrics count it once. What is of a smaller tier is sent before what is of a larger
--   one. A list that was judged has a row for each item, with the one answer and its label, such as C>A=B: list_place
--   is the item's place among those shown, the letter A being place 1, and list_rank its rank in the answer, 1 for the
--   best, one more after each `>`; NULL where the answer names it not. `calls` has one row for each list.
CREATE OR REPLACE VIEW results AS
SELECT
  study,
  study_version,
  slot,
  cell_id,
  task,
  stage,
  round_no,
  mode,
  template_id,
  rubric_id,
  provider,
  endpoint,
  request_model,
  thinking,
  unit_id,
  pair_id,
  item_first,
  item_second,
  candidate_first,
  candidate_second,
  turn_no,
  least(item_first, item_second) AS item_lo,
  greatest(item_first, item_second) AS item_hi,
  is_lo_first,
  direction,
  repeat_no,
  purpose,
  gain,
  coalesce(tier, 1) AS tier,
  request_id,
  shown_attempt_id AS attempt_id,
  CASE WHEN request_state IN ('answered', 'failed') THEN response_batch_id ELSE asked_batch_id END AS batch_id,
  CASE WHEN request_state IN ('answered', 'failed') THEN response_custom_id ELSE asked_custom_id END AS custom_id,
  request_state,
  attempt_state,
  verdict,
  outcome,
  CASE verdict WHEN 'first' THEN item_first WHEN 'second' THEN item_second END AS better_item,
  label,
  score,
  confidence,
  explanation,
  text,
  thoughts,
  refusal,
  response_model,
  finish_reason,
  finish,
  input_tokens,
  output_tokens,
  reasoning_tokens,
  cached_tokens,
  cost_usd,
  status_code,
  error_class,
  error_code,
  error_message,
  provider_request_id,
  file_id,
  line_number,
  parser_id,
  template_hash,
  rubric_hash,
  item_first_hash,
  item_second_hash,
  coalesce(response_origin, asked_origin) AS origin,
  list_id,
  list_place,
  CASE
    WHEN list_place IS NOT NULL AND outcome IN ('decided', 'tie') AND strpos(label, list_letter) > 0
      THEN CAST(1 + strpos(label, list_letter) - length(translate(substr(label, 1, strpos(label, list_letter)), '>', ''))
        AS BIGINT)
  END AS list_rank
FROM (
  SELECT
    request_states.*,
    judgment.label,
    judgment.score,
    judgment.confidence,
    judgment.explanation,
    CASE WHEN request_states.request_state IN ('answered', 'failed') THEN judgment.verdict END AS verdict,
    CASE
      WHEN request_states.request_state = 'answered' THEN judgment.outcome
      WHEN request_states.request_state = 'missing' THEN 'missing'
      WHEN request_states.request_state = 'failed' THEN
        coalesce(
          judgment.outcome,
          CASE WHEN request_states.status IN ('expired', 'cancelled') THEN request_states.status ELSE 'error' END
        )
    END AS outcome,
    chr(CAST(64 + request_states.list_place AS INTEGER)) AS list_letter,
    CASE
      WHEN request_states.request_state IN ('answered', 'failed') THEN request_states.response_attempt_id
      ELSE request_states.asked_attempt_id
    END AS shown_attempt_id
  FROM request_states
  LEFT JOIN judgments AS judgment
    ON judgment.request_id = request_states.response_request_id
    AND judgment.attempt_id = request_states.response_attempt_id
    AND judgment.line_number = request_states.line_number
    AND judgment.parser_id = request_states.parser_id
) AS judged;
