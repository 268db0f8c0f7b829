-- grain: study, template_id, provider, request_model, thinking, candidate_a, candidate_b
-- question: How often do people prefer one candidate model to another, by a judge's verdicts corrected by their labels?
-- source: candidate_pairs over all statements, with what `truths` says of the same two outputs. A win is 1, a tie and a
--   pair whose orders disagree 1/2, as in win_rate_half of metric_win_matrix.
-- estimators:
--   - win_rate_half: the judge's own, over the n_both pairs
--   - people_win_rate: the mean of the labels alone, with sd / sqrt(n) as its error
--   - ppi_win_rate: PPI++ (prediction_powered) with a normal 95 % interval cut off at 0 and 1
--   - ppi_weight: how far the judge is believed
-- reference: PPI++ as in prediction_powered. Rogan-Gladen is for yes and no only, and left out.
-- nulls: no interval where fewer than 5 pairs are labelled or the labels show no spread; people_win_rate and all of
--   PPI++ are NULL without labels.
-- note: pairs are taken for independent.

CREATE OR REPLACE VIEW metric_win_matrix_corrected AS
WITH judged AS (
  SELECT
    pairs.study, pairs.template_id, pairs.provider, pairs.request_model, pairs.thinking,
    pairs.candidate_a, pairs.candidate_b,
    CASE pairs.winner WHEN 'a' THEN 1.0::DOUBLE WHEN 'b' THEN 0.0::DOUBLE ELSE 0.5::DOUBLE END AS f,
    CASE WHEN truths.truth = 'tie' THEN 0.5::DOUBLE
         WHEN (truths.truth = 'lo') = (pairs.item_a < pairs.item_b) THEN 1.0::DOUBLE
         WHEN truths.truth IS NOT NULL THEN 0.0::DOUBLE END AS y
  FROM candidate_pairs AS pairs
  LEFT JOIN truths
    ON truths.study = pairs.study
    AND truths.task = 'pair'
    AND truths.rubric_id = pairs.rubric_id
    AND truths.unit_id = pairs.unit_id
    AND truths.item_lo = least(pairs.item_a, pairs.item_b)
    AND truths.item_hi = greatest(pairs.item_a, pairs.item_b)
  WHERE pairs.winner IN ('a', 'b', 'tie', 'inconsistent')
    AND pairs.provider <> 'human'
),
sums AS (
  SELECT
    study, template_id, provider, request_model, thinking, candidate_a, candidate_b,
    count(*) AS n_both,
    count(y) AS n_labelled,
    coalesce(sum(y), 0) AS y,
    coalesce(sum(y * y), 0) AS yy,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f END), 0) AS f,
    coalesce(sum(CASE WHEN y IS NOT NULL THEN f * f END), 0) AS ff,
    coalesce(sum(y * f), 0) AS yf,
    sum(f) AS fm,
    sum(f * f) AS ffm
  FROM judged
  GROUP BY study, template_id, provider, request_model, thinking, candidate_a, candidate_b
),
weighed AS (
  SELECT *, ppi_weight(n_labelled, n_both, y, f, yf, fm, ffm) AS ppi_weight
  FROM sums
),
measured AS (
  SELECT
    *,
    ppi_mean(n_labelled, n_both, y, f, fm, ppi_weight) AS ppi,
    ppi_mean_se(n_labelled, n_both, y, yy, f, ff, yf, fm, ffm, ppi_weight) AS ppi_se
  FROM weighed
)
SELECT
  study, template_id, provider, request_model, thinking, candidate_a, candidate_b,
  n_both,
  n_labelled,
  fm / n_both AS win_rate_half,
  y / nullif(n_labelled, 0) AS people_win_rate,
  CASE WHEN n_labelled > 1
       THEN sqrt(greatest(0.0, yy - y * y / n_labelled) / (n_labelled - 1) / n_labelled) END AS people_win_rate_se,
  ppi_weight,
  CASE WHEN ppi IS NOT NULL THEN greatest(0.0, least(1.0, ppi)) END AS ppi_win_rate,
  ppi_se AS ppi_win_rate_se,
  CASE WHEN n_labelled >= 5 AND ppi_se > 0 THEN greatest(0.0, ppi - 1.959963984540054 * ppi_se) END AS ppi_win_rate_lo,
  CASE WHEN n_labelled >= 5 AND ppi_se > 0 THEN least(1.0, ppi + 1.959963984540054 * ppi_se) END AS ppi_win_rate_hi
FROM measured;
