-- grain: study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second, repeat_no
-- question: What did each judge say about each pair in each order?
-- source: the pairwise and ranking rows of results, the pairs that the listwise ones imply, and imported judgments, with
--   one set of columns. Every metric starts here. verdict is about the presented items (first, second, tie); item_lo and item_hi are the two in binary
--   order. outcome is NULL while a request is not answered. Only decided and tie may enter a rate.
-- A list implies a pair of each two items of which its answer names one (Azari Soufiani, Parkes and Xia 2014: full and
--   top breaking), so that the best of a list has beaten each of the others, which say nothing of each other; every pair
--   where no answer could be read. item_first is the one shown earlier. What is one list and its reverse is one unit
--   (unit_id is the list where items have none of their own), and its pairs are not independent. repeat_no counts the
--   showings of a pair in one order. list_kind: `order` of lists, `best` where the best alone was asked
--   for. What a list costs stands in `calls`.
CREATE OR REPLACE VIEW pair_judgments AS
WITH listed AS (
  SELECT *, CASE WHEN parser_id LIKE 'listwise-best-%' THEN 'best' ELSE 'order' END AS list_kind
  FROM results
  WHERE task = 'listwise'
),
implied AS (
  SELECT
    one.*,
    other.item_first AS item_other,
    other.candidate_first AS candidate_other,
    CASE
      WHEN coalesce(one.list_rank, 99) < coalesce(other.list_rank, 99) THEN 'first'
      WHEN coalesce(one.list_rank, 99) > coalesce(other.list_rank, 99) THEN 'second'
      WHEN one.list_rank IS NOT NULL THEN 'tie'
    END AS pair_verdict
  FROM listed AS one
  JOIN listed AS other
    ON other.study = one.study
    AND other.cell_id = one.cell_id
    AND other.list_id = one.list_id
    AND other.request_id = one.request_id
    AND other.list_place > one.list_place
)
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
  origin,
  CAST(NULL AS VARCHAR) AS list_kind
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
  coalesce(nullif(unit_id, ''), list_id) AS unit_id,
  list_id AS pair_id,
  item_first,
  item_other AS item_second,
  candidate_first,
  candidate_other AS candidate_second,
  least(item_first, item_other) AS item_lo,
  greatest(item_first, item_other) AS item_hi,
  item_first < item_other AS is_lo_first,
  direction,
  CAST(row_number() OVER (
    PARTITION BY study, cell_id, coalesce(nullif(unit_id, ''), list_id), item_first, item_other
    ORDER BY repeat_no, slot
  ) AS INTEGER) AS repeat_no,
  purpose,
  pair_verdict AS verdict,
  CASE WHEN outcome IN ('decided', 'tie') THEN CASE pair_verdict WHEN 'tie' THEN 'tie' ELSE 'decided' END ELSE outcome
    END AS outcome,
  confidence,
  CAST(NULL AS BIGINT) AS input_tokens,
  CAST(NULL AS BIGINT) AS output_tokens,
  CAST(NULL AS DOUBLE) AS cost_usd,
  origin,
  list_kind
FROM implied
WHERE pair_verdict IS NOT NULL OR coalesce(outcome, '') NOT IN ('decided', 'tie')
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
  coalesce(origin, 'imported') AS origin,
  CAST(NULL AS VARCHAR) AS list_kind
FROM imported_judgments
WHERE coalesce(task, 'pairwise') IN ('pairwise', 'ranking');
