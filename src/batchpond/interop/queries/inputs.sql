SELECT rubric_id, input FROM judged WHERE input IS NOT NULL
UNION SELECT rubric_id, input FROM answered
UNION SELECT rubric_id, text FROM told WHERE kind = 'input'
ORDER BY ALL
