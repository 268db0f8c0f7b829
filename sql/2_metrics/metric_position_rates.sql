-- grain: study, cell
-- question: How often does the first position win, in the shares and rates that people quote?
-- source: the votes of pair_status, but of pairs that lists imply, which are no draws: each vote of one order with each
--   of the other, so that a pair on which repeats split counts in part (primacy_part, recency_part) and asking more often
--   moves no rate. n_both pairs have votes in both orders, n_decided a winner in both, n_discordant a vote for the same
--   place in both; n_left_out have no vote in an order. n_primacy, n_recency, n_soft_primacy and n_soft_recency are
--   statuses, of majorities.
-- estimators:
--   - primacy_share: the parts of primacy of all discordant ones, with Clopper-Pearson; n_primacy / n_discordant with one
--     vote per order
--   - primacy_share_min, primacy_share_max, first_rate_balanced_min, first_rate_balanced_max, preference_fairness_min,
--     preference_fairness_max: what the n_left_out pairs leave open: all of them flip to the one position, or all to the
--     other; votes that stand are taken as they are
--   - first_rate_balanced: 0.5 + half of primacy less recency, of what has a winner in both orders, each order weighing
--     the same; the interval matched_difference: 1/2 is outside exactly where primacy_share's leaves it out
--   - preference_fairness: (all recency - all primacy)/n_both, soft conflicts included, above 0 when the second is
--     favoured
--   - p_preference_fairness: the sign test of preference_fairness
--   - first_rate_raw: the share of first among all single verdicts first or second, with Clopper-Pearson
--   - first_rate_raw_min, first_rate_raw_max: what the n_unread answers without a verdict leave open: none of them said
--     first, or all did
--   - p_first_rate_raw: exact binomial test of first_rate_raw at 1/2, which Clopper-Pearson inverts; both take the
--     verdicts of the two orders for independent
--   - is_first_rate_raw_confounded: n_pairs_unbalanced pairs were not decided equally often in both orders
--   Where repeats split, and for first_rate_raw where one order was asked more than once, a pair is the draw: the tests
--   are sign-flip tests of the pairs (sign_flip_z), of at least 6 pairs that lean, and the intervals their inversion
--   (sign_flip_ratio, of primacy_share sign_flip_lo and sign_flip_hi).
-- reference: Shi et al. 2024 (preference fairness); clopper_pearson, matched_difference, clustered.
-- nulls: a share is NULL where its denominator is 0, a p without a pair that says anything; where repeats split, ends and
--   p below 6 pairs that lean, and ends that no pair speaks against.
-- note: all intervals and p values are for these items; what holds for items in general is metric_position_bias.
--   first_rate_raw mixes bias with which item was shown first.

