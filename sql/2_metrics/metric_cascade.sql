-- grain: study, task, rubric_id
-- question: How far does a cascade get by its first judges alone, are they right to be believed, and what does it save?
-- source: cascade_verdicts and judge_costs. n_units were asked of all n_first_judges; on n_agreed of them these agree, on
--   n_differed they do not (or one is silent), on n_pending that is still open. Of the n_differed, n_asked were asked of a
--   further judge (n_further_judges in all; 0 where all judges were asked about all, of which the row says how often they
--   agree), and n_undecided have no verdict yet, or none at all. n_audited are agreed
--   ones that a further judge was asked about all the same and spoke on; n_confirmed of them it says the same of.
--   n_stand_in units, agreed by now or not, were asked of a further judge because an answer of a first one was lacking
--   (is_stand_in): they are no audits, as nobody drew them, and no differences, and are in none of n_asked, n_audited
--   and n_confirmed. Where the first judges answered nothing at all before a further one was asked, all units are that.
-- estimators:
--   - agreed_share: n_agreed / (n_agreed + n_differed)
--   - agreed_share_min, agreed_share_max: what the n_pending leave open: the first judges differ on all, or agree
--   - decided_share: the share of the same units that have a verdict, so that all of them count and not the easy ones
--     alone
--   - confirmed_share: n_confirmed / n_audited, what the first judges' agreement is worth, if the audits are drawn at random
--     among agreed units; without audits nothing is known of it
--   - agreed_share_se, decided_share_se, confirmed_share_se: for items in general (clustered_variance, each item or
--     prompt left out in turn), and the ends _lo and _hi with them, as wilson_clustered
--   - cost_usd: of all calls for these units, a lower bound where n_cost_unknown > 0
--   - cost_everyone_usd: what all judges on all units would cost: each one's mean over the units that it was asked about,
--     times n_units; a further judge's units are those on which others differ, and may be longer or shorter than all
--   - saved_share: 1 - cost_usd / cost_everyone_usd
-- reference: own definitions; clustered, wilson_clustered.
-- nulls: ends are NULL below 5 items or prompts, what rests on audits without any; cost_everyone_usd where a cost is
--   unknown or a judge has none yet.

