-- The paired differences as they are shown: a row per comparison and metric.
SELECT * EXCLUDE (place)
FROM compare_metrics
WHERE metric <> 'agreement'
ORDER BY comparison_no, place, metric
