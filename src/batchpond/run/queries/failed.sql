-- The requests of settled attempts that no answer succeeded to, each with how often and how it failed last.
settled AS (
  SELECT unnest($attempt_ids) AS attempt_id, unnest($shard_ids) AS shard_id, unnest($rowless) AS rowless,
         unnest($codes) AS code, unnest($messages) AS message, unnest(range(len($attempt_ids))) AS place
), tried AS (
  SELECT r.request_id, s.place, a.status, coalesce(a.error_class, s.rowless) AS error_class,
         struct_pack(code := CASE WHEN a.request_id IS NULL THEN s.code ELSE a.error_code END,
                     message := CASE WHEN a.request_id IS NULL THEN s.message ELSE a.error_message END) AS said
  FROM settled s
  JOIN shard_requests r USING (shard_id)
  LEFT JOIN responses a ON a.attempt_id = s.attempt_id AND a.request_id = r.request_id AND a.match = 'matched'
), failed AS (
  SELECT request_id, count(*) AS n_attempts, arg_max(error_class, place) AS error_class, arg_max(said, place) AS said
  FROM tried GROUP BY request_id
  HAVING NOT bool_or(status IS NOT DISTINCT FROM 'succeeded')
)
