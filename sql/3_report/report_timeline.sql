-- grain: study, provider, request_model, ended_at
-- question: When did the answers of each model come in?
-- source: batches with answers, by the time they ended at the provider (or were downloaded, where that is not known),
--   in at most 60 equal steps of the study's whole time; n_answers adds up. The first row of a model is the moment when
--   the study's first batch was intended, with no answer yet.
CREATE OR REPLACE VIEW report_timeline AS
WITH done AS (
  SELECT
    study, provider, request_model, n_succeeded,
    epoch(intended_at) AS intended_s,
    epoch(coalesce(ended_at, downloaded_at, verified_at, last_event_at)) AS ended_s
  FROM batches
  WHERE n_succeeded > 0
),
spans AS (
  SELECT study, min(intended_s) AS start_s, greatest((max(ended_s) - min(intended_s)) / 60, 1) AS step_s
  FROM done
  GROUP BY study
),
steps AS (
  SELECT done.study, provider, request_model, start_s + step_s * ceil((ended_s - start_s) / step_s) AS at_s, n_succeeded
  FROM done
  JOIN spans ON spans.study = done.study
  UNION ALL
  SELECT DISTINCT done.study, provider, request_model, start_s AS at_s, 0 AS n_succeeded
  FROM done
  JOIN spans ON spans.study = done.study
),
totals AS (
  SELECT study, provider, request_model, at_s, sum(n_succeeded) AS n
  FROM steps
  GROUP BY study, provider, request_model, at_s
)
SELECT
  study,
  provider,
  request_model,
  to_timestamp(at_s) AS ended_at,
  CAST(sum(n) OVER (PARTITION BY study, provider, request_model ORDER BY at_s) AS BIGINT) AS n_answers
FROM totals;
