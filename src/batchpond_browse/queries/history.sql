-- Every attempt at a request, and what came of each.
SELECT
    attempts.attempt_order, attempts.attempt_id, attempts.shard_kind, attempts.attempt_state, attempts.batch_id,
    attempts.sent_at, attempts.ended_at, responses.match, responses.status, responses.finish, responses.error_class,
    responses.error_message, responses.output_tokens, responses.cost_usd
FROM shard_requests
JOIN attempts ON attempts.shard_id = shard_requests.shard_id
LEFT JOIN responses
    ON responses.attempt_id = attempts.attempt_id AND responses.request_id = shard_requests.request_id
WHERE shard_requests.request_id = $request_id
ORDER BY attempts.attempt_order, responses.line_number
