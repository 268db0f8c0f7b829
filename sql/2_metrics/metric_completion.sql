-- grain: study, cell
-- question: How much of each cell is judged, and what became of every request?
-- source: counts over the calls of all tasks. origin is `mixed` where answers come from several.
-- estimators:
--   - is_judgment: false for cells whose answers are themselves what is judged (generation, conversation, inputs)
--   - n_planned: n_answered + n_pending
--   - n_answered: the sum of the fourteen outcome counts
--   - completion_rate: n_answered / n_planned
--   - valid_rate: (n_decided + n_tie) / n_answered, with a Wilson interval
-- reference: own definitions; wilson.
-- nulls: valid_rate is NULL where nothing is answered, origin where no call has one.
-- note: only n_decided and n_tie enter the other metrics' rates. A request that ended in an error or expired counts as
--   answered, without a verdict; asked again with success, only the success counts.

CREATE OR REPLACE VIEW metric_completion AS
WITH counts AS (
  SELECT
    study, cell(calls) AS cell,
    CASE WHEN min(origin) = max(origin) THEN min(origin) WHEN count(origin) > 0 THEN 'mixed' END AS origin,
    max(CASE WHEN task IN ('generation', 'conversation', 'inputs') THEN 0 ELSE 1 END) = 1 AS is_judgment,
    count(*) AS n_planned,
    count(outcome) AS n_answered,
    count(*) - count(outcome) AS n_pending,
    count(*) FILTER (WHERE outcome IN ('decided', 'tie')) AS n_valid,
    count(*) FILTER (WHERE outcome = 'decided') AS n_decided,
    count(*) FILTER (WHERE outcome = 'tie') AS n_tie,
    count(*) FILTER (WHERE outcome = 'not_applicable') AS n_not_applicable,
    count(*) FILTER (WHERE outcome = 'unsure') AS n_unsure,
    count(*) FILTER (WHERE outcome = 'ambiguous') AS n_ambiguous,
    count(*) FILTER (WHERE outcome = 'unparsed') AS n_unparsed,
    count(*) FILTER (WHERE outcome = 'truncated') AS n_truncated,
    count(*) FILTER (WHERE outcome = 'empty') AS n_empty,
    count(*) FILTER (WHERE outcome = 'refused') AS n_refused,
    count(*) FILTER (WHERE outcome = 'blocked') AS n_blocked,
    count(*) FILTER (WHERE outcome = 'error') AS n_error,
    count(*) FILTER (WHERE outcome = 'expired') AS n_expired,
    count(*) FILTER (WHERE outcome = 'cancelled') AS n_cancelled,
    count(*) FILTER (WHERE outcome = 'missing') AS n_missing
  FROM calls
  GROUP BY study, cell
)
SELECT
  study, cell.*,
  origin, is_judgment, n_planned, n_answered, n_pending, n_valid, n_decided, n_tie, n_not_applicable, n_unsure,
  n_ambiguous, n_unparsed, n_truncated, n_empty, n_refused, n_blocked, n_error, n_expired, n_cancelled, n_missing,
  n_answered / n_planned AS completion_rate,
  n_valid / nullif(n_answered, 0) AS valid_rate,
  wilson_lo(n_valid, n_answered) AS valid_rate_lo,
  wilson_hi(n_valid, n_answered) AS valid_rate_hi
FROM counts;
