-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: How often does the first position win, in the shares and rates that people quote?
-- source: the statuses and votes of pair_status, but of pairs that lists imply, which are no draws.
-- estimators:
--   - primacy_share: n_primacy / n_discordant, of the pairs whose majority flips, with Clopper-Pearson
--   - primacy_share_min, primacy_share_max, preference_fairness_min, preference_fairness_max: what the n_left_out pairs
--     leave open: all of them flip to the one position, or all to the other; a majority of repeats that stands is
--     taken as it is
--   - first_rate_balanced: 0.5 + (primacy-recency)/(2 n_decided), each order weighing the same; the interval
--     matched_difference: 1/2 is outside exactly where primacy_share's leaves it out
--   - first_rate_balanced_min, first_rate_balanced_max: what the n_left_out pairs leave open: the second won both
--     orders of all of them, or the first did
--   - preference_fairness: (all recency - all primacy)/n_both, soft conflicts included, above 0 when the second is
--     favoured
--   - p_preference_fairness: the sign test of preference_fairness
--   - first_rate_raw: the share of first among all single verdicts first or second, with Clopper-Pearson
--   - first_rate_raw_min, first_rate_raw_max: what the n_unread answers without a verdict leave open: none of them said
--     first, or all did
--   - p_first_rate_raw: exact binomial test of first_rate_raw at 1/2, which Clopper-Pearson inverts; both take all
--     verdicts for independent, those on one pair too
--   - is_first_rate_raw_confounded: n_pairs_unbalanced pairs were not decided equally often in both orders
-- reference: Shi et al. 2024 (preference fairness); clopper_pearson, matched_difference.
-- nulls: a share is NULL where its denominator is 0, a p without a pair that says anything.
-- note: all intervals and p values are for these items, and of majorities where orders were asked repeatedly; what holds
--   for items in general, of all votes, is metric_position_bias. first_rate_raw mixes bias with which item was shown
--   first.

CREATE OR REPLACE VIEW metric_position_rates AS
WITH counts AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(*) FILTER (WHERE status <> 'pending') AS n_pairs,
    count(*) FILTER (WHERE status IN ('consistent_win', 'consistent_tie', 'primacy', 'recency', 'soft_primacy',
      'soft_recency')) AS n_both,
    count(*) FILTER (WHERE status IN ('consistent_win', 'primacy', 'recency')) AS n_decided,
    count(*) FILTER (WHERE status = 'primacy') AS n_primacy,
    count(*) FILTER (WHERE status = 'recency') AS n_recency,
    count(*) FILTER (WHERE status = 'soft_primacy') AS n_soft_primacy,
    count(*) FILTER (WHERE status = 'soft_recency') AS n_soft_recency,
    count(*) FILTER (WHERE status IN ('primacy', 'recency')) AS n_discordant,
    count(*) FILTER (WHERE status IN ('undecided', 'missing_reverse')) AS n_left_out,
    count(*) FILTER (WHERE status = 'pending') AS n_pairs_pending,
    CAST(sum(n_lo_won_lo_first + n_hi_won_hi_first) AS BIGINT) AS n_verdicts_first,
    CAST(sum(n_hi_won_lo_first + n_lo_won_hi_first) AS BIGINT) AS n_verdicts_second,
    CAST(sum(n_answered_lo_first + n_answered_hi_first - n_tied_lo_first - n_tied_hi_first) AS BIGINT) AS n_untied,
    count(*) FILTER (WHERE n_lo_won_lo_first + n_hi_won_lo_first <> n_lo_won_hi_first + n_hi_won_hi_first)
      AS n_pairs_unbalanced
  FROM pair_status
  WHERE list_kind IS NULL
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
bounded AS (
  SELECT
    *,
    n_verdicts_first + n_verdicts_second AS n_verdicts,
    n_untied - n_verdicts_first - n_verdicts_second AS n_unread,
    matched_difference(n_primacy, n_recency, n_decided) AS ends
  FROM counts
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking,
  n_pairs, n_both, n_decided, n_discordant, n_primacy, n_recency, n_soft_primacy, n_soft_recency,
  n_left_out, n_pairs_pending,
  n_primacy / nullif(n_discordant, 0) AS primacy_share,
  clopper_pearson_lo(n_primacy, n_discordant) AS primacy_share_lo,
  clopper_pearson_hi(n_primacy, n_discordant) AS primacy_share_hi,
  n_primacy / nullif(n_discordant + n_left_out, 0) AS primacy_share_min,
  (n_primacy + n_left_out) / nullif(n_discordant + n_left_out, 0) AS primacy_share_max,
  0.5 + (n_primacy - n_recency) / nullif(2 * n_decided, 0) AS first_rate_balanced,
  0.5 + ends.lo / 2 AS first_rate_balanced_lo,
  0.5 + ends.hi / 2 AS first_rate_balanced_hi,
  0.5 + (n_primacy - n_recency - n_left_out) / nullif(2 * (n_decided + n_left_out), 0) AS first_rate_balanced_min,
  0.5 + (n_primacy - n_recency + n_left_out) / nullif(2 * (n_decided + n_left_out), 0) AS first_rate_balanced_max,
  (n_recency + n_soft_recency - n_primacy - n_soft_primacy) / nullif(n_both, 0) AS preference_fairness,
  (n_recency + n_soft_recency - n_primacy - n_soft_primacy - n_left_out) / nullif(n_both + n_left_out, 0)
    AS preference_fairness_min,
  (n_recency + n_soft_recency - n_primacy - n_soft_primacy + n_left_out) / nullif(n_both + n_left_out, 0)
    AS preference_fairness_max,
  mcnemar_exact(n_primacy + n_soft_primacy, n_recency + n_soft_recency) AS p_preference_fairness,
  n_verdicts_first,
  n_verdicts_second,
  n_verdicts_first / nullif(n_verdicts, 0) AS first_rate_raw,
  clopper_pearson_lo(n_verdicts_first, n_verdicts) AS first_rate_raw_lo,
  clopper_pearson_hi(n_verdicts_first, n_verdicts) AS first_rate_raw_hi,
  n_unread,
  n_verdicts_first / nullif(n_untied, 0) AS first_rate_raw_min,
  (n_verdicts_first + n_unread) / nullif(n_untied, 0) AS first_rate_raw_max,
  binom_test_half(n_verdicts_first, n_verdicts) AS p_first_rate_raw,
  n_pairs_unbalanced,
  CASE WHEN n_verdicts > 0 THEN n_pairs_unbalanced > 0 END AS is_first_rate_raw_confounded
FROM bounded;
