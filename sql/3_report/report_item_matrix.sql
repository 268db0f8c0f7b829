-- grain: study, rubric_id, item_a, item_b
-- question: Of two items, which one do the judges of a rubric prefer, counting only what holds in both orders?
-- source: pair_status over all templates and judges but people, each pair once from either side. As in
--   metric_win_matrix: a win holds in both orders, a tie or an inconsistent pair counts half for each; n_both =
--   judgments of the pair with votes in both orders, the rate of every vote, n_wins of majorities of repeats.
CREATE OR REPLACE VIEW report_item_matrix AS
WITH counts AS (
  SELECT
    study, rubric_id, item_lo, item_hi,
    count(lo_part) AS n_both,
    coalesce(round(sum(lo_part - hi_part), 12), 0) AS lead,
    count(*) FILTER (WHERE status = 'consistent_win' AND majority_lo_first = 'lo') AS n_wins_lo,
    count(*) FILTER (WHERE status = 'consistent_win' AND majority_lo_first = 'hi') AS n_wins_hi
  FROM pair_status
  WHERE provider <> 'human'
  GROUP BY study, rubric_id, item_lo, item_hi
),
sides AS (
  SELECT study, rubric_id, item_lo AS item_a, item_hi AS item_b, n_both, n_wins_lo AS n_wins_a, n_wins_hi AS n_wins_b, lead
  FROM counts
  UNION ALL
  SELECT study, rubric_id, item_hi AS item_a, item_lo AS item_b, n_both, n_wins_hi AS n_wins_a, n_wins_lo AS n_wins_b, -lead
  FROM counts
)
SELECT
  study, rubric_id, item_a, item_b, n_both, n_wins_a, n_wins_b,
  n_both - n_wins_a - n_wins_b AS n_half,
  0.5 + lead / nullif(2 * n_both, 0) AS win_rate_half
FROM sides;
