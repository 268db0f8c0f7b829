-- grain: study, rubric_id
-- question: Where do the differences between single verdicts on pairs come from: the items, or who and how was asked?
-- source: the votes of pair_status for models (but of lists whose best alone was asked for, where only pairs with the
--   best are seen), ties at 0 and a win of the lower or higher item at 1/2 and -1/2, a study's
--   judges and templates together. The mean is 0, as which item is the lower says nothing.
-- estimators:
--   - item_variance: the mean product of two votes on a pair by another judge with another template: what all agree on.
--     With one template, or one judge, what differs is the other alone; with one of either, two votes of one cell
--   - judge_variance: of the same judge with another template, less that: what a judge holds of a pair by itself
--   - template_variance: of the same template by another judge, less item_variance
--   - judge_template_variance: what one judge holds with one template, beyond these three
--   - order_variance: half of the mean product of two votes in the same order less that of two in opposite orders; both
--     orders together are free of it
--   - repeat_variance: the mean square of a vote, less the mean product of two in the same order: chance
--   - order_repeat_variance: the last two together, which is all that can be said without repeats
--   - total_variance: the sum of all, negative estimates counting as 0
--   - item_share, judge_share, template_share, judge_template_share, order_share, repeat_share, order_repeat_share: of
--     total_variance
-- reference: symmetric sums (Koch 1967), generalisability theory (Brennan 2001).
-- nulls: what was not varied is NULL: judge_variance with one judge, template_variance with one template, both where
--   each judge had a template of its own (judge_template_variance has them then), order_variance without repeats in both
--   orders, repeat_variance without repeats; all of it without two votes of one cell on a pair.
-- note: products of votes in the same and in opposite orders weigh by half each; without repeats only opposite orders
--   count, and with one order only the same. An item here is a pair: it is not told how much is one of the two.

