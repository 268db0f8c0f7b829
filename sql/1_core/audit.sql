-- grain: attempt_id
-- question: Is every request that a batch was sent accounted for, and does every line belong to one request?
-- source: sent = succeeded + errored + expired + cancelled + missing + outstanding, each side counted on its own: the
--   requests of the shard, the matched lines by status, and the requests without a matched line (missing once the
--   attempt is settled, outstanding before). is_balanced is NULL until the attempt is settled; then it also asks that
--   no line is unmatched or in conflict and that every raw line was read. Of a file that was downloaded more than once
--   all downloads count that answer something; the lines of the others count as superseded. is_provider_equal compares
--   the provider's own count of successes. Unreadable lines that still name their request count as errored. n_in_doubt counts the live
--   calls of the attempt that may have been answered and paid though no whole answer came: each is a row of `doubts`.
CREATE OR REPLACE VIEW audit AS
WITH lines AS (
  SELECT
    attempt_id,
    count(*) AS n_lines,
    count(*) FILTER (WHERE responses.match = 'matched') AS n_matched,
    count(*) FILTER (WHERE responses.match = 'matched' AND status = 'succeeded') AS n_succeeded,
    count(*) FILTER (WHERE responses.match = 'matched' AND status IN ('errored', 'unreadable')) AS n_errored,
    count(*) FILTER (WHERE responses.match = 'matched' AND status = 'expired') AS n_expired,
    count(*) FILTER (WHERE responses.match = 'matched' AND status = 'cancelled') AS n_cancelled,
    count(*) FILTER (WHERE responses.match = 'duplicate') AS n_duplicate,
    count(*) FILTER (WHERE responses.match = 'conflict') AS n_conflict,
    count(*) FILTER (WHERE responses.match = 'unmatched') AS n_unmatched,
    count(*) FILTER (WHERE responses.match = 'blank') AS n_blank
  FROM responses
  GROUP BY attempt_id
),
downloads AS (
  SELECT attempt_id, file_id, file_sha256, count(*) AS n_raw
  FROM raw
  GROUP BY attempt_id, file_id, file_sha256
),
files AS (
  SELECT attempt_id, file_id, min(n_raw) AS n_raw_least, sum(n_raw) AS n_raw_all
  FROM downloads
  GROUP BY attempt_id, file_id
),
raw_lines AS (
  SELECT attempt_id, sum(n_raw_least) AS n_raw_least, sum(n_raw_all) AS n_raw_all
  FROM files
  GROUP BY attempt_id
),
doubtful AS (
  SELECT attempt_id, count(*) AS n_in_doubt
  FROM doubts
  GROUP BY attempt_id
),
unanswered AS (
  SELECT attempts.attempt_id, count(*) AS n_requests, count(*) FILTER (WHERE answer.request_id IS NULL) AS n_without
  FROM attempts
  JOIN shard_requests ON shard_requests.shard_id = attempts.shard_id
  LEFT JOIN (
    SELECT DISTINCT attempt_id, request_id
    FROM responses
    WHERE responses.match = 'matched'
  ) AS answer
    ON answer.attempt_id = attempts.attempt_id
    AND answer.request_id = shard_requests.request_id
  GROUP BY attempts.attempt_id
),
counted AS (
  SELECT
    attempts.*,
    attempts.is_in_flight OR attempts.attempt_state IN ('verified', 'mismatch', 'lost') AS is_sent,
    attempts.attempt_state IN ('verified', 'mismatch', 'lost') AS is_over,
    coalesce(unanswered.n_requests, 0) AS n_in_shard,
    coalesce(unanswered.n_without, 0) AS n_without,
    coalesce(lines.n_lines, 0) AS n_lines,
    CAST(coalesce(raw_lines.n_raw_all, 0) AS BIGINT) AS n_raw_all,
    CAST(
      coalesce(
        least(
          raw_lines.n_raw_all - raw_lines.n_raw_least,
          greatest(raw_lines.n_raw_all - coalesce(lines.n_lines, 0), 0)
        ),
        0
      ) AS BIGINT
    ) AS n_raw_superseded,
    coalesce(lines.n_succeeded, 0) AS n_ok,
    coalesce(lines.n_errored, 0) AS n_errored,
    coalesce(lines.n_expired, 0) AS n_expired,
    coalesce(lines.n_cancelled, 0) AS n_cancelled,
    coalesce(lines.n_duplicate, 0) AS n_duplicate,
    coalesce(lines.n_conflict, 0) AS n_conflict,
    coalesce(lines.n_unmatched, 0) AS n_unmatched,
    coalesce(lines.n_blank, 0) AS n_blank,
    coalesce(doubtful.n_in_doubt, 0) AS n_in_doubt
  FROM attempts
  LEFT JOIN lines ON lines.attempt_id = attempts.attempt_id
  LEFT JOIN raw_lines ON raw_lines.attempt_id = attempts.attempt_id
  LEFT JOIN unanswered ON unanswered.attempt_id = attempts.attempt_id
  LEFT JOIN doubtful ON doubtful.attempt_id = attempts.attempt_id
)
SELECT
  attempt_id,
  study,
  provider,
  request_model,
  batch_id,
  attempt_state,
  batch_state,
  CASE WHEN is_sent THEN n_in_shard ELSE 0 END AS n_sent,
  n_ok AS n_succeeded,
  n_errored,
  n_expired,
  n_cancelled,
  CASE WHEN is_over THEN n_without ELSE 0 END AS n_missing,
  CASE WHEN is_sent AND NOT is_over THEN n_without ELSE 0 END AS n_outstanding,
  n_duplicate,
  n_conflict,
  n_unmatched,
  n_blank,
  n_lines,
  n_raw_all - n_raw_superseded AS n_raw_lines,
  n_raw_superseded AS n_raw_lines_superseded,
  n_in_doubt,
  n_total AS n_provider_total,
  n_completed AS n_provider_completed,
  n_failed AS n_provider_failed,
  CASE
    WHEN is_over THEN
      n_in_shard = n_ok + n_errored + n_expired + n_cancelled + n_without
      AND n_in_shard = n_requests
      AND n_unmatched = 0
      AND n_conflict = 0
      AND n_lines = n_raw_all - n_raw_superseded
  END AS is_balanced,
  CASE WHEN is_over AND n_completed IS NOT NULL THEN n_completed = n_ok END AS is_provider_equal,
  reason,
  origin
FROM counted;
