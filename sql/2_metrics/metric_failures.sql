-- grain: study, template_id, judge
-- question: How many calls of a template to a model failed, and how many answers could not be used?
-- source: calls of all tasks, over all rubrics. metric_outcomes has each outcome by itself. Each of the n_fields fields of
--   one answer is counted, and all of them together are one observation for the intervals: they fail together.
-- estimators:
--   - error_rate: n_error / n_answered, what never came back (error, expired, cancelled, missing) of all answered
--     requests; Wilson
--   - unparsed_rate: n_unparsed / n_returned (unparsed, ambiguous, truncated, empty); Wilson
--   - refused_rate: n_refused / n_returned (refused, blocked); Wilson
--   - unusable_rate: all three, of all answered; Wilson
-- reference: own definitions; wilson.
-- nulls: a rate is NULL where its denominator is 0.
-- note: intervals take calls for draws: of the very items that were asked, for some are harder to answer about than others.
--   metric_failures_paired speaks of items in general. Unparsed and refused are shares of the returned answers only, so that a provider's bad day does not look like a
--   change in the judge.

CREATE OR REPLACE VIEW metric_failures AS
WITH counts AS (
  SELECT
    study, template_id, judge(calls) AS judge,
    count(*) AS n_planned,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_returned,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_error,
    count(*) FILTER (WHERE outcome IN ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unparsed,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refused,
    count(DISTINCT CASE WHEN is_field THEN rubric_id END) AS n_fields,
    count(CASE WHEN is_field THEN outcome END) AS n_of_fields
  FROM calls
  GROUP BY study, template_id, judge
),
-- how much of what was counted is an observation of its own
counted AS (
  SELECT *, 1 - coalesce(n_of_fields / nullif(n_answered, 0) * (1 - 1 / nullif(n_fields, 0)), 0) AS part
  FROM counts
)
SELECT
  study, template_id, judge.*,
  n_planned, n_answered, n_returned, n_error, n_unparsed, n_refused, n_fields,
  n_error / nullif(n_answered, 0) AS error_rate,
  wilson_lo(part * n_error, part * n_answered) AS error_rate_lo,
  wilson_hi(part * n_error, part * n_answered) AS error_rate_hi,
  n_unparsed / nullif(n_returned, 0) AS unparsed_rate,
  wilson_lo(part * n_unparsed, part * n_returned) AS unparsed_rate_lo,
  wilson_hi(part * n_unparsed, part * n_returned) AS unparsed_rate_hi,
  n_refused / nullif(n_returned, 0) AS refused_rate,
  wilson_lo(part * n_refused, part * n_returned) AS refused_rate_lo,
  wilson_hi(part * n_refused, part * n_returned) AS refused_rate_hi,
  (n_error + n_unparsed + n_refused) / nullif(n_answered, 0) AS unusable_rate,
  wilson_lo(part * (n_error + n_unparsed + n_refused), part * n_answered) AS unusable_rate_lo,
  wilson_hi(part * (n_error + n_unparsed + n_refused), part * n_answered) AS unusable_rate_hi
FROM counted;
