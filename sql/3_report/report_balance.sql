-- grain: study
-- question: How evenly do pairs and items stand in the first and the second position, as planned?
-- source: the pairwise rows of the current plan. share_lo_first is 0.5 when order says nothing about identity; the item
--   columns give the least and the most often first-placed item.
CREATE OR REPLACE VIEW report_balance AS
WITH placed AS (
  SELECT study, unit_id, least(item_first, item_second) AS item_lo, greatest(item_first, item_second) AS item_hi,
    item_first, item_second, item_first <= item_second AS is_lo_first, direction
  FROM plan_current
  WHERE task = 'pairwise'
),
orders AS (
  SELECT
    study,
    count(*) AS n_planned,
    count(*) FILTER (WHERE direction = 'forward') AS n_forward,
    count(*) FILTER (WHERE direction = 'reverse') AS n_reverse,
    count(*) FILTER (WHERE is_lo_first) AS n_lo_first
  FROM placed
  GROUP BY study
),
pairs AS (
  SELECT
    study,
    count(*) AS n_pairs,
    count(*) FILTER (WHERE n_lo_first > 0 AND n_lo_first < n_rows) AS n_pairs_both_orders
  FROM (
    SELECT study, unit_id, item_lo, item_hi, count(*) AS n_rows, count(*) FILTER (WHERE is_lo_first) AS n_lo_first
    FROM placed
    GROUP BY study, unit_id, item_lo, item_hi
  ) AS per_pair
  GROUP BY study
),
per_study AS (
  SELECT
    study,
    count(*) AS n_items,
    min(n_first * 1.0 / n_rows) AS item_share_first_min,
    max(n_first * 1.0 / n_rows) AS item_share_first_max
  FROM (
    SELECT study, item, sum(is_first) AS n_first, count(*) AS n_rows
    FROM (
      SELECT study, item_first AS item, 1 AS is_first FROM placed
      UNION ALL
      SELECT study, item_second AS item, 0 AS is_first FROM placed
    ) AS shown
    GROUP BY study, item
  ) AS per_item
  GROUP BY study
)
SELECT
  orders.study,
  per_study.n_items,
  pairs.n_pairs,
  pairs.n_pairs_both_orders,
  orders.n_planned,
  orders.n_forward,
  orders.n_reverse,
  orders.n_lo_first,
  orders.n_lo_first * 1.0 / orders.n_planned AS share_lo_first,
  per_study.item_share_first_min,
  per_study.item_share_first_max
FROM orders
JOIN pairs ON pairs.study = orders.study
JOIN per_study ON per_study.study = orders.study;
