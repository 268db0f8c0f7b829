-- Which of what is asked has an answer: only what is in a shard may have one.
UPDATE some_asked SET is_answered = TRUE WHERE is_in_shard AND EXISTS (
    SELECT 1 FROM responses AS a
    WHERE a.request_id = some_asked.request_id AND a.status = 'succeeded' AND a.match = 'matched'
)
