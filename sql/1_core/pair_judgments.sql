-- grain: study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second, repeat_no
-- question: What did each judge say about each pair in each order?
-- source: the pairwise and ranking rows of results, and imported judgments, with one set of columns. Every metric
--   starts here. verdict is about the presented items (first, second, tie); item_lo and item_hi are the two in binary
--   order. outcome is NULL while a request is not answered. Only decided and tie may enter a rate.
CREATE OR REPLACE VIEW pair_judgments AS
SELECT
  study,
  template_id,
  rubric_id,
  provider,
  request_model,
  thinking,
  unit_id,
  pair_id,
  item_first,
  item_second,
  candidate_first,
  candidate_second,
  item_lo,
  item_hi,
  item_first = item_lo AS is_lo_first,
  direction,
  repeat_no,
  purpose,
  verdict,
  outcome,
  confidence,
  input_tokens,
  output_tokens,
  cost_usd,
  origin
FROM results
WHERE task IN ('pairwise', 'ranking')
UNION ALL
SELECT
  study,
  template_id,
  rubric_id,
  provider,
  request_model,
  thinking,
  unit_id,
  least(item_first, item_second) || ' | ' || greatest(item_first, item_second) AS pair_id,
  item_first,
  item_second,
  candidate_first,
  candidate_second,
  least(item_first, item_second) AS item_lo,
  greatest(item_first, item_second) AS item_hi,
  item_first <= item_second AS is_lo_first,
  direction,
  repeat_no,
  CAST(NULL AS VARCHAR) AS purpose,
  CASE WHEN verdict IN ('first', 'second', 'tie') THEN verdict END AS verdict,
  outcome,
  confidence,
  input_tokens,
  output_tokens,
  cost_usd,
  coalesce(origin, 'imported') AS origin
FROM imported_judgments
WHERE coalesce(task, 'pairwise') IN ('pairwise', 'ranking');
