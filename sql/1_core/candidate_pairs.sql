-- grain: study, cell, unit_id, candidate_a, candidate_b, item_a, item_b
-- question: Which of two candidate models did a judge prefer on an input, and does that hold in both orders?
-- source: pair_status, read by the models whose outputs the items are; candidate_a is the lower name in binary order.
--   winner, of majorities: a, b, tie (a tie in both orders), inconsistent (the orders differ, a tie against a win
--   included, or the repeats of one are split), missing (no vote in an order, or no reverse) or pending. part_a, part_b
--   and part_tie are how much of the votes of one order with those of the other, each with each, both say a, b or a tie,
--   NULL without votes in both; n_votes are those of both orders.
--   rank_a_first is 1 when a won with its output shown first, -1 when b did, 0 for a tie, NULL without a majority;
--   rank_b_first is the same of b with b's output shown first. lead_a_first and lead_b_first are their means over the
--   votes, decided_a_first and decided_b_first the shares of these that are no tie.
-- Pairs of items that are not known to be two models' outputs do not appear.

CREATE OR REPLACE VIEW candidate_pairs AS
WITH named AS (
  SELECT
    *,
    cell(pair_status) AS cell,
    candidate_lo < candidate_hi AS is_a_lo
  FROM pair_status
  WHERE candidate_lo <> candidate_hi
),
ordered AS (
  SELECT
    study, cell, unit_id, status, n_pending, is_a_lo,
    lo_part, hi_part, tie_part,
    CASE WHEN is_a_lo THEN candidate_lo ELSE candidate_hi END AS candidate_a,
    CASE WHEN is_a_lo THEN candidate_hi ELSE candidate_lo END AS candidate_b,
    CASE WHEN is_a_lo THEN item_lo ELSE item_hi END AS item_a,
    CASE WHEN is_a_lo THEN item_hi ELSE item_lo END AS item_b,
    CASE WHEN is_a_lo THEN 'lo' ELSE 'hi' END AS side_of_a,
    CASE WHEN is_a_lo THEN majority_lo_first ELSE majority_hi_first END AS majority_a_first,
    CASE WHEN is_a_lo THEN majority_hi_first ELSE majority_lo_first END AS majority_b_first,
    CASE WHEN is_a_lo THEN n_lo_won_lo_first ELSE n_hi_won_hi_first END AS n_a_won_a_first,
    CASE WHEN is_a_lo THEN n_hi_won_lo_first ELSE n_lo_won_hi_first END AS n_b_won_a_first,
    CASE WHEN is_a_lo THEN n_tied_lo_first ELSE n_tied_hi_first END AS n_tied_a_first,
    CASE WHEN is_a_lo THEN n_lo_won_hi_first ELSE n_hi_won_lo_first END AS n_a_won_b_first,
    CASE WHEN is_a_lo THEN n_hi_won_hi_first ELSE n_lo_won_lo_first END AS n_b_won_b_first,
    CASE WHEN is_a_lo THEN n_tied_hi_first ELSE n_tied_lo_first END AS n_tied_b_first
  FROM named
)
SELECT
  study, cell.*, unit_id, candidate_a, candidate_b, item_a, item_b,
  CASE WHEN status = 'consistent_win' AND majority_a_first = side_of_a THEN 'a'
       WHEN status = 'consistent_win' THEN 'b'
       WHEN status = 'consistent_tie' THEN 'tie'
       WHEN status = 'pending' THEN 'pending'
       WHEN lo_part IS NULL THEN 'missing'
       ELSE 'inconsistent' END AS winner,
  CAST(CASE WHEN majority_a_first = 'tie' THEN 0 WHEN majority_a_first = side_of_a THEN 1
            WHEN majority_a_first IS NOT NULL THEN -1 END AS BIGINT) AS rank_a_first,
  CAST(CASE WHEN majority_b_first = 'tie' THEN 0 WHEN majority_b_first = side_of_a THEN -1
            WHEN majority_b_first IS NOT NULL THEN 1 END AS BIGINT) AS rank_b_first,
  n_pending,
  CASE WHEN is_a_lo THEN lo_part ELSE hi_part END AS part_a,
  CASE WHEN is_a_lo THEN hi_part ELSE lo_part END AS part_b,
  tie_part AS part_tie,
  n_a_won_a_first + n_b_won_a_first + n_tied_a_first + n_a_won_b_first + n_b_won_b_first + n_tied_b_first AS n_votes,
  (n_a_won_a_first - n_b_won_a_first) / nullif(n_a_won_a_first + n_b_won_a_first + n_tied_a_first, 0) AS lead_a_first,
  (n_b_won_b_first - n_a_won_b_first) / nullif(n_a_won_b_first + n_b_won_b_first + n_tied_b_first, 0) AS lead_b_first,
  (n_a_won_a_first + n_b_won_a_first) / nullif(n_a_won_a_first + n_b_won_a_first + n_tied_a_first, 0)
    AS decided_a_first,
  (n_a_won_b_first + n_b_won_b_first) / nullif(n_a_won_b_first + n_b_won_b_first + n_tied_b_first, 0)
    AS decided_b_first
FROM ordered;
