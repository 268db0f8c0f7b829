-- The words of the answers to some requests, with what was asked and the lines as they came.
SELECT
    responses.request_id, responses.attempt_id, responses.text, responses.thoughts, responses.refusal,
    responses.error_message, requests.body, raw.line
FROM responses
LEFT JOIN requests ON requests.request_id = responses.request_id
LEFT JOIN raw
    ON raw.attempt_id = responses.attempt_id
    AND raw.file_id = responses.file_id
    AND raw.line_number = responses.line_number
WHERE responses.request_id IN ({request_id}) AND responses.attempt_id IN ({attempt_id})
