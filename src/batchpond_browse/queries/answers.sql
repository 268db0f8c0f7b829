-- The words of the answers to some requests.
SELECT request_id, attempt_id, text, thoughts, refusal, error_message
FROM responses
WHERE request_id IN ({request_id}) AND attempt_id IN ({attempt_id})
