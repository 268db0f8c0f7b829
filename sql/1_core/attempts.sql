-- grain: attempt_id
-- question: Where does every intended provider batch stand in the submission protocol?
-- source: the fold of an attempt's events in the order of `ord`. The last fact that always moves an attempt (sent,
--   rejected, verified, mismatch, lost, or the first created or adopted) decides; unknown, absent and missing_remote
--   only count after the facts they qualify. A batch state that ended is never left, whatever is seen later.
--   attempt_order numbers attempts by when they were first sent. is_contested marks those whose answers may compete
--   with another attempt's for the same request: retries, and shards that were accepted more than once.
CREATE OR REPLACE VIEW attempts AS
WITH intents AS (
  SELECT
    attempt_id,
    min(ord) AS intent_ord,
    min(occurred_at) AS intended_at,
    min(shard_id) AS shard_id,
    min(shard_kind) AS shard_kind,
    min(ordinal) AS ordinal,
    min(token) AS token,
    min(approval_id) AS approval_id,
    min(study) AS study,
    min(study_version) AS study_version,
    min(provider) AS provider,
    min(host) AS host,
    min(endpoint) AS endpoint,
    min(request_model) AS request_model,
    min(origin) AS origin,
    min(n_requests) AS n_requests,
    min(size_bytes) AS size_bytes,
    min(input_tokens) AS input_tokens,
    min(cost_expected_usd) AS cost_expected_usd,
    min(cost_max_usd) AS cost_max_usd
  FROM events
  WHERE kind = 'intent'
  GROUP BY attempt_id
),
firsts AS (
  SELECT
    attempt_id,
    min(ord) FILTER (WHERE kind IN ('created', 'adopted')) AS created_ord,
    min(ord) FILTER (WHERE kind = 'sent') AS sent_ord,
    min(ord) FILTER (
      WHERE kind IN ('sent', 'rejected', 'created', 'adopted', 'verified', 'mismatch', 'lost')
    ) AS left_ord,
    max(ord) FILTER (WHERE kind IN ('sent', 'rejected', 'verified', 'mismatch', 'lost')) AS moved_ord,
    max_by(kind, ord) FILTER (WHERE kind IN ('sent', 'rejected', 'verified', 'mismatch', 'lost')) AS moved_kind
  FROM events
  WHERE attempt_id IS NOT NULL
  GROUP BY attempt_id
),
facts AS (
  SELECT
    events.*,
    firsts.created_ord,
    events.kind = 'uploaded' AND (firsts.left_ord IS NULL OR events.ord < firsts.left_ord) AS is_upload,
    greatest(coalesce(firsts.moved_ord, 0), coalesce(firsts.created_ord, 0)) AS anchor_ord,
    events.kind = 'status' OR events.ord = firsts.created_ord AS is_seen,
    coalesce(events.state, 'queued') IN ('completed', 'failed', 'expired', 'cancelled') AS is_end
  FROM events
  JOIN firsts ON firsts.attempt_id = events.attempt_id
),
marks AS (
  SELECT
    attempt_id,
    max(anchor_ord) AS anchor_ord,
    coalesce(
      min(ord) FILTER (WHERE is_seen AND is_end),
      max(ord) FILTER (WHERE is_seen)
    ) AS status_ord,
    min(ord) FILTER (WHERE is_seen AND is_end) AS end_ord,
    min(occurred_at) FILTER (WHERE is_seen AND is_end) AS ended_at,
    max(ord) FILTER (WHERE is_seen) AS seen_ord,
    min(ord) FILTER (WHERE kind = 'unknown' AND ord > anchor_ord) AS unknown_ord,
    max(ord) FILTER (WHERE kind = 'absent' AND ord > anchor_ord) AS absent_ord,
    max(ord) FILTER (WHERE kind = 'missing_remote' AND ord > anchor_ord) AS missing_ord,
    min_by(file_id, ord) FILTER (WHERE is_upload) AS input_file_id,
    count(*) FILTER (WHERE is_upload) AS n_uploads,
    count(DISTINCT ord) FILTER (WHERE kind = 'sent') AS n_sends,
    count(DISTINCT ord) FILTER (WHERE kind = 'rejected') AS n_rejections,
    min(occurred_at) FILTER (WHERE kind = 'sent') AS sent_at,
    max(occurred_at) FILTER (WHERE kind = 'downloaded') AS downloaded_at,
    max(occurred_at) FILTER (WHERE kind = 'verified') AS verified_at,
    max(occurred_at) AS last_event_at
  FROM facts
  GROUP BY attempt_id
),
seen AS (
  SELECT
    facts.attempt_id,
    max(facts.batch_id) FILTER (WHERE facts.ord = facts.created_ord) AS batch_id,
    max(facts.scope) FILTER (WHERE facts.ord = facts.created_ord) AS scope,
    max(coalesce(facts.state, 'queued')) FILTER (WHERE facts.ord = marks.status_ord) AS batch_state,
    max(facts.provider_status) FILTER (WHERE facts.ord = marks.status_ord) AS provider_status,
    max(facts.n_requests) FILTER (WHERE facts.ord = marks.status_ord) AS n_total,
    max(facts.n_completed) FILTER (WHERE facts.ord = marks.status_ord) AS n_completed,
    max(facts.n_failed) FILTER (WHERE facts.ord = marks.status_ord) AS n_failed,
    max(facts.reason) FILTER (WHERE facts.ord = marks.status_ord) AS status_reason,
    max(facts.reason) FILTER (WHERE facts.ord = marks.anchor_ord) AS anchor_reason,
    max(facts.reason) FILTER (WHERE facts.ord = marks.unknown_ord) AS unknown_reason,
    max_by(facts.provider_created_at, facts.ord) FILTER (
      WHERE facts.is_seen AND facts.ord <= marks.status_ord AND facts.provider_created_at IS NOT NULL
    ) AS created_at,
    max_by(facts.expires_at, facts.ord) FILTER (
      WHERE facts.is_seen AND facts.ord <= marks.status_ord AND facts.expires_at IS NOT NULL
    ) AS expires_at
  FROM facts
  JOIN marks ON marks.attempt_id = facts.attempt_id
  GROUP BY facts.attempt_id
),
folded AS (
  SELECT
    *,
    coalesce(sent_ord, created_ord, intent_ord) AS attempt_order,
    CASE
      WHEN anchor_ord = 0 THEN CASE WHEN n_uploads > 0 THEN 'uploaded' ELSE 'intent' END
      WHEN anchor_ord = created_ord THEN
        CASE
          WHEN end_ord IS NOT NULL THEN 'ended'
          WHEN missing_ord > seen_ord THEN 'missing_remote'
          ELSE 'open'
        END
      WHEN moved_kind = 'sent' THEN
        CASE
          WHEN absent_ord > unknown_ord THEN 'absent'
          WHEN unknown_ord IS NOT NULL THEN 'unknown'
          ELSE 'sent'
        END
      ELSE moved_kind
    END AS attempt_state
  FROM intents
  JOIN firsts USING (attempt_id)
  JOIN marks USING (attempt_id)
  JOIN seen USING (attempt_id)
),
accepted AS (
  SELECT shard_id, count(*) AS n_accepted
  FROM folded
  WHERE batch_id IS NOT NULL
  GROUP BY shard_id
)
SELECT
  folded.attempt_id,
  folded.study,
  folded.study_version,
  folded.provider,
  folded.request_model,
  folded.endpoint,
  folded.origin,
  folded.shard_id,
  folded.shard_kind,
  folded.ordinal,
  folded.approval_id,
  folded.host,
  folded.scope,
  folded.token,
  folded.attempt_state,
  folded.batch_id,
  folded.batch_state,
  folded.provider_status,
  CASE
    WHEN folded.attempt_state = 'unknown' THEN folded.unknown_reason
    WHEN folded.attempt_state IN ('rejected', 'mismatch', 'lost') THEN folded.anchor_reason
    ELSE folded.status_reason
  END AS reason,
  folded.n_requests,
  folded.n_total,
  folded.n_completed,
  folded.n_failed,
  folded.n_sends,
  folded.n_rejections,
  folded.input_file_id,
  folded.size_bytes,
  folded.input_tokens,
  folded.cost_expected_usd,
  folded.cost_max_usd,
  folded.intended_at,
  folded.sent_at,
  folded.created_at,
  folded.expires_at,
  folded.ended_at,
  folded.downloaded_at,
  folded.verified_at,
  folded.last_event_at,
  coalesce(folded.batch_state IN ('completed', 'failed', 'expired', 'cancelled'), false) AS is_terminal,
  folded.attempt_state IN ('absent', 'verified', 'mismatch', 'lost') AS is_settled,
  folded.attempt_state IN ('sent', 'unknown', 'open', 'ended', 'missing_remote') AS is_in_flight,
  folded.attempt_state IN ('unknown', 'mismatch', 'missing_remote', 'lost') AS needs_attention,
  folded.shard_kind <> 'first' OR coalesce(accepted.n_accepted, 0) > 1 AS is_contested,
  folded.attempt_order
FROM folded
LEFT JOIN accepted ON accepted.shard_id = folded.shard_id;
