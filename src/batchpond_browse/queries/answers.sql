-- The words of the answers to some requests.
SELECT request_id, attempt_id, text, thoughts, refusal, error_message
FROM responses
WHERE request_id IN ({ids})
