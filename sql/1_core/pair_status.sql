-- grain: study, cell, unit_id, item_lo, item_hi
-- question: Did the judge say the same about a pair of items in both orders, and if not, which position won?
-- source: own definitions. Per order the verdict is the majority over its repeats (`lo`, `hi` or `tie`; NULL without
--   a unique one). Both orders equal: consistent_win or consistent_tie. The item shown first won both times: primacy;
--   the second: recency. One order a tie, the other a win for the first: soft_primacy; for the second: soft_recency.
--   An order with answers but no majority: undecided. An order with no answer although one is planned: pending. An
--   order with no answer and none planned: missing_reverse. candidate_lo and candidate_hi are the models whose outputs
--   the two items are, where that is known. Of an order's answers n_open_ are unread or missing, n_pending_ are to come.
--   list_kind: of pairs that lists imply, as in pair_judgments. Of the ties of both orders n_both_good and n_both_bad say
--   that both are; has_tie_kinds: the judge could say so, or somebody did.
--   Each vote of one order with each of the other, so that repeats that split count in part: lo_part and hi_part are the
--   share of these that both name that item, tie_part that are two ties, primacy_part and recency_part that both name
--   the first, or the second; NULL without votes in both orders. With one vote per order they are 1 or 0, as the status says.
-- Unparsed, refused and failed requests are answers without a verdict: they make an order undecided, never a loss or
-- a tie. Requests still out (outcome NULL) cast no vote; where each order has an answer already, the status may still
-- change while n_pending is above 0. One GROUP BY and not a self join: with repeats the join must aggregate each
-- order first, which took twice the time and memory at 10 million rows.

CREATE OR REPLACE VIEW pair_status AS
WITH votes AS (
  SELECT
    study, cell(pair_judgments) AS cell, unit_id, item_lo, item_hi,
    min(CASE WHEN is_lo_first THEN candidate_first ELSE candidate_second END) AS candidate_lo,
    min(CASE WHEN is_lo_first THEN candidate_second ELSE candidate_first END) AS candidate_hi,
    max(list_kind) AS list_kind,
    count(*) FILTER (WHERE tie_kind = 'both_good') AS n_both_good,
    count(*) FILTER (WHERE tie_kind = 'both_bad') AS n_both_bad,
    bool_or(coalesce(has_tie_kinds, FALSE) OR tie_kind IS NOT NULL) AS has_tie_kinds,
    count(outcome) FILTER (WHERE is_lo_first) AS n_answered_lo_first,
    count(outcome) FILTER (WHERE NOT is_lo_first) AS n_answered_hi_first,
    count(*) FILTER (WHERE is_lo_first AND verdict = 'first') AS n_lo_won_lo_first,
    count(*) FILTER (WHERE is_lo_first AND verdict = 'second') AS n_hi_won_lo_first,
    count(*) FILTER (WHERE is_lo_first AND verdict = 'tie') AS n_tied_lo_first,
    count(*) FILTER (WHERE NOT is_lo_first AND verdict = 'second') AS n_lo_won_hi_first,
    count(*) FILTER (WHERE NOT is_lo_first AND verdict = 'first') AS n_hi_won_hi_first,
    count(*) FILTER (WHERE NOT is_lo_first AND verdict = 'tie') AS n_tied_hi_first,
    count(*) FILTER (WHERE is_lo_first AND outcome NOT IN ('decided', 'tie', 'not_applicable', 'unsure'))
      AS n_open_lo_first,
    count(*) FILTER (WHERE NOT is_lo_first AND outcome NOT IN ('decided', 'tie', 'not_applicable', 'unsure'))
      AS n_open_hi_first,
    count(*) FILTER (WHERE is_lo_first AND outcome IS NULL) AS n_pending_lo_first,
    count(*) FILTER (WHERE NOT is_lo_first AND outcome IS NULL) AS n_pending_hi_first
  FROM pair_judgments
  GROUP BY study, cell, unit_id, item_lo, item_hi
),
majorities AS (
  SELECT
    *,
    n_pending_lo_first + n_pending_hi_first AS n_pending,
    nullif((n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first)
      * (n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first), 0) AS n_crossed,
    CASE WHEN n_lo_won_lo_first > n_hi_won_lo_first AND n_lo_won_lo_first > n_tied_lo_first THEN 'lo'
         WHEN n_hi_won_lo_first > n_lo_won_lo_first AND n_hi_won_lo_first > n_tied_lo_first THEN 'hi'
         WHEN n_tied_lo_first > n_lo_won_lo_first AND n_tied_lo_first > n_hi_won_lo_first THEN 'tie'
    END AS majority_lo_first,
    CASE WHEN n_lo_won_hi_first > n_hi_won_hi_first AND n_lo_won_hi_first > n_tied_hi_first THEN 'lo'
         WHEN n_hi_won_hi_first > n_lo_won_hi_first AND n_hi_won_hi_first > n_tied_hi_first THEN 'hi'
         WHEN n_tied_hi_first > n_lo_won_hi_first AND n_tied_hi_first > n_hi_won_hi_first THEN 'tie'
    END AS majority_hi_first
  FROM votes
)
SELECT
  study, cell.*, unit_id, item_lo, item_hi,
  CASE WHEN n_answered_lo_first = 0 AND n_pending_lo_first > 0 THEN 'pending'
       WHEN n_answered_hi_first = 0 AND n_pending_hi_first > 0 THEN 'pending'
       WHEN n_answered_lo_first = 0 OR n_answered_hi_first = 0 THEN 'missing_reverse'
       WHEN majority_lo_first IS NULL OR majority_hi_first IS NULL THEN 'undecided'
       WHEN majority_lo_first = majority_hi_first AND majority_lo_first = 'tie' THEN 'consistent_tie'
       WHEN majority_lo_first = majority_hi_first THEN 'consistent_win'
       WHEN majority_lo_first = 'lo' AND majority_hi_first = 'hi' THEN 'primacy'
       WHEN majority_lo_first = 'hi' AND majority_hi_first = 'lo' THEN 'recency'
       WHEN majority_lo_first = 'lo' OR majority_hi_first = 'hi' THEN 'soft_primacy'
       ELSE 'soft_recency' END AS status,
  majority_lo_first, majority_hi_first,
  n_answered_lo_first, n_answered_hi_first,
  n_lo_won_lo_first, n_hi_won_lo_first, n_tied_lo_first,
  n_lo_won_hi_first, n_hi_won_hi_first, n_tied_hi_first,
  n_pending,
  n_open_lo_first, n_open_hi_first, n_pending_lo_first, n_pending_hi_first,
  candidate_lo, candidate_hi, list_kind, n_both_good, n_both_bad, has_tie_kinds,
  n_lo_won_lo_first * n_lo_won_hi_first / n_crossed AS lo_part,
  n_hi_won_lo_first * n_hi_won_hi_first / n_crossed AS hi_part,
  n_tied_lo_first * n_tied_hi_first / n_crossed AS tie_part,
  n_lo_won_lo_first * n_hi_won_hi_first / n_crossed AS primacy_part,
  n_hi_won_lo_first * n_lo_won_hi_first / n_crossed AS recency_part
FROM majorities;
