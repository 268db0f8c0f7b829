-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: How much of a judge's inconsistency is noise that repeating shows, and how much is the order?
-- source: the votes of pair_status, valid ones only; n_orders (with two votes or more) and n_cross_order_pairs (a vote
--   in both orders) are the denominators. Pairs with the same six vote counts are weighed together: there are few such
--   patterns, however many pairs there are.
-- estimators:
--   - repeat_agreement: the mean over orders asked at least twice of the share of agreeing vote pairs, sum k(k-1) /
--     (m(m-1)); error sd / sqrt(n), the interval wilson_mean
--   - repeat_unanimity: n_unanimous / n_orders, orders with all votes equal; Wilson
--   - cross_order_agreement: the mean over pairs of the share of agreeing vote pairs between the two orders; error sd /
--     sqrt(n), the interval wilson_mean
--   - position_excess_conflict: repeat_agreement - cross_order_agreement, with a standard error clustered by pair (CR1)
--     and a t interval over the n_clusters pairs
-- reference: Shi et al. 2024 (repeat stability).
-- nulls: all repeat columns are NULL without repeats; the interval of position_excess_conflict is NULL where all pairs
--   are alike: no spread to see.

CREATE OR REPLACE VIEW metric_repeat AS
WITH patterns AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    n_lo_won_lo_first AS a_lo, n_hi_won_lo_first AS a_hi, n_tied_lo_first AS a_tie,
    n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first AS a,
    n_lo_won_hi_first AS b_lo, n_hi_won_hi_first AS b_hi, n_tied_hi_first AS b_tie,
    n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first AS b,
    count(*) AS n
  FROM pair_status
  GROUP BY
    study, template_id, rubric_id, provider, request_model, thinking,
    n_lo_won_lo_first, n_hi_won_lo_first, n_tied_lo_first, n_lo_won_hi_first, n_hi_won_hi_first, n_tied_hi_first
),
agreements AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, n,
    CASE WHEN a > 1 THEN (a_lo * (a_lo - 1) + a_hi * (a_hi - 1) + a_tie * (a_tie - 1)) / (a * (a - 1)) END AS within_a,
    CASE WHEN b > 1 THEN (b_lo * (b_lo - 1) + b_hi * (b_hi - 1) + b_tie * (b_tie - 1)) / (b * (b - 1)) END AS within_b,
    CASE WHEN a > 0 AND b > 0 THEN (a_lo * b_lo + a_hi * b_hi + a_tie * b_tie) / (a * b) END AS across
  FROM patterns
),
counted AS (
  SELECT
    *,
    n * (CASE WHEN within_a IS NULL THEN 0 ELSE 1 END + CASE WHEN within_b IS NULL THEN 0 ELSE 1 END) AS n_within,
    CASE WHEN across IS NULL THEN 0 ELSE n END AS n_across,
    CASE WHEN within_a IS NULL AND within_b IS NULL AND across IS NULL THEN 0 ELSE n END AS n_any,
    n * (CASE WHEN within_a = 1 THEN 1 ELSE 0 END + CASE WHEN within_b = 1 THEN 1 ELSE 0 END) AS n_equal
  FROM agreements
),
centred AS (
  SELECT
    *,
    sum(n_within) OVER cell AS n_orders,
    sum(n_across) OVER cell AS n_pairs,
    sum(n * (coalesce(within_a, 0) + coalesce(within_b, 0))) OVER cell / nullif(sum(n_within) OVER cell, 0) AS repeated,
    sum(n * across) OVER cell / nullif(sum(n_across) OVER cell, 0) AS crossed
  FROM counted
  WINDOW cell AS (PARTITION BY study, template_id, rubric_id, provider, request_model, thinking)
),
sums AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    CAST(sum(n_within) AS BIGINT) AS n_orders,
    CAST(sum(n_equal) AS BIGINT) AS n_unanimous,
    CAST(sum(n_across) AS BIGINT) AS n_cross_order_pairs,
    CAST(sum(n_any) AS BIGINT) AS n_clusters,
    max(repeated) AS repeat_agreement,
    max(crossed) AS cross_order_agreement,
    sum(n * (coalesce(power(within_a - repeated, 2), 0) + coalesce(power(within_b - repeated, 2), 0)))
      AS within_squares,
    sum(n * power(across - crossed, 2)) AS across_squares,
    sum(n * power(
      (coalesce(within_a - repeated, 0) + coalesce(within_b - repeated, 0)) / nullif(n_orders, 0)
      - coalesce(across - crossed, 0) / nullif(n_pairs, 0), 2)) AS excess_squares
  FROM centred
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
measured AS (
  SELECT
    *,
    CASE WHEN n_orders > 1 THEN sqrt(within_squares / (n_orders - 1) / n_orders) END AS repeat_agreement_se,
    CASE WHEN n_cross_order_pairs > 1
         THEN sqrt(across_squares / (n_cross_order_pairs - 1) / n_cross_order_pairs) END AS cross_order_agreement_se,
    repeat_agreement - cross_order_agreement AS position_excess_conflict,
    CASE WHEN n_clusters > 1 AND repeat_agreement IS NOT NULL AND cross_order_agreement IS NOT NULL
         THEN sqrt(excess_squares * n_clusters / (n_clusters - 1)) END AS position_excess_conflict_se
  FROM sums
),
bounded AS (
  SELECT
    *,
    wilson_mean(repeat_agreement, n_orders, repeat_agreement_se) AS repeat_ends,
    wilson_mean(cross_order_agreement, n_cross_order_pairs, cross_order_agreement_se) AS cross_ends,
    CASE WHEN position_excess_conflict_se > 0 THEN t_quantile(0.975, n_clusters - 1) * position_excess_conflict_se END
      AS half_width
  FROM measured
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking,
  n_orders,
  repeat_agreement,
  repeat_agreement_se,
  repeat_ends.lo AS repeat_agreement_lo,
  repeat_ends.hi AS repeat_agreement_hi,
  n_unanimous,
  n_unanimous / nullif(n_orders, 0) AS repeat_unanimity,
  wilson_lo(n_unanimous, n_orders) AS repeat_unanimity_lo,
  wilson_hi(n_unanimous, n_orders) AS repeat_unanimity_hi,
  n_cross_order_pairs,
  cross_order_agreement,
  cross_order_agreement_se,
  cross_ends.lo AS cross_order_agreement_lo,
  cross_ends.hi AS cross_order_agreement_hi,
  n_clusters,
  position_excess_conflict,
  position_excess_conflict_se,
  position_excess_conflict - half_width AS position_excess_conflict_lo,
  position_excess_conflict + half_width AS position_excess_conflict_hi
FROM bounded;
