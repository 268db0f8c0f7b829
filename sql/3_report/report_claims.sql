-- grain: study
-- question: What was a study to show, when was that written down, and how much could its plan find?
-- source: the table [claims] of the current version's study file, as `plan` keeps it. claimed_at is when a version with
--   exactly these claims was first planned, planned_at when the current version was. first_sent_at is when the first
--   request was sent: by any version of this study, or by another study, of the requests that this plan, or the first
--   with these claims, has too; of a batch that was adopted, when its provider made it. n_undated counts answers that
--   the lake has no time of: judgments that were imported into the study, people's labels aside, and requests of
--   adopted batches without a time. is_claimed_first: claimed_at is before first_sent_at, or nothing was sent. n_claims
--   counts the different claims that the study had in its versions, n_sent_before what was sent before these stood
--   (requests of batches and live calls; of other studies those that are shared). is_plan_changed: the current plan has
--   other requests than the first with these claims; n_sent_before_plan is what was sent before planned_at.
--   claims_sha256 is the digest of their text, to be cited. n_pairs is the smallest number of pairs that a cell asks in
--   both orders.
-- estimators:
--   - position_mde: where the first claim is the position: the smallest share of one position that the exact test of
--     n_pairs pairs finds at 5 % with power 0.8, if every one of them flips with its order; of fewer flips only a
--     larger one
--   - effect_mde, effect_mde_max: the smallest effect of the first claim, as a difference of shares, that its exact
--     test for these items finds at 5 % with power 0.8 in n_compared pairs, or inputs: at best, and at worst. At best
--     every pair flips (position) or is decided (length); or all that tell two templates, judges or candidates apart do
--     so in one way (mcnemar_mde_least), of a win matrix by half, as a win is one of its rate and none its 1/2. At
--     worst every one of them tells the two apart. For items in general an effect must be larger
--   - n_compared_first, effect_mde_first, effect_mde_max_first: the same of the first plan with these claims
--   - mde_lacks: why there is none: templates, judges or candidates, of which fewer than two are planned; or pairs, or
--     inputs, of which fewer than six are; or a known spread, as points are compared by means of scores
--   - is_effect_in_reach: whether effect_mde is no larger than the effect that was called worth finding
-- reference: sign_test_mde, mcnemar_mde.
-- nulls: a study without claims has no row. first_sent_at while nothing was sent, or of no known time; is_claimed_first
--   where nothing is known to have been sent before, but n_undated is not 0. position_mde where too few pairs are asked
--   in both orders, or the first claim is another one. effect_mde_max of position and length, as the fewer pairs flip,
--   or are decided, the larger an effect must be. What was found, with what it could have found, is in metric_power.
CREATE OR REPLACE VIEW report_claims AS
WITH versions AS (
  SELECT DISTINCT study, study_version, CAST(json_extract(config, '$.claims') AS VARCHAR) AS claims
  FROM studies
  WHERE json_type(config, '$.claims') = 'OBJECT'
),
dated AS (
  SELECT study, study_version, min(occurred_at) AS planned_at, min(ord) AS planned_ord
  FROM events
  WHERE kind = 'planned'
  GROUP BY study, study_version
),
planned AS (
  SELECT
    versions.study,
    versions.claims,
    min(dated.planned_at) AS claimed_at,
    min_by(versions.study_version, dated.planned_ord) AS first_version
  FROM versions
  JOIN dated
    ON dated.study = versions.study
    AND dated.study_version = versions.study_version
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
    versions.study_version,
    versions.claims,
    CAST(json_extract(versions.claims, '$.secondary') AS VARCHAR) AS secondary,
    planned.claimed_at,
    planned.first_version,
    dated.planned_at,
    counted.n_claims
  FROM studies_current
  JOIN versions
    ON versions.study = studies_current.study
    AND versions.study_version = studies_current.study_version
  JOIN planned
    ON planned.study = versions.study
    AND planned.claims = versions.claims
  JOIN dated
    ON dated.study = versions.study
    AND dated.study_version = versions.study_version
  JOIN counted ON counted.study = versions.study
),
chosen AS (
  SELECT study, study_version FROM current_claims
  UNION
  SELECT study, first_version FROM current_claims
),
asks AS (
  SELECT
    plan.study, plan.study_version, plan.request_id, plan.task, plan.template_id, plan.rubric_id, judge(plan) AS judge,
    plan.unit_id, plan.pair_id, plan.candidate_first, plan.candidate_second, plan.is_lo_first
  FROM plan
  JOIN chosen
    ON chosen.study = plan.study
    AND chosen.study_version = plan.study_version
),
changed AS (
  SELECT DISTINCT study
  FROM (
    SELECT asks.study, asks.request_id
    FROM asks
    JOIN current_claims ON current_claims.study = asks.study
    WHERE current_claims.first_version <> current_claims.study_version
    GROUP BY asks.study, asks.request_id
    HAVING count(DISTINCT asks.study_version) = 1
  ) AS of_one_plan
),
made AS (
  SELECT study, shard_id, attempt_id, coalesce(sent_at, created_at) AS made_at, n_requests
  FROM attempts
  WHERE sent_at IS NOT NULL OR batch_id IS NOT NULL
),
-- Whose the attempt is stands in no condition of the joins: DuckDB would pair every request with every attempt first.
shared AS (
  SELECT
    asks.study,
    made.attempt_id,
    min(made.made_at) AS made_at,
    count(DISTINCT CASE WHEN asks.study <> made.study THEN asks.request_id END) AS n_requests
  FROM asks
  JOIN shard_requests ON shard_requests.request_id = asks.request_id
  JOIN made ON made.shard_id = shard_requests.shard_id
  GROUP BY asks.study, made.attempt_id
),
sent AS (
  SELECT
    current_claims.study,
    min(asked.made_at) AS first_sent_at,
    sum(asked.n_requests) FILTER (WHERE asked.made_at < current_claims.claimed_at) AS n_sent_before,
    sum(asked.n_requests) FILTER (WHERE asked.made_at < current_claims.planned_at) AS n_sent_before_plan,
    sum(asked.n_requests) FILTER (WHERE asked.made_at IS NULL) AS n_undated
  FROM current_claims
  JOIN (
    SELECT study, made_at, n_requests FROM made
    UNION ALL
    SELECT study, made_at, n_requests FROM shared WHERE n_requests > 0
  ) AS asked
    ON asked.study = current_claims.study
  GROUP BY current_claims.study
),
imported AS (
  SELECT study, count(*) AS n_imported
  FROM imported_judgments
  WHERE provider <> 'human'
  GROUP BY study
),
pairs AS (
  SELECT
    study, study_version, template_id, rubric_id, judge, unit_id, pair_id,
    count(DISTINCT is_lo_first) = 2 AS is_both,
    min(CASE WHEN candidate_first < candidate_second THEN candidate_first ELSE candidate_second END) AS candidate_a,
    max(CASE WHEN candidate_first < candidate_second THEN candidate_second ELSE candidate_first END) AS candidate_b
  FROM asks
  WHERE pair_id IS NOT NULL AND task <> 'listwise'
  GROUP BY study, study_version, template_id, rubric_id, judge, unit_id, pair_id
),
cells AS (
  SELECT
    study, study_version, template_id, judge,
    count(*) FILTER (WHERE is_both) AS n_pairs
  FROM pairs
  GROUP BY study, study_version, template_id, rubric_id, judge
),
sizes AS (
  SELECT
    study,
    study_version,
    min(n_pairs) AS n_pairs,
    count(DISTINCT template_id) AS n_templates,
    count(DISTINCT judge) AS n_judges
  FROM cells
  GROUP BY study, study_version
),
matches AS (
  SELECT study, study_version, count(*) FILTER (WHERE is_both) AS n_matches
  FROM pairs
  WHERE candidate_a <> candidate_b
  GROUP BY study, study_version, template_id, judge, candidate_a, candidate_b
),
outputs AS (
  SELECT
    study, study_version, candidate_first AS candidate,
    count(DISTINCT coalesce(rubric_id, '') || chr(31) || unit_id) AS n_inputs
  FROM asks
  WHERE task = 'compliance' AND candidate_first IS NOT NULL
  GROUP BY study, study_version, template_id, judge, candidate_first
),
compared AS (
  SELECT
    study,
    study_version,
    CAST(max(n_matches) AS BIGINT) AS n_matches,
    CAST(max(n_inputs) AS BIGINT) AS n_inputs
  FROM (
    SELECT study, study_version, min(n_matches) AS n_matches, NULL AS n_inputs
    FROM matches
    GROUP BY study, study_version
    UNION ALL
    SELECT study, study_version, NULL, CASE WHEN count(DISTINCT candidate) > 1 THEN min(n_inputs) END
    FROM outputs
    GROUP BY study, study_version
  ) AS of_candidates
  GROUP BY study, study_version
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
    planned_at,
    chosen.study_version = current_claims.study_version AS is_current,
    chosen.study_version = first_version AS is_first,
    first_sent_at,
    CAST(coalesce(n_sent_before, 0) AS BIGINT) AS n_sent_before,
    CAST(coalesce(n_undated, 0) + coalesce(n_imported, 0) AS BIGINT) AS n_undated,
    changed.study IS NOT NULL AS is_plan_changed,
    CAST(coalesce(n_sent_before_plan, 0) AS BIGINT) AS n_sent_before_plan,
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
  JOIN chosen ON chosen.study = current_claims.study
  LEFT JOIN sent ON sent.study = current_claims.study
  LEFT JOIN imported ON imported.study = current_claims.study
  LEFT JOIN changed ON changed.study = current_claims.study
  LEFT JOIN sizes
    ON sizes.study = chosen.study
    AND sizes.study_version = chosen.study_version
  LEFT JOIN compared
    ON compared.study = chosen.study
    AND compared.study_version = chosen.study_version
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
),
beside AS (
  SELECT
    *,
    max(CASE WHEN is_first THEN n_compared END) OVER of_study AS n_compared_first,
    max(CASE WHEN is_first THEN effect_mde END) OVER of_study AS effect_mde_first,
    max(CASE WHEN is_first THEN effect_mde_max END) OVER of_study AS effect_mde_max_first
  FROM found
  WINDOW of_study AS (PARTITION BY study)
)
SELECT
  study, primary_claim, secondary_claims, hypothesis, effect, stop_rule, claims_sha256, n_claims, claimed_at,
  first_sent_at,
  CASE WHEN first_sent_at < claimed_at THEN FALSE WHEN n_undated = 0 THEN TRUE END AS is_claimed_first,
  n_sent_before, n_undated, planned_at, is_plan_changed, n_sent_before_plan, n_pairs, position_mde,
  effect_mde <= effect AS is_effect_in_reach,
  n_compared, effect_mde, effect_mde_max, n_compared_first, effect_mde_first, effect_mde_max_first,
  CASE WHEN effect_mde IS NOT NULL THEN NULL
       WHEN primary_claim = 'points' THEN 'a known spread'
       WHEN primary_claim = 'consistency by template' AND n_templates < 2 THEN 'templates'
       WHEN primary_claim = 'consistency by judge' AND n_judges < 2 THEN 'judges'
       WHEN primary_claim IN ('win matrix', 'compliance') AND n_compared IS NULL THEN 'candidates'
       WHEN primary_claim = 'compliance' THEN 'inputs'
       ELSE 'pairs' END AS mde_lacks
FROM beside
WHERE is_current;
