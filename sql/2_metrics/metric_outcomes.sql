-- grain: study, cell, outcome
-- question: How often does each outcome, each kind of failure included, occur in a cell?
-- source: the calls of all tasks.
-- estimators:
--   - rate: n / n_base, Wilson; what never came back (error, expired, cancelled, missing) is a share of all answered
--     requests (base = answered), what came back a share of the returned ones only (base = returned)
-- reference: own definitions; wilson.
-- nulls: none; an outcome that does not occur has no row.
-- note: the two bases are apart so that a provider's bad day does not look like a change in the judge. n_base is the
--   denominator.

CREATE OR REPLACE VIEW metric_outcomes AS
WITH by_outcome AS (
  SELECT
    study, cell(calls) AS cell, outcome,
    CASE WHEN outcome IN ('error', 'expired', 'cancelled', 'missing') THEN 'answered' ELSE 'returned' END AS base,
    count(*) AS n
  FROM calls
  WHERE outcome IS NOT NULL
  GROUP BY study, cell, outcome
),
based AS (
  SELECT
    *,
    CAST(CASE WHEN base = 'answered' THEN sum(n) OVER cell
              ELSE sum(CASE WHEN base = 'returned' THEN n END) OVER cell END AS BIGINT) AS n_base
  FROM by_outcome
  WINDOW cell AS (PARTITION BY study, cell)
)
SELECT
  study, cell.*, outcome, n, base, n_base,
  n / n_base AS rate,
  wilson_lo(n, n_base) AS rate_lo,
  wilson_hi(n, n_base) AS rate_hi
FROM based;
