-- grain: study, template_id, rubric_id, provider, request_model, thinking, candidate_a, candidate_b
-- question: On one statement, which of two candidate models does a judge prefer, counting only what holds in both
--   orders?
-- source: candidate_pairs; a win counts only when the two orders name the same winner. n_both = wins, true ties and
--   inconsistent pairs. A pair with an order missing, failed or without a majority is n_missing, never a tie.
-- estimators:
--   - consistency: wins and true ties, of n_both; Wilson
--   - consistency_min, consistency_max: what the n_missing pairs leave open, of n_pairs: none of them holds, or all do
--   - win_rate_half: gives a tie or an inconsistent pair to each by half, of n_both; the interval matched_difference, which
--     is p_sign's: 1/2 is outside exactly where p_sign is below 0.05
--   - win_rate_half_min, win_rate_half_max: what the n_missing pairs leave open, of n_pairs: all lost by a, or all won
--   - net: (wins a - wins b) / n_both
--   - p_sign: sign test of the wins
--   - sign_mde: the smallest share of wins that the test finds with power 0.8
-- reference: SpecEval (a win: rank_AB = -rank_BA); matched_difference, sign_test_mde.
-- nulls: a rate is NULL where n_both is 0, p_sign without a win, sign_mde where so few wins reveal no share.

CREATE OR REPLACE VIEW metric_win_matrix_by_rubric AS
WITH counts AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, candidate_a, candidate_b,
    count(*) FILTER (WHERE winner <> 'pending') AS n_pairs,
    count(*) FILTER (WHERE winner IN ('a', 'b', 'tie', 'inconsistent')) AS n_both,
    count(*) FILTER (WHERE winner = 'a') AS n_wins_a,
    count(*) FILTER (WHERE winner = 'b') AS n_wins_b,
    count(*) FILTER (WHERE winner = 'tie') AS n_true_ties,
    count(*) FILTER (WHERE winner = 'inconsistent') AS n_inconsistent,
    count(*) FILTER (WHERE winner = 'missing') AS n_missing,
    count(*) FILTER (WHERE winner = 'pending') AS n_pairs_pending
  FROM candidate_pairs
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, candidate_a, candidate_b
),
bounded AS (
  SELECT *, matched_difference(n_wins_a, n_wins_b, n_both) AS ends
  FROM counts
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking, candidate_a, candidate_b,
  n_pairs,
  n_both,
  n_wins_a,
  n_wins_b,
  n_true_ties,
  n_inconsistent,
  n_missing,
  n_pairs_pending,
  (n_wins_a + n_wins_b + n_true_ties) / nullif(n_both, 0) AS consistency,
  wilson_lo(n_wins_a + n_wins_b + n_true_ties, n_both) AS consistency_lo,
  wilson_hi(n_wins_a + n_wins_b + n_true_ties, n_both) AS consistency_hi,
  (n_wins_a + n_wins_b + n_true_ties) / nullif(n_pairs, 0) AS consistency_min,
  (n_pairs - n_inconsistent) / nullif(n_pairs, 0) AS consistency_max,
  (n_wins_a + 0.5 * (n_true_ties + n_inconsistent)) / nullif(n_both, 0) AS win_rate_half,
  0.5 + ends.lo / 2 AS win_rate_half_lo,
  0.5 + ends.hi / 2 AS win_rate_half_hi,
  (n_wins_a + 0.5 * (n_true_ties + n_inconsistent)) / nullif(n_pairs, 0) AS win_rate_half_min,
  (n_wins_a + n_missing + 0.5 * (n_true_ties + n_inconsistent)) / nullif(n_pairs, 0) AS win_rate_half_max,
  (n_wins_a - n_wins_b) / nullif(n_both, 0) AS net,
  binom_test_half(n_wins_a, n_wins_a + n_wins_b) AS p_sign,
  sign_test_mde(n_wins_a + n_wins_b) AS sign_mde
FROM bounded;
