-- grain: attempt_id, request_id
-- question: Which answers came to what was asked, and which attempt had asked?
-- source: the responses whose `match` says so, with what `attempts` says of theirs. A request has more than one where
--   several attempts asked; `responses_accepted` says which counts.
CREATE OR REPLACE VIEW responses_matched AS
SELECT responses.*, attempts.study, attempts.request_model, attempts.attempt_order, attempts.is_contested
FROM responses
JOIN attempts ON attempts.attempt_id = responses.attempt_id
WHERE responses.match = 'matched';
