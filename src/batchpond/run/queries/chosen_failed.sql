{failed}, chosen AS (
  SELECT request_id FROM failed WHERE list_contains($classes, error_class) AND n_attempts < $max_attempts
)
