-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: How much of a judge's inconsistency is noise that repeating shows, and how much is the order?
-- source: Shi et al. 2024 (repeat stability). repeat_agreement = the mean over orders asked at least twice of the
--   share of agreeing vote pairs, sum k(k-1) / (m(m-1)); unanimity = orders with all votes equal;
--   cross_order_agreement = the mean over pairs of the share of agreeing vote pairs between the two orders; standard
--   errors = sd / sqrt(n). position_excess_conflict = repeat_agreement - cross_order_agreement, with a standard error
--   clustered by pair (CR1).
-- Valid votes only; n_orders (with two votes or more) and n_cross_order_pairs (a vote in both orders) are the
-- denominators. All repeat columns are NULL without repeats.

CREATE OR REPLACE VIEW metric_repeat_agreement AS
WITH votes AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    n_lo_won_lo_first AS a_lo, n_hi_won_lo_first AS a_hi, n_tied_lo_first AS a_tie,
    n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first AS a,
    n_lo_won_hi_first AS b_lo, n_hi_won_hi_first AS b_hi, n_tied_hi_first AS b_tie,
    n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first AS b
  FROM pair_status
),
agreements AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    CASE WHEN a > 1 THEN (a_lo * (a_lo - 1) + a_hi * (a_hi - 1) + a_tie * (a_tie - 1)) / (a * (a - 1)) END AS within_a,
    CASE WHEN b > 1 THEN (b_lo * (b_lo - 1) + b_hi * (b_hi - 1) + b_tie * (b_tie - 1)) / (b * (b - 1)) END AS within_b,
    CASE WHEN a > 0 AND b > 0 THEN (a_lo * b_lo + a_hi * b_hi + a_tie * b_tie) / (a * b) END AS across
  FROM votes
),
sums AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(within_a) + count(within_b) AS n_orders,
    count(*) FILTER (WHERE within_a = 1) + count(*) FILTER (WHERE within_b = 1) AS n_unanimous,
    count(across) AS n_cross_order_pairs,
    count(*) FILTER (WHERE within_a IS NOT NULL OR within_b IS NOT NULL OR across IS NOT NULL) AS n_clusters,
    avg(across) AS cross_order_agreement,
    stddev_samp(across) AS cross_order_sd,
    (coalesce(sum(within_a), 0) + coalesce(sum(within_b), 0))
      / nullif(count(within_a) + count(within_b), 0) AS repeat_agreement
  FROM agreements
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
spread AS (
  SELECT
    sums.*,
    sum(coalesce((within_a - repeat_agreement) * (within_a - repeat_agreement), 0)
        + coalesce((within_b - repeat_agreement) * (within_b - repeat_agreement), 0)) AS within_squares,
    sum(power(
      coalesce(within_a - repeat_agreement, 0) / nullif(n_orders, 0)
      + coalesce(within_b - repeat_agreement, 0) / nullif(n_orders, 0)
      - coalesce(across - cross_order_agreement, 0) / nullif(n_cross_order_pairs, 0), 2)) AS excess_squares
  FROM agreements
  JOIN sums
    ON agreements.study IS NOT DISTINCT FROM sums.study
    AND agreements.template_id IS NOT DISTINCT FROM sums.template_id
    AND agreements.rubric_id IS NOT DISTINCT FROM sums.rubric_id
    AND agreements.provider IS NOT DISTINCT FROM sums.provider
    AND agreements.request_model IS NOT DISTINCT FROM sums.request_model
    AND agreements.thinking IS NOT DISTINCT FROM sums.thinking
  GROUP BY ALL
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking,
  n_orders,
  repeat_agreement,
  CASE WHEN n_orders > 1 THEN sqrt(within_squares / (n_orders - 1) / n_orders) END AS repeat_agreement_se,
  n_unanimous,
  n_unanimous / nullif(n_orders, 0) AS repeat_unanimity,
  wilson_lo(n_unanimous, n_orders) AS repeat_unanimity_lo,
  wilson_hi(n_unanimous, n_orders) AS repeat_unanimity_hi,
  n_cross_order_pairs,
  cross_order_agreement,
  CASE WHEN n_cross_order_pairs > 1 THEN cross_order_sd / sqrt(n_cross_order_pairs) END AS cross_order_agreement_se,
  repeat_agreement - cross_order_agreement AS position_excess_conflict,
  CASE WHEN n_clusters > 1 AND repeat_agreement IS NOT NULL AND cross_order_agreement IS NOT NULL
       THEN sqrt(excess_squares * n_clusters / (n_clusters - 1)) END AS position_excess_conflict_se
FROM spread;
