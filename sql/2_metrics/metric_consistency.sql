-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: How often does a judge give the same verdict when the two items are swapped?
-- source: the statuses of pair_status; n_decided = n_consistent_win + n_primacy + n_recency; n_both = all six statuses
--   that have a majority in both orders. Left out and counted: n_undecided, n_missing_reverse (n_pairs = n_both + these
--   two) and n_pairs_pending.
-- estimators:
--   - consistency_decided: n_consistent_win / n_decided, consistent wins of the pairs with a winner in both orders;
--     Wilson
--   - consistency_all: (n_consistent_win + n_consistent_tie) / n_both, counting ties in: consistent wins and ties of
--     all pairs with a majority in both orders; Wilson
--   - conflict_rate: (n_primacy + n_recency) / n_both, pairs whose winner flips, of the same; Wilson
-- reference: Zheng et al. 2023 (same verdict in both orders), Wang et al. 2023 (conflict rate).
-- nulls: a rate is NULL where its denominator is 0.

CREATE OR REPLACE VIEW metric_consistency AS
WITH counts AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(*) FILTER (WHERE status <> 'pending') AS n_pairs,
    count(*) FILTER (WHERE status IN ('consistent_win', 'consistent_tie', 'primacy', 'recency', 'soft_primacy',
      'soft_recency')) AS n_both,
    count(*) FILTER (WHERE status IN ('consistent_win', 'primacy', 'recency')) AS n_decided,
    count(*) FILTER (WHERE status = 'consistent_win') AS n_consistent_win,
    count(*) FILTER (WHERE status = 'consistent_tie') AS n_consistent_tie,
    count(*) FILTER (WHERE status = 'primacy') AS n_primacy,
    count(*) FILTER (WHERE status = 'recency') AS n_recency,
    count(*) FILTER (WHERE status = 'soft_primacy') AS n_soft_primacy,
    count(*) FILTER (WHERE status = 'soft_recency') AS n_soft_recency,
    count(*) FILTER (WHERE status = 'undecided') AS n_undecided,
    count(*) FILTER (WHERE status = 'missing_reverse') AS n_missing_reverse,
    count(*) FILTER (WHERE status = 'pending') AS n_pairs_pending
  FROM pair_status
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
)
SELECT
  *,
  n_consistent_win / nullif(n_decided, 0) AS consistency_decided,
  wilson_lo(n_consistent_win, n_decided) AS consistency_decided_lo,
  wilson_hi(n_consistent_win, n_decided) AS consistency_decided_hi,
  (n_consistent_win + n_consistent_tie) / nullif(n_both, 0) AS consistency_all,
  wilson_lo(n_consistent_win + n_consistent_tie, n_both) AS consistency_all_lo,
  wilson_hi(n_consistent_win + n_consistent_tie, n_both) AS consistency_all_hi,
  (n_primacy + n_recency) / nullif(n_both, 0) AS conflict_rate,
  wilson_lo(n_primacy + n_recency, n_both) AS conflict_rate_lo,
  wilson_hi(n_primacy + n_recency, n_both) AS conflict_rate_hi
FROM counts;
