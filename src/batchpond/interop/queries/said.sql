SELECT DISTINCT task, held
FROM ({votes})
WHERE task <> 'pair' AND held IS NOT NULL
ORDER BY task, held
