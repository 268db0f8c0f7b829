-- The first slots of a stretch of a study's plan at which a judgment that is looked for can stand, and some more.
WITH there AS (
    SELECT * FROM plan_current WHERE study = $study{there}
)
SELECT slot
FROM there
WHERE TRUE{conditions}
ORDER BY slot
LIMIT {limit}
