-- The next slots of a study's plan at which a judgment that is looked for can stand: all of them, and some more.
SELECT slot
FROM plan_current
WHERE study = $study AND slot > {after}{conditions}
ORDER BY slot
LIMIT {limit}
