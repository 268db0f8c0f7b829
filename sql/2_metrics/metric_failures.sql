-- grain: study, template_id, provider, request_model, thinking
-- question: How many calls of a template to a model failed, and how many answers could not be used?
-- source: calls of all tasks, over all rubrics. error_rate = what never came back (error, expired, cancelled, missing)
--   of all answered requests; unparsed_rate (unparsed, ambiguous, truncated, empty) and refused_rate (refused, blocked)
--   of the returned ones only, so that a provider's bad day does not look like a change in the judge; unusable_rate =
--   all three, of all answered. Wilson intervals. metric_outcomes has each outcome by itself.

CREATE OR REPLACE VIEW metric_failures AS
WITH counts AS (
  SELECT
    study, template_id, provider, request_model, thinking,
    count(*) AS n_planned,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_returned,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_error,
    count(*) FILTER (WHERE outcome IN ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unparsed,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refused
  FROM calls
  GROUP BY study, template_id, provider, request_model, thinking
)
SELECT
  *,
  n_error / nullif(n_answered, 0) AS error_rate,
  wilson_lo(n_error, n_answered) AS error_rate_lo,
  wilson_hi(n_error, n_answered) AS error_rate_hi,
  n_unparsed / nullif(n_returned, 0) AS unparsed_rate,
  wilson_lo(n_unparsed, n_returned) AS unparsed_rate_lo,
  wilson_hi(n_unparsed, n_returned) AS unparsed_rate_hi,
  n_refused / nullif(n_returned, 0) AS refused_rate,
  wilson_lo(n_refused, n_returned) AS refused_rate_lo,
  wilson_hi(n_refused, n_returned) AS refused_rate_hi,
  (n_error + n_unparsed + n_refused) / nullif(n_answered, 0) AS unusable_rate,
  wilson_lo(n_error + n_unparsed + n_refused, n_answered) AS unusable_rate_lo,
  wilson_hi(n_error + n_unparsed + n_refused, n_answered) AS unusable_rate_hi
FROM counts;
