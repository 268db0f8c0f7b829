-- grain: study, cell, item
-- question: Which item, or candidate model, is how much stronger, by plain maximum likelihood in SQL alone?
-- source: the votes of pair_status, a tie half a win for each; candidates where every pair of the study names both,
--   items otherwise; each component that comparisons connect on its own.
-- estimators:
--   - win_rate: wins, a tie half a win, of the n_comparisons
--   - theta: the log-strength, 0 the mean of the component, by Newman's iteration on the logarithm, damped by a half,
--     which converges on every graph: t + ln(sum w / (1 + e^(t - u)) / sum l / (1 + e^(u - t))) / 2
--   - is_converged: no theta of the component moves by 1e-10, which is then within 1e-8 of the estimate of `rank --with
--     ml` on well-connected data; FALSE after 500 rounds at the latest
--   - mle_exists: from every item of the component a chain of wins leads to every other
-- reference: Bradley and Terry 1952; Newman 2023 (the iteration).
-- nulls: theta is NULL where mle_exists is FALSE, as no number exists then, and where is_converged is FALSE, as for
--   long chains; is_converged and n_rounds are NULL where mle_exists is FALSE.
-- note: for comparison: `rank` gives intervals, ranks, and finite estimates (Firth) for what is unbeaten or winless.

CREATE OR REPLACE VIEW metric_bradley_terry AS
WITH RECURSIVE
kinds AS (
  SELECT study, count(*) = count(candidate_lo || candidate_hi) AS has_candidates
  FROM pair_status
  GROUP BY study
),
named AS (
  SELECT
    pair_status.study, cell(pair_status) AS cell,
    CASE WHEN has_candidates THEN candidate_lo ELSE item_lo END AS a,
    CASE WHEN has_candidates THEN candidate_hi ELSE item_hi END AS b,
    n_lo_won_lo_first + n_lo_won_hi_first + (n_tied_lo_first + n_tied_hi_first) / 2 AS w,
    n_hi_won_lo_first + n_hi_won_hi_first + (n_tied_lo_first + n_tied_hi_first) / 2 AS l
  FROM pair_status
  JOIN kinds ON kinds.study = pair_status.study
),
sides AS (
  SELECT study, cell, a AS item, b AS other, w, l FROM named
  UNION ALL
  SELECT study, cell, b, a, l, w FROM named
),
counted AS (
  SELECT
    study, cell, item, other,
    CAST(sum(w) AS DOUBLE) AS w, CAST(sum(l) AS DOUBLE) AS l
  FROM sides
  WHERE w + l > 0 AND item <> other
  GROUP BY study, cell, item, other
),
numbered AS MATERIALIZED (
  SELECT
    *,
    dense_rank() OVER (ORDER BY study, cell) AS cell_no,
    dense_rank() OVER (ORDER BY study, cell, item) AS i
  FROM counted
),
named_items AS MATERIALIZED (
  SELECT
    study, cell, item, cell_no, i,
    CAST(sum(w + l) AS BIGINT) AS n_comparisons, sum(w) / sum(w + l) AS win_rate
  FROM numbered
  GROUP BY study, cell, item, cell_no, i
),
edges AS MATERIALIZED (
  SELECT numbered.i, other_side.i AS j, numbered.w, numbered.l
  FROM numbered
  JOIN named_items AS other_side ON other_side.cell_no = numbered.cell_no AND other_side.item = numbered.other
),
-- the lowest number among all whom comparisons connect
reached (i, root) USING KEY (i) AS (
  SELECT i, i AS root FROM named_items
  UNION
  SELECT edges.j AS i, min(reached.root) AS root
  FROM reached
  JOIN edges ON edges.i = reached.i
  JOIN recurring.reached AS known ON known.i = edges.j
  WHERE reached.root < known.root
  GROUP BY edges.j
),
placed AS MATERIALIZED (
  SELECT
    named_items.*, root,
    dense_rank() OVER (PARTITION BY cell_no ORDER BY root) AS component_id,
    count(*) OVER (PARTITION BY root) AS n_items
  FROM named_items
  JOIN reached ON reached.i = named_items.i
),
-- everybody whom the root beats by some chain, and everybody who beats the root
beaten AS (
  SELECT root, root AS i FROM placed WHERE i = root
  UNION
  SELECT beaten.root, edges.j AS i FROM beaten JOIN edges ON edges.i = beaten.i AND edges.w > 0
),
beating AS (
  SELECT root, root AS i FROM placed WHERE i = root
  UNION
  SELECT beating.root, edges.j AS i FROM beating JOIN edges ON edges.i = beating.i AND edges.l > 0
),
whole AS MATERIALIZED (
  SELECT placed.root
  FROM placed
  JOIN (SELECT root, count(*) AS n FROM beaten GROUP BY root) AS down ON down.root = placed.root
  JOIN (SELECT root, count(*) AS n FROM beating GROUP BY root) AS up ON up.root = placed.root
  WHERE placed.i = placed.root AND down.n = n_items AND up.n = n_items
),
rounds AS (
  SELECT 0 AS round_no, root, i, CAST(0 AS DOUBLE) AS t, CAST(1 AS DOUBLE) AS moved
  FROM placed
  WHERE root IN (SELECT root FROM whole)
  UNION ALL
  SELECT
    round_no + 1, root, i,
    next_t - avg(next_t) OVER (PARTITION BY root),
    max(abs(next_t - t)) OVER (PARTITION BY root)
  FROM (
    SELECT
      max(mine.round_no) AS round_no, mine.root, mine.i, max(mine.t) AS t,
      max(mine.t) + 0.5 * (ln(sum(w / (1 + exp(mine.t - theirs.t)))) - ln(sum(l / (1 + exp(theirs.t - mine.t)))))
        AS next_t
    FROM rounds AS mine
    JOIN edges ON edges.i = mine.i
    JOIN rounds AS theirs ON theirs.i = edges.j
    WHERE mine.moved > 1e-10 AND mine.round_no < 500
    GROUP BY mine.root, mine.i
  )
),
ends AS (
  SELECT i, max(round_no) AS round_no, arg_max(t, round_no) AS t, arg_max(moved, round_no) AS moved
  FROM rounds
  GROUP BY i
)
SELECT
  study, cell.*, item,
  component_id,
  n_items,
  n_comparisons,
  win_rate,
  whole.root IS NOT NULL AS mle_exists,
  CASE WHEN whole.root IS NOT NULL THEN ends.moved <= 1e-10 END AS is_converged,
  CASE WHEN ends.moved <= 1e-10 THEN ends.t END AS theta,
  CAST(ends.round_no AS BIGINT) AS n_rounds
FROM placed
LEFT JOIN whole ON whole.root = placed.root
LEFT JOIN ends ON ends.i = placed.i;
