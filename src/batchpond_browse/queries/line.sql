-- What the provider sent, as it came.
SELECT line, octet_length(line_bytes) AS n_bytes
FROM raw
WHERE attempt_id = $attempt_id AND file_id = $file_id AND line_number = $line_number
LIMIT 1
