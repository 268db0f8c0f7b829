-- grain: study, cell
-- question: What would the R package pairwiseLLM 1.3.0 report for this cell?
-- source: pair_judgments, with main = direction forward and rev = direction reverse (where an imported judgment has
--   none: the lower item id shown first, and second): per pair and direction the majority of the named winners (a
--   drawn majority drops the pair), shown order = the more frequent one, pairs with a majority in both compared.
--   Ties cannot be said there and are left out; a verdict that names neither position counts as a vote for neither, as
--   there.
-- estimators:
--   - prop_consistent: n_consistent / n_pairs
--   - p_sample1_main, p_sample1_rev: exact binomial tests at 1/2 of the wins of position 1, per direction
--   - p_sample1_overall: the same test of total_pos1_wins of total_comparisons
-- reference: compute_reverse_consistency and check_positional_bias of pairwiseLLM 1.3.0. Bootstrap columns depend on
--   R's random numbers and are not reproduced.
-- nulls: a rate, and a p, is NULL where there is nothing to count.
-- note: these differ from metric_consistency and metric_position_bias, which are the ones to use: pairwiseLLM tests 2
--   n_pairs verdicts as if they were independent, although every consistent pair adds one win for each position by
--   construction, so p_sample1_overall overlooks real bias, and p_sample1_main and _rev call a consistent judge biased
--   when better items tend to stand first; `direction` also says which run a verdict came from, not which item was
--   shown first.

CREATE OR REPLACE VIEW metric_pairwisellm AS
WITH named AS (
  SELECT
    study, cell(pair_judgments) AS cell, unit_id, item_lo, item_hi, is_lo_first,
    coalesce(direction, CASE WHEN is_lo_first THEN 'forward' ELSE 'reverse' END) AS direction,
    CASE WHEN verdict = 'tie' OR verdict IS NULL THEN NULL
         WHEN verdict = 'first' AND is_lo_first THEN 'lo' WHEN verdict = 'second' AND NOT is_lo_first THEN 'lo'
         WHEN verdict IN ('first', 'second') THEN 'hi'
         ELSE 'neither' END AS winner
  FROM pair_judgments
),
votes AS (
  SELECT
    study, cell, unit_id, item_lo, item_hi,
    count(*) FILTER (WHERE winner = 'lo' AND direction = 'forward') AS n_lo_main,
    count(*) FILTER (WHERE winner = 'hi' AND direction = 'forward') AS n_hi_main,
    count(*) FILTER (WHERE winner = 'neither' AND direction = 'forward') AS n_neither_main,
    count(*) FILTER (WHERE winner IS NOT NULL AND is_lo_first AND direction = 'forward') AS n_lo_first_main,
    count(*) FILTER (WHERE winner = 'lo' AND direction = 'reverse') AS n_lo_rev,
    count(*) FILTER (WHERE winner = 'hi' AND direction = 'reverse') AS n_hi_rev,
    count(*) FILTER (WHERE winner = 'neither' AND direction = 'reverse') AS n_neither_rev,
    count(*) FILTER (WHERE winner IS NOT NULL AND is_lo_first AND direction = 'reverse') AS n_lo_first_rev
  FROM named
  GROUP BY study, cell, unit_id, item_lo, item_hi
),
majorities AS (
  SELECT
    study, cell,
    CASE WHEN n_lo_main > n_hi_main AND n_lo_main > n_neither_main THEN 'lo'
         WHEN n_hi_main > n_lo_main AND n_hi_main > n_neither_main THEN 'hi'
         WHEN n_neither_main > n_lo_main AND n_neither_main > n_hi_main THEN 'neither' END AS winner_main,
    2 * n_lo_first_main >= n_lo_main + n_hi_main + n_neither_main AS is_lo_shown_first_main,
    CASE WHEN n_lo_rev > n_hi_rev AND n_lo_rev > n_neither_rev THEN 'lo'
         WHEN n_hi_rev > n_lo_rev AND n_hi_rev > n_neither_rev THEN 'hi'
         WHEN n_neither_rev > n_lo_rev AND n_neither_rev > n_hi_rev THEN 'neither' END AS winner_rev,
    2 * n_lo_first_rev >= n_lo_rev + n_hi_rev + n_neither_rev AS is_lo_shown_first_rev
  FROM votes
),
pairs AS (
  SELECT
    *,
    CASE WHEN winner_main = 'lo' AND is_lo_shown_first_main THEN 1
         WHEN winner_main = 'hi' AND NOT is_lo_shown_first_main THEN 1
         WHEN winner_main IN ('lo', 'hi') THEN 2 END AS position_main,
    CASE WHEN winner_rev = 'lo' AND is_lo_shown_first_rev THEN 1
         WHEN winner_rev = 'hi' AND NOT is_lo_shown_first_rev THEN 1
         WHEN winner_rev IN ('lo', 'hi') THEN 2 END AS position_rev
  FROM majorities
),
counts AS (
  SELECT
    study, cell,
    count(*) FILTER (WHERE winner_main IS NOT NULL AND winner_rev IS NOT NULL) AS n_pairs,
    count(*) FILTER (WHERE winner_main = winner_rev) AS n_consistent,
    count(*) FILTER (WHERE winner_rev IS NOT NULL AND position_main = 1) AS n_pos1_main,
    count(position_main) FILTER (WHERE winner_rev IS NOT NULL) AS n_main,
    count(*) FILTER (WHERE winner_main IS NOT NULL AND position_rev = 1) AS n_pos1_rev,
    count(position_rev) FILTER (WHERE winner_main IS NOT NULL) AS n_rev,
    count(*) FILTER (WHERE winner_main <> winner_rev AND position_main = 1 AND position_rev = 1)
      AS n_inconsistent_pos1_bias,
    count(*) FILTER (WHERE winner_main <> winner_rev AND position_main = 2 AND position_rev = 2)
      AS n_inconsistent_pos2_bias
  FROM pairs
  GROUP BY study, cell
)
SELECT
  study, cell.*,
  n_pairs,
  n_consistent,
  n_consistent / nullif(n_pairs, 0) AS prop_consistent,
  binom_test_half(n_pos1_main, n_main) AS p_sample1_main,
  binom_test_half(n_pos1_rev, n_rev) AS p_sample1_rev,
  binom_test_half(n_pos1_main + n_pos1_rev, n_main + n_rev) AS p_sample1_overall,
  n_pos1_main + n_pos1_rev AS total_pos1_wins,
  n_main + n_rev AS total_comparisons,
  n_pairs - n_consistent AS n_inconsistent,
  n_inconsistent_pos1_bias,
  n_inconsistent_pos2_bias
FROM counts;
