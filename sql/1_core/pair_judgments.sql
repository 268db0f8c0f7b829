-- grain: study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first, item_second, repeat_no
-- question: What did each judge say about each pair in each order?
-- source: the pairwise and ranking rows of results, the pairs that the listwise ones imply, and imported judgments,
--   with one set of columns. Every metric starts here. verdict is about the presented items (first, second, tie);
--   item_lo and item_hi are the two in binary order. outcome is NULL while a request is not answered. Only decided and
--   tie may enter a rate.
-- A list implies a pair of each two items of which its answer names one (Azari Soufiani, Parkes and Xia 2014: full and
-- top breaking), so that the best of a list has beaten each of the others, which say nothing of each other; every pair
-- where no answer could be read. What two stages ask of the same judge about the same is one row. item_first is the one
-- shown earlier. What is one list and its reverse is one unit (unit_id is the list where items have none of their own),
-- and its pairs are not independent. repeat_no counts the planned showings of a pair in one order. Of imported lists
-- the pairs are what was imported. list_kind: `order` of lists, `best` where the best alone was asked for. What a list
-- costs stands in `calls`. tie_kind: which of both_good and both_bad a tie is, where the judge said; has_tie_kinds: it
-- could say so.
CREATE OR REPLACE VIEW pair_judgments AS
-- Who else is shown in a list stands in the plan, so that results are read once.
WITH others AS (
  SELECT
    one.study,
    one.slot,
    other.item_first AS item_other,
    other.candidate_first AS candidate_other,
    chr(CAST(64 + other.list_place AS INTEGER)) AS letter_other,
    CAST(row_number() OVER (
      PARTITION BY one.study, one.cell_id, coalesce(nullif(one.unit_id, ''), one.list_id), one.item_first, other.item_first
      ORDER BY one.repeat_no, one.slot
    ) AS INTEGER) AS showing_no
  FROM plan_current AS one
  JOIN plan_current AS other
    ON other.study = one.study
    AND other.cell_id = one.cell_id
    AND other.list_id = one.list_id
    AND other.request_id = one.request_id
    AND other.list_place > one.list_place
  WHERE one.task = 'listwise'
    AND other.task = 'listwise'
),
shown AS (
  SELECT
    results.*,
    others.item_other,
    others.candidate_other,
    others.showing_no,
    others.item_other IS NOT NULL AS is_listed,
    CASE
      WHEN outcome IN ('decided', 'tie') AND strpos(label, letter_other) > 0
        THEN 1 + strpos(label, letter_other)
          - length(translate(substr(label, 1, strpos(label, letter_other)), '>', ''))
      ELSE 99
    END AS rank_other
  FROM results
  LEFT JOIN others ON others.study = results.study AND others.slot = results.slot
  WHERE (results.task IN ('pairwise', 'ranking') OR others.item_other IS NOT NULL)
    AND coalesce(results.purpose, '') <> 'shared'
),
judged AS (
  SELECT
    *,
    CASE
      WHEN NOT is_listed THEN verdict
      WHEN coalesce(list_rank, 99) < rank_other THEN 'first'
      WHEN coalesce(list_rank, 99) > rank_other THEN 'second'
      WHEN list_rank IS NOT NULL THEN 'tie'
    END AS pair_verdict
  FROM shown
)
SELECT
  study,
  template_id,
  rubric_id,
  provider,
  request_model,
  thinking,
  CASE WHEN is_listed THEN coalesce(nullif(unit_id, ''), list_id) ELSE unit_id END AS unit_id,
  coalesce(pair_id, list_id) AS pair_id,
  item_first,
  coalesce(item_other, item_second) AS item_second,
  candidate_first,
  CASE WHEN is_listed THEN candidate_other ELSE candidate_second END AS candidate_second,
  CASE WHEN is_listed THEN least(item_first, item_other) ELSE item_lo END AS item_lo,
  CASE WHEN is_listed THEN greatest(item_first, item_other) ELSE item_hi END AS item_hi,
  CASE WHEN is_listed THEN item_first < item_other ELSE item_first = item_lo END AS is_lo_first,
  direction,
  coalesce(showing_no, repeat_no) AS repeat_no,
  purpose,
  pair_verdict AS verdict,
  CASE WHEN is_listed AND outcome IN ('decided', 'tie')
       THEN CASE pair_verdict WHEN 'tie' THEN 'tie' ELSE 'decided' END ELSE outcome END AS outcome,
  confidence,
  CASE WHEN NOT is_listed THEN input_tokens END AS input_tokens,
  CASE WHEN NOT is_listed THEN output_tokens END AS output_tokens,
  CASE WHEN NOT is_listed THEN cost_usd END AS cost_usd,
  origin,
  CASE WHEN is_listed THEN CASE WHEN parser_id LIKE 'listwise-best-%' THEN 'best' ELSE 'order' END END AS list_kind,
  CASE WHEN verdict = 'tie' AND label IN ('both_good', 'both_bad') THEN label END AS tie_kind,
  parser_id LIKE '%-kinds-%' AS has_tie_kinds
FROM judged
WHERE NOT is_listed OR pair_verdict IS NOT NULL OR coalesce(outcome, '') NOT IN ('decided', 'tie')
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
  CASE WHEN coalesce(provider, '') <> 'human' THEN purpose END AS purpose,
  CASE WHEN verdict IN ('first', 'second', 'tie') THEN verdict END AS verdict,
  outcome,
  confidence,
  input_tokens,
  output_tokens,
  cost_usd,
  coalesce(origin, 'imported') AS origin,
  list_kind,
  CASE WHEN verdict = 'tie' AND label IN ('both_good', 'both_bad') THEN label END AS tie_kind,
  parser_id LIKE '%-kinds-%' AS has_tie_kinds
FROM imported_judgments
WHERE coalesce(task, 'pairwise') IN ('pairwise', 'ranking', 'listwise') AND coalesce(purpose, '') <> 'shared';
