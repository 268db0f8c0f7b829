-- Every attempt at a request, and what came of each.
WITH asked AS MATERIALIZED (
    SELECT attempts.*, request_id
    FROM shard_requests
    JOIN attempts ON attempts.shard_id = shard_requests.shard_id
    WHERE request_id = $request_id
),
answers AS (
    SELECT * FROM responses WHERE attempt_id IN (SELECT attempt_id FROM asked) AND request_id = $request_id
)
SELECT
    asked.attempt_order, asked.attempt_id, asked.shard_kind, asked.attempt_state, asked.batch_id, asked.sent_at,
    asked.ended_at, answers.match, answers.status, answers.finish, answers.error_class, answers.error_message,
    answers.output_tokens, answers.cost_usd
FROM asked
LEFT JOIN answers ON answers.attempt_id = asked.attempt_id
ORDER BY asked.attempt_order, answers.line_number
