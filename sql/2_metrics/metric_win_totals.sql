-- grain: study, template_id, judge, candidate
-- question: How often does each candidate model win and lose against all others together?
-- source: candidate_pairs, each pair counted for both of its models.
-- estimators:
--   - win_rate_half: wins, with a tie or an inconsistent pair by half, of wins, losses, ties and inconsistent pairs, by
--     all votes, as in metric_win_matrix
--   - win_rate_half_min, win_rate_half_max: what the n_missing pairs leave open, of these and the others: all of them
--     lost, or all won
--   - speceval_wins, speceval_losses, speceval_ties: those of SpecEval's all-pairs mode, where a win must hold in both
--     orders and what does not is a tie
--   - speceval_unique_wins, speceval_unique_losses, speceval_unique_ties: those of SpecEval's unique-pairs mode, which
--     reads only the order with the lower name shown first
--   Counts are of majorities of repeats.
-- reference: SpecEval, which ranks an answer that it could not read as a tie too; here such a pair is n_missing, beside
--   the totals.
-- nulls: win_rate_half is NULL where no pair has a judgment in both orders.

CREATE OR REPLACE VIEW metric_win_totals AS
WITH sides AS (
  SELECT
    study, template_id, judge(candidate_pairs) AS judge, candidate_a AS candidate,
    CASE winner WHEN 'a' THEN 'win' WHEN 'b' THEN 'loss' ELSE winner END AS result,
    rank_a_first AS rank,
    part_a - part_b AS lead
  FROM candidate_pairs
  UNION ALL
  SELECT
    study, template_id, judge(candidate_pairs) AS judge, candidate_b AS candidate,
    CASE winner WHEN 'b' THEN 'win' WHEN 'a' THEN 'loss' ELSE winner END AS result,
    -rank_a_first AS rank,
    part_b - part_a AS lead
  FROM candidate_pairs
),
counts AS (
  SELECT
    study, template_id, judge, candidate,
    count(*) FILTER (WHERE result = 'win') AS n_wins,
    count(*) FILTER (WHERE result = 'loss') AS n_losses,
    count(*) FILTER (WHERE result = 'tie') AS n_true_ties,
    count(*) FILTER (WHERE result = 'inconsistent') AS n_inconsistent,
    count(*) FILTER (WHERE result = 'missing') AS n_missing,
    count(*) FILTER (WHERE result = 'pending') AS n_pairs_pending,
    count(lead) AS n_both,
    (count(lead) + coalesce(round(sum(lead), 12), 0)) / 2 AS points,
    count(*) FILTER (WHERE rank = 1) AS speceval_unique_wins,
    count(*) FILTER (WHERE rank = -1) AS speceval_unique_losses,
    count(*) FILTER (WHERE rank = 0) AS speceval_unique_ties
  FROM sides
  GROUP BY study, template_id, judge, candidate
)
SELECT
  study, template_id, judge.*, candidate,
  n_wins, n_losses, n_true_ties, n_inconsistent, n_missing, n_pairs_pending,
  points / nullif(n_both, 0) AS win_rate_half,
  points / nullif(n_both + n_missing, 0) AS win_rate_half_min,
  (points + n_missing) / nullif(n_both + n_missing, 0) AS win_rate_half_max,
  n_wins AS speceval_wins,
  n_losses AS speceval_losses,
  n_true_ties + n_inconsistent AS speceval_ties,
  speceval_unique_wins, speceval_unique_losses, speceval_unique_ties
FROM counts;
