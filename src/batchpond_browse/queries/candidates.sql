-- The first slots of a stretch of a study's plan at which a judgment that is looked for can stand, and some more. Answers
-- are looked at only in the files of the attempts that asked there.
WITH there AS MATERIALIZED (
    SELECT * FROM plan_current WHERE study = $study{there}
),
asked AS MATERIALIZED (
    SELECT DISTINCT attempt_id
    FROM shard_requests
    JOIN attempts USING (shard_id)
    WHERE request_id IN (SELECT request_id FROM there)
),
answers AS (
    SELECT * FROM responses WHERE attempt_id IN (SELECT attempt_id FROM asked)
),
readings AS (
    SELECT * FROM judgments WHERE attempt_id IN (SELECT attempt_id FROM asked)
)
SELECT slot
FROM there
WHERE TRUE{conditions}
ORDER BY slot
LIMIT {limit}
