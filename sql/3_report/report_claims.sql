-- grain: study
-- question: What was a study to show, when was that written down, and how much could its plan find?
-- source: the table [claims] of the current version's study file, as `plan` keeps it. claimed_at is when a version with
--   exactly these claims was first planned, first_sent_at when the first request of any version was sent;
--   is_claimed_first: that was later, or is still to come. n_claims counts the different claims that the study had in
--   its versions, n_sent_before what was sent before these stood (requests of batches and live calls).
--   claims_sha256 is the digest of their text, to be cited. n_pairs is the smallest number of pairs that a cell asks in
--   both orders.
-- estimators:
--   - position_mde: where the first claim is the position: the smallest share of one position that the exact test of
--     n_pairs pairs finds at 5 % with power 0.8, if every one of them flips with its order; of fewer flips only a
--     larger one
--   - is_effect_in_reach: whether that is no further from 1/2 than the effect that was called worth finding
-- reference: sign_test_mde.
-- nulls: a study without claims has no row. first_sent_at while nothing was sent; position_mde where too few pairs are
--   asked in both orders, or the first claim is another one: what that could have found is in metric_power.
CREATE OR REPLACE VIEW report_claims AS
WITH versions AS (
  SELECT DISTINCT study, study_version, CAST(json_extract(config, '$.claims') AS VARCHAR) AS claims
  FROM studies
  WHERE json_type(config, '$.claims') = 'OBJECT'
),
planned AS (
  SELECT
    versions.study,
    versions.claims,
    min(events.occurred_at) AS claimed_at
  FROM versions
  JOIN events
    ON events.study = versions.study
    AND events.study_version = versions.study_version
    AND events.kind = 'planned'
  GROUP BY versions.study, versions.claims
),
counted AS (
  SELECT study, count(DISTINCT claims) AS n_claims
  FROM versions
  GROUP BY study
),
current_claims AS (
  SELECT
    versions.study,
    versions.claims,
    CAST(json_extract(versions.claims, '$.secondary') AS VARCHAR) AS secondary,
    planned.claimed_at,
    counted.n_claims
  FROM studies_current
  JOIN versions
    ON versions.study = studies_current.study
    AND versions.study_version = studies_current.study_version
  JOIN planned
    ON planned.study = versions.study
    AND planned.claims = versions.claims
  JOIN counted ON counted.study = versions.study
),
sent AS (
  SELECT
    current_claims.study,
    min(attempts.sent_at) AS first_sent_at,
    sum(attempts.n_requests) FILTER (WHERE attempts.sent_at < current_claims.claimed_at) AS n_sent_before
  FROM current_claims
  JOIN attempts ON attempts.study = current_claims.study
  WHERE attempts.sent_at IS NOT NULL
  GROUP BY current_claims.study
),
pairs AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, pair_id,
    count(DISTINCT is_lo_first) = 2 AS is_both
  FROM plan_current
  WHERE pair_id IS NOT NULL
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, unit_id, pair_id
),
cells AS (
  SELECT study, count(*) FILTER (WHERE is_both) AS n_pairs
  FROM pairs
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
sizes AS (
  SELECT study, min(n_pairs) AS n_pairs
  FROM cells
  GROUP BY study
),
told AS (
  SELECT
    current_claims.study,
    json_extract_string(claims, '$.primary') AS primary_claim,
    CASE WHEN length(secondary) > 2 THEN translate(substr(secondary, 2, length(secondary) - 2), '"', '') END
      AS secondary_claims,
    json_extract_string(claims, '$.hypothesis') AS hypothesis,
    CAST(json_extract(claims, '$.effect') AS DOUBLE) AS effect,
    json_extract_string(claims, '$.stop') AS stop_rule,
    sha256(claims) AS claims_sha256,
    n_claims,
    claimed_at,
    first_sent_at,
    first_sent_at IS NULL OR claimed_at <= first_sent_at AS is_claimed_first,
    CAST(coalesce(n_sent_before, 0) AS BIGINT) AS n_sent_before,
    n_pairs
  FROM current_claims
  LEFT JOIN sent ON sent.study = current_claims.study
  LEFT JOIN sizes ON sizes.study = current_claims.study
)
SELECT
  *,
  position_mde - 0.5 <= effect AS is_effect_in_reach
FROM (
  SELECT *, CASE WHEN primary_claim = 'position' THEN sign_test_mde(n_pairs) END AS position_mde
  FROM told
) AS sized;
