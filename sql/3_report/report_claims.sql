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
--   - effect_mde, effect_mde_max: the smallest effect of the first claim, as a difference of shares, that its exact test
--     for these items finds at 5 % with power 0.8 in n_compared pairs, or inputs: at best, and at worst. At best every
--     pair flips (position) or is decided (length); or all that tell two templates, judges or candidates apart do so in
--     one way (mcnemar_mde_least), of a win matrix by half, as a win is one of its rate and none its 1/2. At worst every
--     one of them tells the two apart. For items in general an effect must be larger
--   - mde_lacks: why there is none: templates, judges or candidates, of which fewer than two are planned; or pairs, or
--     inputs, of which fewer than six are
--   - is_effect_in_reach: whether effect_mde is no larger than the effect that was called worth finding
-- reference: sign_test_mde, mcnemar_mde.
-- nulls: a study without claims has no row. first_sent_at while nothing was sent; position_mde where too few pairs are
--   asked in both orders, or the first claim is another one. effect_mde_max of position and length, as the fewer pairs
--   flip, or are decided, the larger an effect must be. What was found, with what it could have found, is in metric_power.
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
    count(DISTINCT is_lo_first) = 2 AS is_both,
    min(CASE WHEN candidate_first < candidate_second THEN candidate_first ELSE candidate_second END) AS candidate_a,
    max(CASE WHEN candidate_first < candidate_second THEN candidate_second ELSE candidate_first END) AS candidate_b
  FROM plan_current
  WHERE pair_id IS NOT NULL
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking, unit_id, pair_id
),
cells AS (
  SELECT study, template_id, provider, request_model, thinking, count(*) FILTER (WHERE is_both) AS n_pairs
  FROM pairs
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
sizes AS (
  SELECT
    study,
    min(n_pairs) AS n_pairs,
    count(DISTINCT template_id) AS n_templates,
    count(DISTINCT provider || chr(31) || request_model || chr(31) || coalesce(thinking, '')) AS n_judges
  FROM cells
  GROUP BY study
),
matches AS (
  SELECT study, count(*) FILTER (WHERE is_both) AS n_matches
  FROM pairs
  WHERE candidate_a <> candidate_b
  GROUP BY study, template_id, provider, request_model, thinking, candidate_a, candidate_b
),
outputs AS (
  SELECT study, candidate_first AS candidate, count(DISTINCT coalesce(rubric_id, '') || chr(31) || unit_id) AS n_inputs
  FROM plan_current
  WHERE task = 'compliance' AND candidate_first IS NOT NULL
  GROUP BY study, template_id, provider, request_model, thinking, candidate_first
),
compared AS (
  SELECT
    study,
    CAST(max(n_matches) AS BIGINT) AS n_matches,
    CAST(max(n_inputs) AS BIGINT) AS n_inputs
  FROM (
    SELECT study, min(n_matches) AS n_matches, NULL AS n_inputs FROM matches GROUP BY study
    UNION ALL
    SELECT study, NULL, CASE WHEN count(DISTINCT candidate) > 1 THEN min(n_inputs) END FROM outputs GROUP BY study
  ) AS of_candidates
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
    n_pairs,
    n_templates, n_judges,
    CASE json_extract_string(claims, '$.primary')
      WHEN 'position' THEN n_pairs
      WHEN 'length' THEN n_pairs
      WHEN 'consistency by template' THEN CASE WHEN n_templates > 1 THEN n_pairs END
      WHEN 'consistency by judge' THEN CASE WHEN n_judges > 1 THEN n_pairs END
      WHEN 'win matrix' THEN n_matches
      WHEN 'compliance' THEN n_inputs END AS n_compared
  FROM current_claims
  LEFT JOIN sent ON sent.study = current_claims.study
  LEFT JOIN sizes ON sizes.study = current_claims.study
  LEFT JOIN compared ON compared.study = current_claims.study
),
sized AS (
  SELECT
    *,
    sign_test_mde(n_compared) AS share_mde,
    mcnemar_mde_least(n_compared) AS least_mde
  FROM told
),
found AS (
  SELECT
    *,
    CASE WHEN primary_claim = 'position' THEN share_mde END AS position_mde,
    CASE WHEN primary_claim IN ('position', 'length') THEN share_mde - 0.5
         WHEN primary_claim = 'win matrix' THEN least_mde / 2 ELSE least_mde END AS effect_mde,
    CASE WHEN primary_claim = 'win matrix' THEN share_mde - 0.5
         WHEN primary_claim NOT IN ('position', 'length') THEN 2 * share_mde - 1 END AS effect_mde_max
  FROM sized
)
SELECT
  study, primary_claim, secondary_claims, hypothesis, effect, stop_rule, claims_sha256, n_claims, claimed_at,
  first_sent_at, is_claimed_first, n_sent_before, n_pairs, position_mde,
  effect_mde <= effect AS is_effect_in_reach,
  n_compared, effect_mde, effect_mde_max,
  CASE WHEN effect_mde IS NOT NULL THEN NULL
       WHEN primary_claim = 'consistency by template' AND n_templates < 2 THEN 'templates'
       WHEN primary_claim = 'consistency by judge' AND n_judges < 2 THEN 'judges'
       WHEN primary_claim IN ('win matrix', 'compliance') AND n_compared IS NULL THEN 'candidates'
       WHEN primary_claim = 'compliance' THEN 'inputs'
       ELSE 'pairs' END AS mde_lacks
FROM found;
