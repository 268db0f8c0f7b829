-- grain: study, template_id, rubric_id, provider, request_model, thinking, unit_id, candidate_a, candidate_b, item_a,
--   item_b
-- question: Which of two candidate models did a judge prefer on an input, and does that hold in both orders?
-- source: pair_status, read by the models whose outputs the items are; candidate_a is the lower name in binary order.
--   winner: a, b, tie (a tie in both orders), inconsistent (the orders differ, a tie against a win included), missing
--   (no majority in an order, or no reverse) or pending. rank_a_first is 1 when a won with its output shown first, -1
--   when b did, 0 for a tie, NULL without a majority; rank_b_first is the same of b with b's output shown first.
-- Pairs of items that are not known to be two models' outputs do not appear.

CREATE OR REPLACE VIEW candidate_pairs AS
WITH named AS (
  SELECT
    *,
    candidate_lo < candidate_hi AS is_a_lo
  FROM pair_status
  WHERE candidate_lo <> candidate_hi
),
ordered AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, status, n_pending,
    CASE WHEN is_a_lo THEN candidate_lo ELSE candidate_hi END AS candidate_a,
    CASE WHEN is_a_lo THEN candidate_hi ELSE candidate_lo END AS candidate_b,
    CASE WHEN is_a_lo THEN item_lo ELSE item_hi END AS item_a,
    CASE WHEN is_a_lo THEN item_hi ELSE item_lo END AS item_b,
    CASE WHEN is_a_lo THEN 'lo' ELSE 'hi' END AS side_of_a,
    CASE WHEN is_a_lo THEN majority_lo_first ELSE majority_hi_first END AS majority_a_first,
    CASE WHEN is_a_lo THEN majority_hi_first ELSE majority_lo_first END AS majority_b_first
  FROM named
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking, unit_id, candidate_a, candidate_b, item_a, item_b,
  CASE WHEN status = 'consistent_win' AND majority_a_first = side_of_a THEN 'a'
       WHEN status = 'consistent_win' THEN 'b'
       WHEN status = 'consistent_tie' THEN 'tie'
       WHEN status = 'pending' THEN 'pending'
       WHEN status IN ('undecided', 'missing_reverse') THEN 'missing'
       ELSE 'inconsistent' END AS winner,
  CAST(CASE WHEN majority_a_first = 'tie' THEN 0 WHEN majority_a_first = side_of_a THEN 1
            WHEN majority_a_first IS NOT NULL THEN -1 END AS BIGINT) AS rank_a_first,
  CAST(CASE WHEN majority_b_first = 'tie' THEN 0 WHEN majority_b_first = side_of_a THEN -1
            WHEN majority_b_first IS NOT NULL THEN 1 END AS BIGINT) AS rank_b_first,
  n_pending
FROM ordered;