CREATE OR REPLACE VIEW metric_variance AS
WITH votes AS (
  SELECT
    study, rubric_id, unit_id, item_lo, item_hi, template_id, judge(pair_status) AS judge,
    n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first AS n1,
    n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first AS n2,
    CAST(n_lo_won_lo_first - n_hi_won_lo_first AS DOUBLE) / 2 AS s1,
    CAST(n_lo_won_hi_first - n_hi_won_hi_first AS DOUBLE) / 2 AS s2,
    CAST(n_lo_won_lo_first + n_hi_won_lo_first + n_lo_won_hi_first + n_hi_won_hi_first AS DOUBLE) / 4 AS squares
  FROM pair_status
  WHERE provider <> 'human' AND coalesce(list_kind, '') <> 'best'
),
-- a row's sum times that of its group, added up over rows, is the square of the group's, added up over groups
grouped AS (
  SELECT
    *,
    sum(n1) OVER of_judge - n1 AS n1_judge,
    sum(n2) OVER of_judge - n2 AS n2_judge,
    sum(s1) OVER of_judge - s1 AS s1_judge,
    sum(s2) OVER of_judge - s2 AS s2_judge,
    sum(n1) OVER of_template - n1 AS n1_template,
    sum(n2) OVER of_template - n2 AS n2_template,
    sum(s1) OVER of_template - s1 AS s1_template,
    sum(s2) OVER of_template - s2 AS s2_template,
    sum(n1) OVER of_pair - sum(n1) OVER of_judge - sum(n1) OVER of_template + n1 AS n1_none,
    sum(n2) OVER of_pair - sum(n2) OVER of_judge - sum(n2) OVER of_template + n2 AS n2_none,
    sum(s1) OVER of_pair - sum(s1) OVER of_judge - sum(s1) OVER of_template + s1 AS s1_none,
    sum(s2) OVER of_pair - sum(s2) OVER of_judge - sum(s2) OVER of_template + s2 AS s2_none
  FROM votes
  WINDOW
    of_judge AS (PARTITION BY study, rubric_id, unit_id, item_lo, item_hi, judge),
    of_template AS (PARTITION BY study, rubric_id, unit_id, item_lo, item_hi, template_id),
    of_pair AS (PARTITION BY study, rubric_id, unit_id, item_lo, item_hi)
),
sums AS (
  SELECT
    study, rubric_id,
    CAST(sum(n1 + n2) AS BIGINT) AS n_votes,
    sum(squares) / nullif(sum(n1 + n2), 0) AS vote_square,
    sum(s1 * s1 + s2 * s2 - squares) / nullif(sum(n1 * (n1 - 1) + n2 * (n2 - 1)), 0) AS cell_same,
    sum(s1 * s2) / nullif(sum(n1 * n2), 0) AS cell_opposite,
    sum(s1 * s1_judge + s2 * s2_judge) / nullif(sum(n1 * n1_judge + n2 * n2_judge), 0) AS judge_same,
    sum(s1 * s2_judge + s2 * s1_judge) / nullif(sum(n1 * n2_judge + n2 * n1_judge), 0) AS judge_opposite,
    sum(s1 * s1_template + s2 * s2_template) / nullif(sum(n1 * n1_template + n2 * n2_template), 0) AS template_same,
    sum(s1 * s2_template + s2 * s1_template) / nullif(sum(n1 * n2_template + n2 * n1_template), 0) AS template_opposite,
    sum(s1 * s1_none + s2 * s2_none) / nullif(sum(n1 * n1_none + n2 * n2_none), 0) AS none_same,
    sum(s1 * s2_none + s2 * s1_none) / nullif(sum(n1 * n2_none + n2 * n1_none), 0) AS none_opposite
  FROM grouped
  GROUP BY study, rubric_id
),
products AS (
  SELECT
    *,
    CASE WHEN cell_opposite IS NULL THEN cell_same WHEN cell_same IS NULL THEN cell_opposite
         ELSE (cell_same + cell_opposite) / 2 END AS in_cell,
    CASE WHEN cell_opposite IS NULL THEN judge_same WHEN cell_same IS NULL THEN judge_opposite
         ELSE (judge_same + judge_opposite) / 2 END AS in_judge,
    CASE WHEN cell_opposite IS NULL THEN template_same WHEN cell_same IS NULL THEN template_opposite
         ELSE (template_same + template_opposite) / 2 END AS in_template,
    CASE WHEN cell_opposite IS NULL THEN none_same WHEN cell_same IS NULL THEN none_opposite
         ELSE (none_same + none_opposite) / 2 END AS in_none
  FROM sums
),
varied AS (
  SELECT
    *,
    CASE WHEN in_cell IS NOT NULL THEN coalesce(in_none, in_template, in_judge, in_cell) END AS item_variance,
    CASE WHEN in_none IS NOT NULL AND in_template IS NOT NULL THEN in_judge - in_none
         WHEN in_none IS NULL AND in_judge IS NULL THEN in_cell - in_template END AS judge_variance,
    CASE WHEN in_none IS NOT NULL AND in_judge IS NOT NULL THEN in_template - in_none
         WHEN in_none IS NULL AND in_template IS NULL THEN in_cell - in_judge END AS template_variance,
    (cell_same - cell_opposite) / 2 AS order_variance,
    vote_square - cell_same AS repeat_variance,
    vote_square - in_cell AS order_repeat_variance,
    in_cell - in_none - coalesce(in_judge + in_template - 2 * in_none, 0) AS judge_template_variance
  FROM products
),
-- greatest takes no notice of NULL: a facet that was not varied would count as 0, and so be shown
parts AS (
  SELECT
    *,
    CASE WHEN item_variance IS NOT NULL THEN greatest(0, item_variance) END AS item,
    CASE WHEN judge_variance IS NOT NULL THEN greatest(0, judge_variance) END AS judge,
    CASE WHEN template_variance IS NOT NULL THEN greatest(0, template_variance) END AS template,
    CASE WHEN judge_template_variance IS NOT NULL THEN greatest(0, judge_template_variance) END AS judge_template,
    CASE WHEN order_variance IS NOT NULL THEN greatest(0, order_variance) END AS order_of_two,
    CASE WHEN repeat_variance IS NOT NULL THEN greatest(0, repeat_variance) END AS repeat,
    CASE WHEN order_variance IS NOT NULL THEN greatest(0, order_variance) + greatest(0, repeat_variance)
         WHEN order_repeat_variance IS NOT NULL THEN greatest(0, order_repeat_variance) END AS order_repeat
  FROM varied
),
totals AS (
  SELECT
    *,
    item + coalesce(judge, 0) + coalesce(template, 0) + coalesce(judge_template, 0) + order_repeat AS total_variance
  FROM parts
)
SELECT
  study, rubric_id, n_votes,
  item_variance, judge_variance, template_variance, judge_template_variance, order_variance, repeat_variance,
  order_repeat_variance, total_variance,
  item / nullif(total_variance, 0) AS item_share,
  judge / nullif(total_variance, 0) AS judge_share,
  template / nullif(total_variance, 0) AS template_share,
  judge_template / nullif(total_variance, 0) AS judge_template_share,
  order_of_two / nullif(total_variance, 0) AS order_share,
  repeat / nullif(total_variance, 0) AS repeat_share,
  order_repeat / nullif(total_variance, 0) AS order_repeat_share
FROM totals;