CREATE OR REPLACE VIEW metric_cascade AS
WITH cascade AS MATERIALIZED (
  SELECT * FROM cascade_verdicts
),
asked AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, is_of_unit,
    unnest([
      {'rate': 'agreed_share', 'is_hit': is_agreed},
      {'rate': 'decided_share', 'is_hit': CASE WHEN is_agreed IS NOT NULL THEN verdict IS NOT NULL END},
      {'rate': 'confirmed_share', 'is_hit': CASE WHEN is_agreed AND NOT is_stand_in THEN further_word = first_word END}
    ]) AS asked
  FROM cascade
),
-- a pair of texts is a part of two items
clusters AS (
  SELECT
    study, task, rubric_id, asked.rate AS rate, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END AS item,
    count(*) AS n_here,
    count(*) FILTER (WHERE asked.is_hit) AS hits_here,
    count(*) FILTER (WHERE side = 1) AS n_once,
    count(*) FILTER (WHERE side = 1 AND asked.is_hit) AS hits_once
  FROM asked
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE asked.is_hit IS NOT NULL AND (side = 1 OR (task = 'pair' AND NOT is_of_unit))
  GROUP BY
    study, task, rubric_id, asked.rate, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END
),
moved AS (
  SELECT
    *,
    sum(n_once) OVER whole AS n,
    sum(hits_once) OVER whole AS hits,
    (sum(hits_once) OVER whole - hits_here) / nullif(sum(n_once) OVER whole - n_here, 0)
      - sum(hits_once) OVER whole / sum(n_once) OVER whole AS moved
  FROM clusters
  WINDOW whole AS (PARTITION BY study, task, rubric_id, rate)
),
summed AS (
  SELECT
    study, task, rubric_id, rate,
    CAST(max(n) AS BIGINT) AS n,
    max(hits) / max(n) AS p,
    count(*) AS g,
    sum(n_here) / max(n) AS n_sides,
    (count(*) - 1) / count(*) * sum(moved * moved) AS jack
  FROM moved
  GROUP BY study, task, rubric_id, rate
),
erring AS (
  SELECT *, sqrt(clustered_variance(jack, p * (1 - p) / n, n_sides)) AS se
  FROM summed
),
bounded AS (
  SELECT *, wilson_clustered(p, n, se, g) AS ends
  FROM erring
),
rates AS (
  SELECT
    study, task, rubric_id,
    max(p) FILTER (WHERE rate = 'agreed_share') AS agreed_p,
    max(se) FILTER (WHERE rate = 'agreed_share') AS agreed_se,
    max(ends.lo) FILTER (WHERE rate = 'agreed_share') AS agreed_lo,
    max(ends.hi) FILTER (WHERE rate = 'agreed_share') AS agreed_hi,
    max(p) FILTER (WHERE rate = 'decided_share') AS decided_p,
    max(se) FILTER (WHERE rate = 'decided_share') AS decided_se,
    max(ends.lo) FILTER (WHERE rate = 'decided_share') AS decided_lo,
    max(ends.hi) FILTER (WHERE rate = 'decided_share') AS decided_hi,
    max(p) FILTER (WHERE rate = 'confirmed_share') AS confirmed_p,
    max(se) FILTER (WHERE rate = 'confirmed_share') AS confirmed_se,
    max(ends.lo) FILTER (WHERE rate = 'confirmed_share') AS confirmed_lo,
    max(ends.hi) FILTER (WHERE rate = 'confirmed_share') AS confirmed_hi
  FROM bounded
  GROUP BY study, task, rubric_id
),
counts AS (
  SELECT
    study, task, rubric_id,
    max(n_first) AS n_first_judges,
    max(n_further) AS n_further_judges,
    count(*) AS n_units,
    count(*) FILTER (WHERE is_agreed) AS n_agreed,
    count(*) FILTER (WHERE NOT is_agreed) AS n_differed,
    count(*) FILTER (WHERE is_agreed IS NULL) AS n_pending,
    count(*) FILTER (WHERE NOT is_agreed AND n_further_asked > 0 AND NOT is_stand_in) AS n_asked,
    count(*) FILTER (WHERE is_stand_in) AS n_stand_in,
    count(*) FILTER (WHERE NOT is_agreed AND verdict IS NULL) AS n_undecided,
    count(*) FILTER (WHERE is_agreed AND further_word IS NOT NULL AND NOT is_stand_in) AS n_audited,
    count(*) FILTER (WHERE is_agreed AND further_word = first_word AND NOT is_stand_in) AS n_confirmed
  FROM cascade
  GROUP BY study, task, rubric_id
),
priced AS (
  SELECT
    cascade.study, cascade.task, cascade.rubric_id, costs.template_id, judge(costs) AS judge,
    sum(costs.cost_usd) AS cost_usd,
    avg(costs.cost_usd) AS cost_each_usd,
    sum(costs.n_cost_unknown) AS n_cost_unknown
  FROM cascade
  JOIN judge_costs AS costs
    ON costs.study = cascade.study
    AND costs.task = cascade.task
    AND costs.rubric_id = cascade.rubric_id
    AND costs.unit_id = cascade.unit_id
    AND costs.item_lo = cascade.item_lo
    AND coalesce(costs.item_hi, '') = coalesce(cascade.item_hi, '')
    AND coalesce(costs.turn_no, -1) = coalesce(cascade.turn_no, -1)
  GROUP BY cascade.study, cascade.task, cascade.rubric_id, costs.template_id, judge(costs)
),
spent AS (
  SELECT
    study, task, rubric_id,
    sum(cost_usd) AS cost_usd,
    CAST(sum(n_cost_unknown) AS BIGINT) AS n_cost_unknown,
    sum(cost_each_usd) AS cost_each_usd,
    count(*) - count(cost_each_usd) AS n_without_price
  FROM priced
  GROUP BY study, task, rubric_id
),
told AS (
  SELECT
    counts.*,
    rates.agreed_p, rates.agreed_se, rates.agreed_lo, rates.agreed_hi,
    rates.decided_p, rates.decided_se, rates.decided_lo, rates.decided_hi,
    rates.confirmed_p, rates.confirmed_se, rates.confirmed_lo, rates.confirmed_hi,
    spent.cost_usd,
    coalesce(spent.n_cost_unknown, 0) AS n_cost_unknown,
    CASE WHEN spent.n_cost_unknown = 0 AND spent.n_without_price = 0 THEN spent.cost_each_usd * counts.n_units END
      AS cost_everyone_usd
  FROM counts
  LEFT JOIN rates
    ON rates.study = counts.study
    AND rates.task = counts.task
    AND rates.rubric_id = counts.rubric_id
  LEFT JOIN spent
    ON spent.study = counts.study
    AND spent.task = counts.task
    AND spent.rubric_id = counts.rubric_id
)
SELECT
  study, task, rubric_id,
  n_first_judges, n_further_judges, n_units, n_agreed, n_differed, n_pending, n_asked, n_stand_in, n_undecided,
  n_audited, n_confirmed,
  agreed_p AS agreed_share,
  n_agreed / n_units AS agreed_share_min,
  (n_agreed + n_pending) / n_units AS agreed_share_max,
  agreed_se AS agreed_share_se,
  agreed_lo AS agreed_share_lo,
  agreed_hi AS agreed_share_hi,
  decided_p AS decided_share,
  decided_se AS decided_share_se,
  decided_lo AS decided_share_lo,
  decided_hi AS decided_share_hi,
  confirmed_p AS confirmed_share,
  confirmed_se AS confirmed_share_se,
  confirmed_lo AS confirmed_share_lo,
  confirmed_hi AS confirmed_share_hi,
  cost_usd,
  n_cost_unknown,
  cost_everyone_usd,
  1 - cost_usd / nullif(cost_everyone_usd, 0) AS saved_share
FROM told;
