-- grain: attempt_id
-- question: Where does every intended provider batch stand in the submission protocol?
-- source: the fold of an attempt's events in the order of `ord`. Until a batch is known, the last `sent` decides, and
--   what followed it: rejected, or unknown and then absent. From the first created or adopted on, lost and verified are
--   for good, a batch state that ended is never left whatever is seen later, a mismatch lasts until its files are
--   fetched again, and missing_remote until the batch is seen again. attempt_order numbers attempts by when they were
--   first sent. is_contested marks those whose answers may compete with another attempt's for the same request:
--   retries, adopted batches of other tools, and shards that were accepted more than once. is_void: the attempt's
--   shard was given up before any batch. is_newest marks the last attempt of each shard that was not given up. A second
--   batch of what an attempt sent is an attempt of its own, of shard_kind duplicate; it needs attention until a person
--   has said that it is known. An attempt that was never sent may be meant for another address anew: its last intent
--   holds. is_requeued: the batch failed whole and unbilled for want of room: its requests wait to be sent again.
CREATE OR REPLACE VIEW attempts AS
WITH intents AS (
  SELECT
    attempt_id,
    min(ord) AS intent_ord,
    max(ord) AS last_intent_ord,
    min(occurred_at) AS intended_at,
    min(shard_id) AS shard_id,
    min(shard_kind) AS shard_kind,
    min(ordinal) AS ordinal,
    min(token) AS token,
    min(approval_id) AS approval_id,
    min(study) AS study,
    min(study_version) AS study_version,
    min(provider) AS provider,
    max_by(host, ord) AS host,
    min(endpoint) AS endpoint,
    min(request_model) AS request_model,
    max_by(origin, ord) AS origin,
    coalesce(min(mode), 'batch') AS mode,
    min(n_requests) AS n_requests,
    min(size_bytes) AS size_bytes,
    min(input_tokens) AS input_tokens,
    min(cost_expected_usd) AS cost_expected_usd,
    min(cost_max_usd) AS cost_max_usd
  FROM events
  WHERE kind = 'intent'
  GROUP BY attempt_id
),
voided AS (
  SELECT DISTINCT shard_id
  FROM events
  WHERE kind = 'voided'
),
firsts AS (
  SELECT
    attempt_id,
    min(ord) FILTER (WHERE kind IN ('created', 'adopted')) AS created_ord,
    min(ord) FILTER (WHERE kind = 'sent') AS first_sent_ord,
    max(ord) FILTER (WHERE kind = 'sent') AS last_sent_ord
  FROM events
  WHERE attempt_id IS NOT NULL
  GROUP BY attempt_id
),
facts AS (
  SELECT
    events.*,
    firsts.created_ord,
    intents.last_intent_ord,
    events.ord > firsts.last_sent_ord AS is_after_sent,
    events.ord > firsts.created_ord AS is_after_created,
    events.ord = firsts.created_ord OR (events.kind = 'status' AND events.ord > firsts.created_ord) AS is_seen,
    coalesce(events.state, 'queued') IN ('completed', 'failed', 'expired', 'cancelled') AS is_end
  FROM events
  JOIN firsts ON firsts.attempt_id = events.attempt_id
  JOIN intents ON intents.attempt_id = events.attempt_id
),
marks AS (
  SELECT
    attempt_id,
    min(ord) FILTER (WHERE kind = 'rejected' AND is_after_sent) AS rejected_ord,
    min(ord) FILTER (WHERE kind = 'unknown' AND is_after_sent) AS unknown_ord,
    max(ord) FILTER (WHERE kind = 'absent' AND is_after_sent) AS absent_ord,
    coalesce(
      min(ord) FILTER (WHERE is_seen AND is_end),
      max(ord) FILTER (WHERE is_seen)
    ) AS status_ord,
    min(ord) FILTER (WHERE is_seen AND is_end) AS end_ord,
    min(occurred_at) FILTER (WHERE is_seen AND is_end) AS ended_at,
    max(ord) FILTER (WHERE is_seen OR kind = 'resolved' AND reason = 'found') AS seen_ord,
    max(ord) FILTER (WHERE kind = 'missing_remote' AND is_after_created) AS missing_ord,
    min(ord) FILTER (WHERE kind = 'lost' AND is_after_created) AS lost_ord,
    min(ord) FILTER (WHERE kind = 'verified' AND is_after_created) AS verified_ord,
    max(ord) FILTER (WHERE kind = 'mismatch' AND is_after_created) AS mismatch_ord,
    max(ord) FILTER (
      WHERE kind = 'resolved' AND reason IN ('refetch', 'take_first', 'take_second', 'take_none')
    ) AS refetch_ord,
    min(ord) FILTER (WHERE kind = 'resolved' AND reason = 'known') AS known_ord,
    max_by(file_id, ord) FILTER (WHERE kind = 'uploaded' AND ord > last_intent_ord) AS input_file_id,
    count(*) FILTER (WHERE kind = 'uploaded' AND ord > last_intent_ord) AS n_uploads,
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
    max(facts.detail) FILTER (WHERE facts.ord = marks.status_ord AND facts.reason IS NOT NULL) AS status_detail,
    max(facts.reason) FILTER (WHERE facts.ord = marks.rejected_ord) AS rejected_reason,
    max(facts.detail) FILTER (WHERE facts.ord = marks.rejected_ord) AS rejected_detail,
    max(facts.reason) FILTER (WHERE facts.ord = marks.unknown_ord) AS unknown_reason,
    max(facts.reason) FILTER (WHERE facts.ord = marks.mismatch_ord) AS mismatch_reason,
    max(facts.reason) FILTER (WHERE facts.ord = marks.lost_ord) AS lost_reason,
    coalesce(max(facts.n_completed + facts.n_failed) FILTER (WHERE facts.ord = marks.verified_ord), 0) AS n_answered,
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
    coalesce(first_sent_ord, created_ord, intent_ord) AS attempt_order,
    CASE
      WHEN created_ord IS NULL AND last_sent_ord IS NULL THEN
        CASE WHEN n_uploads > 0 THEN 'uploaded' ELSE 'intent' END
      WHEN created_ord IS NULL THEN
        CASE
          WHEN unknown_ord IS NULL THEN CASE WHEN rejected_ord IS NULL THEN 'sent' ELSE 'rejected' END
          WHEN absent_ord > unknown_ord THEN 'absent'
          ELSE 'unknown'
        END
      WHEN lost_ord < coalesce(verified_ord, lost_ord + 1) THEN 'lost'
      WHEN verified_ord IS NOT NULL THEN 'verified'
      WHEN end_ord IS NULL THEN CASE WHEN missing_ord > seen_ord THEN 'missing_remote' ELSE 'open' END
      WHEN mismatch_ord > coalesce(refetch_ord, 0) THEN 'mismatch'
      ELSE 'ended'
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
  folded.mode,
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
  CASE folded.attempt_state
    WHEN 'unknown' THEN folded.unknown_reason
    WHEN 'rejected' THEN folded.rejected_reason
    WHEN 'mismatch' THEN folded.mismatch_reason
    WHEN 'lost' THEN folded.lost_reason
    ELSE folded.status_reason
  END AS reason,
  CASE WHEN folded.attempt_state = 'rejected' THEN folded.rejected_detail ELSE folded.status_detail END AS message,
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
  coalesce(folded.batch_state IN ('completed', 'failed', 'expired', 'cancelled'), FALSE) AS is_terminal,
  folded.attempt_state IN ('absent', 'verified', 'mismatch', 'lost') AS is_settled,
  folded.attempt_state IN ('sent', 'unknown', 'open', 'ended', 'missing_remote') AS is_in_flight,
  folded.attempt_state IN ('unknown', 'mismatch', 'missing_remote')
  OR (folded.shard_kind = 'duplicate' AND folded.known_ord IS NULL) AS needs_attention,
  voided.shard_id IS NOT NULL AS is_void,
  folded.shard_kind <> 'first' OR coalesce(accepted.n_accepted, 0) > 1 OR voided.shard_id IS NOT NULL AS is_contested,
  voided.shard_id IS NULL
    AND row_number() OVER (
      PARTITION BY folded.shard_id
      ORDER BY folded.ordinal DESC, folded.attempt_order DESC
    ) = 1 AS is_newest,
  folded.attempt_order,
  folded.attempt_state = 'verified'
    AND folded.batch_state = 'failed'
    AND folded.shard_kind <> 'adopted'
    AND folded.n_answered = 0
    AND folded.provider || ' ' || coalesce(folded.status_reason, '') IN (
      'openai token_limit_exceeded', 'together input_file_unavailable'
    ) AS is_requeued
FROM folded
LEFT JOIN accepted ON accepted.shard_id = folded.shard_id
LEFT JOIN voided ON voided.shard_id = folded.shard_id;