CREATE OR REPLACE VIEW metric_position_rates AS
WITH pairs AS (
  SELECT
    *,
    cell(pair_status) AS cell,
    primacy_part - recency_part AS lean,
    lo_part + hi_part + primacy_part + recency_part AS decided,
    CAST(n_lo_won_lo_first + n_hi_won_hi_first AS DOUBLE) AS n_first,
    CAST(n_hi_won_lo_first + n_lo_won_hi_first AS DOUBLE) AS n_second,
    (n_lo_won_lo_first * n_tied_hi_first + n_tied_lo_first * n_hi_won_hi_first
      - n_hi_won_lo_first * n_tied_hi_first - n_tied_lo_first * n_lo_won_hi_first)
      / nullif((n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first)
        * (n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first), 0) AS soft_lean
  FROM pair_status
  WHERE list_kind IS NULL
),
counts AS (
  SELECT
    study, cell,
    count(*) FILTER (WHERE status <> 'pending') AS n_pairs,
    count(lean) AS n_both,
    count(*) FILTER (WHERE decided > 0) AS n_decided,
    count(*) FILTER (WHERE status = 'primacy') AS n_primacy,
    count(*) FILTER (WHERE status = 'recency') AS n_recency,
    count(*) FILTER (WHERE status = 'soft_primacy') AS n_soft_primacy,
    count(*) FILTER (WHERE status = 'soft_recency') AS n_soft_recency,
    count(*) FILTER (WHERE primacy_part + recency_part > 0) AS n_discordant,
    count(*) FILTER (WHERE status <> 'pending' AND lean IS NULL) AS n_left_out,
    count(*) FILTER (WHERE status = 'pending') AS n_pairs_pending,
    coalesce(round(sum(primacy_part), 12), 0) AS r,
    coalesce(round(sum(recency_part), 12), 0) AS s,
    sum(primacy_part * primacy_part) AS rr,
    sum(recency_part * recency_part) AS ss,
    sum(primacy_part * recency_part) AS rs,
    coalesce(round(sum(decided), 12), 0) AS decided,
    sum(lean * decided) AS lean_decided,
    sum(decided * decided) AS decided_decided,
    coalesce(round(sum(lean + soft_lean), 12), 0) AS fairness,
    round(sum(power(lean + soft_lean, 2)), 12) AS fairness_squares,
    count(*) FILTER (WHERE lean + soft_lean <> 0) AS n_fairness,
    CAST(sum(n_first) AS BIGINT) AS n_verdicts_first,
    CAST(sum(n_second) AS BIGINT) AS n_verdicts_second,
    sum(power(n_first - n_second, 2)) AS raw_squares,
    sum((n_first - n_second) * (n_first + n_second)) AS raw_votes,
    sum(power(n_first + n_second, 2)) AS votes_votes,
    count(*) FILTER (WHERE n_first <> n_second) AS n_raw,
    max(n_lo_won_lo_first + n_hi_won_lo_first) < 2 AND max(n_lo_won_hi_first + n_hi_won_hi_first) < 2 AS is_asked_once,
    CAST(sum(n_answered_lo_first + n_answered_hi_first - n_tied_lo_first - n_tied_hi_first) AS BIGINT) AS n_untied,
    count(*) FILTER (WHERE n_lo_won_lo_first + n_hi_won_lo_first <> n_lo_won_hi_first + n_hi_won_hi_first)
      AS n_pairs_unbalanced
  FROM pairs
  GROUP BY study, cell
),
whole AS (
  SELECT
    *,
    n_verdicts_first + n_verdicts_second AS n_verdicts,
    n_untied - n_verdicts_first - n_verdicts_second AS n_unread,
    -- each pair is of one status alone, as with one vote per order
    coalesce(rr + ss = r + s AND rr + ss = n_discordant AND decided_decided = n_decided, TRUE) AS is_whole,
    CASE WHEN n_discordant >= 6 THEN sign_flip_z(r, s, rr, ss, rs) END AS flip_z,
    CASE WHEN n_fairness >= 6 THEN sign_flip_z(fairness, 0, fairness_squares, 0, 0) END AS fairness_z,
    CASE WHEN n_raw >= 6 THEN sign_flip_z(n_verdicts_first, n_verdicts_second, raw_squares, 0, 0) END AS raw_z
  FROM counts
),
bounded AS (
  SELECT
    *,
    CASE WHEN is_whole THEN matched_difference(CAST(r AS BIGINT), CAST(s AS BIGINT), n_decided)
         WHEN n_discordant >= 6 THEN sign_flip_ratio(r - s, decided, rr - 2 * rs + ss, lean_decided, decided_decided) END
      AS ends,
    CASE WHEN n_raw >= 6 THEN sign_flip_ratio(n_verdicts_first - n_verdicts_second, n_verdicts, raw_squares, raw_votes, votes_votes)
      END AS raw_ends
  FROM whole
)
SELECT
  study, cell.*,
  n_pairs, n_both, n_decided, n_discordant, n_primacy, n_recency, n_soft_primacy, n_soft_recency,
  n_left_out, n_pairs_pending,
  r / nullif(r + s, 0) AS primacy_share,
  CASE WHEN is_whole THEN clopper_pearson_lo(CAST(r AS BIGINT), n_discordant)
       WHEN s = 0 AND flip_z > 1.959963984540054 THEN clopper_pearson_lo(n_discordant, n_discordant)
       WHEN n_discordant >= 6 THEN 1 / (1 + exp(-2 * sign_flip_lo(r, s, rr, ss, rs))) END AS primacy_share_lo,
  CASE WHEN is_whole THEN clopper_pearson_hi(CAST(r AS BIGINT), n_discordant)
       WHEN r = 0 AND flip_z < -1.959963984540054 THEN clopper_pearson_hi(0, n_discordant)
       WHEN n_discordant >= 6 THEN 1 / (1 + exp(-2 * sign_flip_hi(r, s, rr, ss, rs))) END AS primacy_share_hi,
  r / nullif(r + s + n_left_out, 0) AS primacy_share_min,
  (r + n_left_out) / nullif(r + s + n_left_out, 0) AS primacy_share_max,
  0.5 + (r - s) / nullif(2 * decided, 0) AS first_rate_balanced,
  0.5 + share_difference(ends.lo) / 2 AS first_rate_balanced_lo,
  0.5 + share_difference(ends.hi) / 2 AS first_rate_balanced_hi,
  0.5 + (r - s - n_left_out) / nullif(2 * (decided + n_left_out), 0) AS first_rate_balanced_min,
  0.5 + (r - s + n_left_out) / nullif(2 * (decided + n_left_out), 0) AS first_rate_balanced_max,
  (0 - fairness) / nullif(n_both, 0) AS preference_fairness,
  (0 - fairness - n_left_out) / nullif(n_both + n_left_out, 0) AS preference_fairness_min,
  (n_left_out - fairness) / nullif(n_both + n_left_out, 0) AS preference_fairness_max,
  CASE WHEN fairness_squares = n_fairness
       THEN mcnemar_exact(CAST((n_fairness + fairness) / 2 AS BIGINT), CAST((n_fairness - fairness) / 2 AS BIGINT))
       ELSE normal_two_sided(fairness_z) END AS p_preference_fairness,
  n_verdicts_first,
  n_verdicts_second,
  n_verdicts_first / nullif(n_verdicts, 0) AS first_rate_raw,
  CASE WHEN is_asked_once THEN clopper_pearson_lo(n_verdicts_first, n_verdicts)
       ELSE 0.5 + share_difference(raw_ends.lo) / 2 END AS first_rate_raw_lo,
  CASE WHEN is_asked_once THEN clopper_pearson_hi(n_verdicts_first, n_verdicts)
       ELSE 0.5 + share_difference(raw_ends.hi) / 2 END AS first_rate_raw_hi,
  n_unread,
  n_verdicts_first / nullif(n_untied, 0) AS first_rate_raw_min,
  (n_verdicts_first + n_unread) / nullif(n_untied, 0) AS first_rate_raw_max,
  CASE WHEN is_asked_once THEN binom_test_half(n_verdicts_first, n_verdicts) ELSE normal_two_sided(raw_z) END
    AS p_first_rate_raw,
  n_pairs_unbalanced,
  CASE WHEN n_verdicts > 0 THEN n_pairs_unbalanced > 0 END AS is_first_rate_raw_confounded
FROM bounded;
