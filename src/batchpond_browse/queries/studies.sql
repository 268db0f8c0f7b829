-- Every study that was planned or imported, and how far it is.
SELECT
    study,
    count(*) AS n,
    count(*) FILTER (WHERE outcome NOT IN ('error', 'expired', 'cancelled', 'missing')) AS n_answered,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_failed,
    count(*) FILTER (WHERE outcome IS NULL) AS n_open,
    sum(cost_usd) AS cost_usd,
    CASE WHEN min(origin) = max(origin) THEN min(origin) WHEN min(origin) IS NOT NULL THEN 'mixed' END AS origin
FROM calls
GROUP BY study
ORDER BY study
