-- grain: study, cell
-- question: How consistent is each judge when the items are swapped, and which position does it favour?
-- source: metric_consistency and metric_position_bias, one line per cell: the share of decided pairs with the same winner
--   in both orders; the p of the position test and q over the study's cells; the position log-odds (above 0: the first
--   is favoured); all for items in general, NULL below 5 of them; and the cell's origin, so that a simulated judge never
--   looks real (mixed: of several origins).
CREATE OR REPLACE VIEW report_consistency AS
WITH origins AS (
  SELECT
    study, cell(pair_judgments) AS origin_cell,
    CASE WHEN min(origin) = max(origin) THEN min(origin) WHEN min(origin) IS NOT NULL THEN 'mixed' END AS origin
  FROM pair_judgments
  GROUP BY study, origin_cell
),
consistency AS (
  SELECT *, cell(metric_consistency) AS cell FROM metric_consistency
)
SELECT
  consistency.study,
  cell.*,
  consistency.n_pairs,
  consistency.n_decided,
  consistency.consistency_decided,
  consistency.consistency_decided_lo,
  consistency.consistency_decided_hi,
  bias.n_primacy,
  bias.n_recency,
  bias.p_position,
  bias.q_bh,
  bias.position_logodds,
  bias.position_logodds_lo,
  bias.position_logodds_hi,
  origins.origin
FROM consistency
JOIN metric_position_bias AS bias
  ON bias.study = consistency.study
  AND cell(bias) = cell
LEFT JOIN origins
  ON origins.study = consistency.study
  AND origin_cell = cell;
